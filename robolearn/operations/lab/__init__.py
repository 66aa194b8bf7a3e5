"""Serves the virtual lab: emulated devices over simulated physics, as one process."""
