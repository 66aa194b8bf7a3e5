"""Draws pictures for people: worlds as they are, recordings as videos."""
