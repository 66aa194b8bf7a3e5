"""Learns policies from demonstrations, one file per algorithm."""
