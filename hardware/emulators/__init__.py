"""Emulates controllers and devices on the vendors' real wire protocols."""
