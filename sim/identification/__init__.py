"""Finds a scene's physics from recordings and measures what is left over."""
