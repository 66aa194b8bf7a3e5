"""Fuses objects that were seen by themselves, and brings them into the scene of a table."""
