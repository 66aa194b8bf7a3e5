"""Finds what is wrong with a simulator: which of its parameters explains the gap to reality."""
