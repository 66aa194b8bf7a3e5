"""The emulated controller's own kinematics: poses of its tool centre point (TCP)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.arms.kinematics import SerialArm, ik_dls
from robolearn.geometry import inverse, pose, rotation_from_rotvec, rotvec_from_rotation

Array = NDArray[np.float64]


class ToolSpace:
    """Poses are ``[x, y, z, rx, ry, rz]`` [m, rotation vector] in the base frame."""

    def __init__(self, arm: SerialArm) -> None:
        self.arm = arm
        self.tcp = np.zeros(6)

    def pose(self, q: Array) -> Array:
        """Of the tool centre point at ``q [n]``."""
        return _vector(self.arm.fk(q) @ matrix(self.tcp))

    def joints(self, target: Array, q_near: Array) -> Array:
        """``get_inverse_kin``: the joints ``[n]`` near ``q_near`` that reach a pose of the TCP.

        Raises DataError where there are none.
        """
        return ik_dls(self.arm, matrix(target) @ inverse(matrix(self.tcp)), q_near)


def matrix(vector: Array) -> Array:
    """``T [4, 4]`` of a pose ``[6]``."""
    return pose(rotation_from_rotvec(vector[3:]), vector[:3])


def _vector(T: Array) -> Array:
    return np.concatenate([T[:3, 3], rotvec_from_rotation(T[:3, :3])])
