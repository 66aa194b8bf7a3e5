"""Machines as MJCF, generated from the published kinematics in ``robolearn.arms.models``."""
