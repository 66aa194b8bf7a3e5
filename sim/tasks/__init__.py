"""Judges tasks: what counts as progress and success, and where episodes start."""
