"""Says what a store of episodes is good for: measures, and what they speak for."""
