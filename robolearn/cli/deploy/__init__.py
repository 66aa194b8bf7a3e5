"""Runs the command that deploys a policy on a robot."""
