"""A policy on a robot: checks, trials, results."""
