"""Solves tasks by scripts: agents that read signals and nothing else."""
