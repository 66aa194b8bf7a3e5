"""Drives vendors' hardware behind the contracts of hardware/devices."""
