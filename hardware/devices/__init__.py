"""Fixes the contracts of robots, grippers, cameras and trackers, and their configs."""
