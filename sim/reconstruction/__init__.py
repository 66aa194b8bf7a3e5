"""Builds scene packages from captures of a real table, and measures how well they match it."""
