"""Deploys a policy on a robot: checks, trials, results."""
