"""Algorithms that learn to reach goals from rewards of hindsight."""
