"""Moves demonstrations to objects that lie elsewhere: skills, transfers, bridges, strata."""
