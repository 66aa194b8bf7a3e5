"""Collects what devices measure into signals with their capture times."""
