"""Prepares what is learned from while it is still being collected."""
