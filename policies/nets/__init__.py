"""Holds the networks that policies share."""
