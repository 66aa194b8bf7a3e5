"""Renders results as pages."""
