"""Makes scenes of real tables, and measures how well they match."""
