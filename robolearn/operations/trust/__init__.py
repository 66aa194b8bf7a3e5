"""Reports how far a simulator may be trusted, from tables or trials of both worlds; certifies."""
