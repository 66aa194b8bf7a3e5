"""Estimates what a policy is worth from recordings, without running it."""
