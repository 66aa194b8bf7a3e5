"""Emulates freedrive of an arm, and the hand that guides it.

A model, not the vendor's code: in freedrive the controller carries the arm's weight, and each joint
gives way to the torque of what touches the arm against a constant damping.
"""

from __future__ import annotations

import numpy as np

from hardware.emulators.plant import Plant
from hardware.emulators.ur.motion import JointMotion
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.geometry import Pose, Vector, rotvec_from_rotation

# Per joint: torque of damping [N m s/rad] and inertia [kg m^2]; a hand of 20 N at half a metre
# moves the arm at a tenth of a metre per second.
_DAMPING, _INERTIA = 40.0, 2.0
# The hand's grip: N/m and N m/rad, and the most that it turns with [N m].
_STIFFNESS, _TURNING, _TURN_LIMIT = 1000.0, 100.0, 10.0
# The reference stays this near to the measured joints [rad]: what blocks the arm stops it.
_LEASH_RAD = 0.02


class Hand:
    """Pulls the flange to a point, keeps its orientation, with a bounded force; or lets go."""

    def __init__(self, arm: SerialArm) -> None:
        self._arm = arm
        self._goal: Pose | None = None
        self._limit_n = 0.0
        self.force = np.zeros(3)

    def pull(self, point: Vector, limit_n: float, q: Joints) -> None:
        """Towards ``point [3]`` [m] of the base frame, with at most ``limit_n`` [N], from now on;
        ``q [n]`` [rad] is how the arm is gripped.
        """
        self._goal = self._arm.fk(q)
        self._goal[:3, 3] = point
        self._limit_n = limit_n

    @property
    def gripping(self) -> bool:
        """True between :meth:`pull` and :meth:`let_go`."""
        return self._goal is not None

    def let_go(self) -> None:
        """No force any more."""
        self._goal, self.force = None, np.zeros(3)

    def torque(self, q: Joints, contact: Vector) -> Joints:
        """Of this hand and of a contact force ``[3]`` [N] at the flange ``[n]`` [N m]."""
        T, jacobian = self._arm.fk_jacobian(q)
        turn = np.zeros(3)
        if self._goal is not None:
            self.force = _bounded(_STIFFNESS * (self._goal[:3, 3] - T[:3, 3]), self._limit_n)
            turn = rotvec_from_rotation(self._goal[:3, :3] @ T[:3, :3].T)
            turn = _bounded(_TURNING * turn, _TURN_LIMIT)
        return jacobian.T @ np.concatenate([self.force + contact, turn])

    def strain(self, q: Joints) -> None:
        """Update :attr:`force` on an arm that does not give way."""
        if self._goal is not None:
            pull = self._goal[:3, 3] - self._arm.fk(q)[:3, 3]
            self.force = _bounded(_STIFFNESS * pull, self._limit_n)


class Freedrive:
    """The arm under a hand; ``motion`` is the reference that its servos follow."""

    def __init__(self, plant: Plant, motion: JointMotion, hand: Hand, dt_s: float) -> None:
        self._plant, self._motion, self._hand, self._dt_s = plant, motion, hand, dt_s

    def begin(self) -> str:
        """Why the program stops instead, or "": a thread of it that commands would go on, and what
        a real arm does then is not known.
        """
        if not self._motion.at_rest:
            return "freedrive while the program moves the arm"
        q = self._plant.joint_positions()
        self._motion.give_way(q, np.zeros_like(q))
        return ""

    def tick(self) -> None:
        """One control period: a free arm gives way, a stiff one feels the force."""
        q, motion = self._plant.joint_positions(), self._motion
        if motion.mode == "free":
            torque = self._hand.torque(q, self._plant.tool_force())
            qd = motion.qd + self._dt_s / _INERTIA * torque
            qd = qd / (1.0 + self._dt_s * _DAMPING / _INERTIA)
            ahead = np.clip(motion.q + self._dt_s * qd, q - _LEASH_RAD, q + _LEASH_RAD)
            motion.give_way(ahead, qd)
        elif self._hand.gripping:
            self._hand.strain(q)


def _bounded(vector: Vector, limit: float) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector if length <= limit else vector * (limit / length)
