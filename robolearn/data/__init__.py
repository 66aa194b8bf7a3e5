"""Episodes: what was recorded, how it is kept, and how training reads it."""
