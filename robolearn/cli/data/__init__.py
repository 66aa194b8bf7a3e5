"""Commands over episode stores."""
