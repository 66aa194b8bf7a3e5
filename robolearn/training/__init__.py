"""Trains policies: the one loop, experiments, run directories."""
