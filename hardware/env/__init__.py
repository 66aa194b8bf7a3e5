"""Runs a robot cell as an Env, with or without moving it."""
