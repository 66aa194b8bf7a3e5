"""Renders what is known of a simulator: lines, Markdown, JSON, pages."""
