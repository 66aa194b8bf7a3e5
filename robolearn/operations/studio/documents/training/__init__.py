"""Describes runs: what they are, their curves, differences, practice, samples, commands."""
