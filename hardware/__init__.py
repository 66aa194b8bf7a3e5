"""Drives robot cells: devices, supervisor, drivers, and emulators of the vendors' protocols."""
