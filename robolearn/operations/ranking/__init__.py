"""Orders policies by recordings alone, and plans which to try next."""
