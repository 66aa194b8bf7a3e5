"""Serves pages of this computer to browsers: addresses, certificates."""
