"""Makes worlds a little different: friction, delays, noise, cameras, starts."""
