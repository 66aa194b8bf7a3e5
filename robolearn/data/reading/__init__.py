"""Reads stores for training: caches, windows, mixtures."""
