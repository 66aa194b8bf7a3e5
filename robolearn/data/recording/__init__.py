"""Records episodes of the loop into a store."""
