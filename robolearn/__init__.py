"""Learns robot skills, from demonstration to deployment (core package)."""

__version__ = "0.1.0"
