"""Turns actions into set-points and servo forces at the rate of a scene's physics."""
