"""Speaks the UFACTORY controller's protocol."""
