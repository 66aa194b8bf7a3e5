"""Learns policies: one file per algorithm."""
