"""Algorithms that improve on a trained policy, and that judge chunks by their parts."""
