"""Infers and mends what is in recorded data by small models of it; results go into new stores."""
