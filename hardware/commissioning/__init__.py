"""Checks a new cell: the robot contract on the device, and its delays."""
