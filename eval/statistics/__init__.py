"""Computes intervals, tests and plans for results of trials."""
