"""Makes scenes of real tables and arms, and measures how well they match."""
