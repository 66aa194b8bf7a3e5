"""Holds data that comes with the package."""
