"""Stores episodes: layout, commits, checksums, manifests."""
