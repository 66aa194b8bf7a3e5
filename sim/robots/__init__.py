"""Writes machines as MJCF, from the published kinematics in ``robolearn.arms.models``."""
