"""Fills episode stores: where somebody acts, and from recordings of others."""
