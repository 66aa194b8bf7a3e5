"""Scripted experts of tasks: agents that read signals and nothing else."""
