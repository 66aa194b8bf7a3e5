"""Runs a scene package as an Env: starts, sensors, the command path."""
