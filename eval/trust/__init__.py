"""Judges how far a simulator may be trusted: agreement over policies, its noise, a verdict."""
