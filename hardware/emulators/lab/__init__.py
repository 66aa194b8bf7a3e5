"""Assembles plants, emulated controllers, trackers and cameras into a virtual lab."""
