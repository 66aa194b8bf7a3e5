"""Leads a person from start to start: what is shown, what a key decides, what becomes of it."""
