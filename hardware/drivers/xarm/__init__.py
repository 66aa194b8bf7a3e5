"""Drives UFACTORY arms and grippers through the vendor's SDK."""
