"""Foreign recordings become episodes of a store."""
