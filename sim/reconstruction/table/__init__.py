"""Finds the table that all pictures show, and says why they show several."""
