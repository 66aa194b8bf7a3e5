"""Computes the emulated controller's kinematics: poses of its tool centre point (TCP)."""

from __future__ import annotations

import math

import numpy as np

from hardware.emulators.ur.motion import Path, Planned
from robolearn.arms.kinematics import SerialArm, ik_dls
from robolearn.arms.shapes import Joints
from robolearn.errors import DataError
from robolearn.geometry import (
    Pose,
    RotvecPose,
    inverse,
    pose,
    rotation_from_rotvec,
    rotvec_from_rotation,
)

# A turn of one radian takes as long as a way of this length [m].
_TURNS_AS_M = 0.2


class ToolSpace:
    """Poses are ``[x, y, z, rx, ry, rz]`` [m, rotation vector] in the base frame."""

    def __init__(self, arm: SerialArm) -> None:
        self.arm = arm
        self.tcp = np.zeros(6)

    def pose(self, q: Joints) -> RotvecPose:
        """Of the tool centre point at ``q [n]``."""
        return _vector(self.arm.fk(q) @ matrix(self.tcp))

    def joints(self, target: RotvecPose, q_near: Joints) -> Joints:
        """``get_inverse_kin``: the joints ``[n]`` near ``q_near`` that reach a pose of the TCP.

        Raises DataError where there are none.
        """
        return ik_dls(self.arm, matrix(target) @ inverse(matrix(self.tcp)), q_near)

    def pose_with(self, q: Joints, tcp: RotvecPose) -> RotvecPose:
        """Of another tool centre point ``[6]`` at ``q [n]``."""
        return _vector(self.arm.fk(q) @ matrix(tcp))

    def reaches(self, target: RotvecPose, q_near: Joints) -> bool:
        """Whether there are joints near ``q_near`` for a pose of the TCP."""
        try:
            self.joints(target, q_near)
        except DataError:
            return False
        return True

    def line(self, target: RotvecPose, speed: float, accel: float) -> Planned:
        """``moveL``: the TCP goes straight to a pose, a trapezoid of ``speed`` [m/s] and ``accel``
        [m/s^2] over its way (over its turn [rad] where it only turns).
        """

        def planned(q: Joints) -> tuple[Path, float]:
            start, end = matrix(self.pose(q)), matrix(target)
            turn = rotvec_from_rotation(start[:3, :3].T @ end[:3, :3])
            way = end[:3, 3] - start[:3, 3]
            length = max(float(np.linalg.norm(way)), float(np.linalg.norm(turn)) * _TURNS_AS_M)
            peak = min(speed, math.sqrt(length * accel))
            ramp = peak / accel
            duration = length / peak + ramp if length > 0.0 else 0.0
            near = q

            def path(t: float) -> Joints:
                nonlocal near
                if t >= duration:
                    share = 1.0
                elif t < ramp:
                    share = 0.5 * accel * t * t / length
                elif t <= duration - ramp:
                    share = peak * (t - 0.5 * ramp) / length
                else:
                    share = 1.0 - 0.5 * accel * (duration - t) ** 2 / length
                at = pose(
                    start[:3, :3] @ rotation_from_rotvec(share * turn), start[:3, 3] + share * way
                )
                near = self.joints(_vector(at), near)
                return near

            # An end that cannot be reached is refused before anything moves.
            self.joints(target, q)
            return path, duration

        return planned


def matrix(vector: RotvecPose) -> Pose:
    """``T [4, 4]`` of a pose ``[6]``."""
    return pose(rotation_from_rotvec(vector[3:]), vector[:3])


def _vector(T: Pose) -> RotvecPose:
    return np.concatenate([T[:3, 3], rotvec_from_rotation(T[:3, :3])])
