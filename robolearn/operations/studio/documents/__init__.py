"""Reads what a lab keeps as typed documents; what cannot be read is said in place."""
