"""Drives Universal Robots arms over RTDE."""
