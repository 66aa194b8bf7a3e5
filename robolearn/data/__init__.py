"""Keeps episodes: what was recorded, how it is stored, and how training reads it."""
