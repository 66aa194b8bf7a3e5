"""Wraps robosuite's tasks as worlds and replays its recordings."""
