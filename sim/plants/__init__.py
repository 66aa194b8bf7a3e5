"""Provides the physics of the virtual lab behind the emulators' Plant protocol."""
