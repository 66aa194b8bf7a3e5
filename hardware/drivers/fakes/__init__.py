"""Stands in for devices in tests of everything above a driver."""
