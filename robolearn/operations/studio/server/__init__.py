"""Answers requests of the page: who may ask, what is served, what is told by itself."""
