"""Wraps Gymnasium environments as worlds, and worlds as Gymnasium environments."""
