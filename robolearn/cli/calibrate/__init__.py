"""Commands that measure a cell."""
