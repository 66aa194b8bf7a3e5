"""Watches what happens in a tick: the agent, its commands, the arm's motion."""
