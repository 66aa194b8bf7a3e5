"""Keeps stores healthy: checks, repairs, edits, mirrors."""
