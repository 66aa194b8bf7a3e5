"""Judges observations and actions: the networks that values are learned by."""
