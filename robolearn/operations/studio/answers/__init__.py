"""Answers what pages ask about runs, trials and scenes by documents that are made beside it."""
