"""Knows this computer: devices, processes, readiness."""
