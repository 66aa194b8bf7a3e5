"""Imports foreign recordings as episodes of a store."""
