"""Runs a lab's workcell in process, faster than real time: a reality to judge simulators by."""
