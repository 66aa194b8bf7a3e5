"""Reads keys from a terminal, and gives it back whatever happens."""
