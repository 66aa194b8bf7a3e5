"""Serves the page that a person drives by: its messages, who drives, its pictures, its files."""
