"""Commands over a robot cell."""
