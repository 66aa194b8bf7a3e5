"""Wraps OGBench's environments as worlds, with its oracles."""
