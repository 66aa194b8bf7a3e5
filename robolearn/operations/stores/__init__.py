"""Fills episode stores from recordings of others."""
