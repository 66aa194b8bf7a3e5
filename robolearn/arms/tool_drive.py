"""Drives an arm's joints so that its tool follows poses: pure, for the supervisor and for scenes.

    target -> ToolPath (tool's speed, acceleration, jerk, workspace)
           -> DampedStep (singularities, joint speeds, joint margins) -> JointPath -> set-point

Where the joints cannot follow the path, the path goes on from where the tool is: nothing builds up
behind an obstacle, and a new target is followed at once.
"""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.differential import DampedStep, Limited, Singularity
from robolearn.arms.joint_path import JointLimits, JointPath
from robolearn.arms.kinematics import pose_difference
from robolearn.arms.shapes import Jacobian, Joints, Twist
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPath, ToolPathLimits
from robolearn.errors import ConfigError
from robolearn.geometry import Pose, Vector
from robolearn.geometry import rotation_from_rotvec as turned

# Speeds stay this far inside their limits.
_INSIDE = 0.98
# How fast the tool is led back onto its path [1/s].
_GAIN = 20.0
# A step is held back where it loses more than this share of its twist, and than this [m/s, rad/s].
_LOST, _LITTLE = 0.1, 0.01
# The path may be so far ahead of the tool [m], [rad].
_LEAD_M, _LEAD_RAD = 0.005, 0.03


def joint_limits(kinematics: ToolKinematics, limits: ToolPathLimits) -> JointLimits:
    """Of the joints that carry the tool: the arm's, less the margin, at most the speed told."""
    arm, margin = kinematics.arm, limits.joint_margin
    low, high = tuple(v + margin for v in arm.low), tuple(v - margin for v in arm.high)
    if any(a >= b for a, b in zip(low, high, strict=True)):
        raise ConfigError(f"joint_margin {margin:g} rad leaves nothing of the range of {arm.name}")
    speed = tuple(min(v, limits.max_joint_speed) for v in arm.max_speed)
    return JointLimits(low, high, speed, (limits.max_joint_acceleration,) * arm.dof)


class ToolDrive:
    """State of the commanded arm. Not thread-safe."""

    def __init__(
        self,
        kinematics: ToolKinematics,
        limits: ToolPathLimits,
        period_s: float,
        singularity: Singularity | None = None,
    ) -> None:
        self.kinematics, self.limits, self.period_s = kinematics, limits, period_s
        own = joint_limits(kinematics, limits)
        self.path = ToolPath(limits, period_s)
        self._joints = JointPath(own, period_s, 1, limits.natural_frequency)
        self._step = DampedStep(
            *(own.low, own.high, own.speed, own.acceleration),
            tool_acceleration=(limits.max_acceleration, limits.max_rotation_acceleration),
            singularity=singularity,
        )
        self._change = limits.max_acceleration * period_s
        self._turn = limits.max_rotation_acceleration * period_s
        self._jacobian = np.zeros((6, kinematics.arm.dof))
        self._inverse = np.zeros((kinematics.arm.dof, 6))
        self._parked = True
        # What held the tool back in the newest period, the share of its motion that was left, and
        # how near to a singularity it was.
        self.limited, self.share, self.smallest = Limited.NONE, 1.0, math.inf

    @property
    def q(self) -> Joints:
        """Joint positions ``[dof]`` [rad] of the newest set-point."""
        return self._joints.q

    @property
    def qd(self) -> Joints:
        """Joint speeds ``[dof]`` [rad/s] of the newest set-point."""
        return self._joints.qd

    @property
    def damped(self) -> float:
        """Below this smallest singular value motions are damped."""
        return self._step.singularity.damped

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return self._joints.still

    def reset(self, q: Joints) -> None:
        """At rest at ``q [dof]``; DataError outside the joints' limits."""
        self._joints.reset(q)
        T, self._jacobian = self.kinematics.pose_jacobian(q)
        self.path.reset(T)
        self._inverse = np.zeros((self.kinematics.arm.dof, 6))
        self._parked = True
        self.limited = Limited.NONE

    def follow(self, T: Pose) -> None:
        """Lead the tip to ``T [4, 4]`` in the frame from now on."""
        self.path.follow(T)

    def advance(self) -> Joints:
        """The next set-point ``[dof]``, one period on."""
        T, J, ahead = self._look()
        if self._parked:
            self.path.relatch(T, np.zeros(6))
            self._parked, ahead = False, np.zeros(6)
        self.path.advance()
        return self._drive(J, self.path.twist + _GAIN * ahead)

    def brake(self) -> Joints:
        """As :meth:`advance`, slowing down to rest along the motion."""
        if self._parked:
            return self._joints.q
        _, J, ahead = self._look()
        self.path.brake()
        if not self.path.still:
            return self._drive(J, self.path.twist + _GAIN * ahead)
        # What is left of the lead is let go of.
        q = self._drive(J, np.zeros(6))
        self._parked = self._joints.still
        return q

    def rest(self, q: Joints) -> Joints:
        """Where braking from the newest set-point ``q`` ends, to first order ``[dof]``."""
        return q + self._inverse.dot(pose_difference(self.path.rest, self.kinematics.pose(q)))

    def _look(self) -> tuple[Pose, Jacobian, Twist]:
        """Tip and Jacobian now, and how far the path is ahead."""
        T, J = self.kinematics.pose_jacobian(self._joints.q)
        ahead = pose_difference(self.path.pose, T)
        x, y, z, a, b, c = ahead.tolist()
        lead, turn = math.hypot(x, y, z), math.hypot(a, b, c)
        if lead > _LEAD_M or turn > _LEAD_RAD:
            ahead[:3] *= min(1.0, _LEAD_M / max(lead, 1e-9))
            ahead[3:] *= min(1.0, _LEAD_RAD / max(turn, 1e-9))
            at = np.eye(4)
            at[:3, :3], at[:3, 3] = turned(ahead[3:]).dot(T[:3, :3]), T[:3, 3] + ahead[:3]
            self.path.relatch(at, J.dot(self._joints.qd))
        return T, J, ahead

    def _drive(self, J: Jacobian, twist: Twist) -> Joints:
        limits, qd = self.limits, self._joints.qd
        resting = not any(twist.tolist())
        _cut(twist[:3], _INSIDE * limits.max_speed)
        _cut(twist[3:], _INSIDE * limits.max_rotation_speed)
        # What the tool's speed changes by in a period because the arm's shape does.
        bend = (J - self._jacobian).dot(qd)
        self._jacobian = J
        asked = twist - bend
        step = self._step.speeds(self._joints.q, J, asked)
        self._inverse, self.smallest = step.inverse, step.smallest
        wish = np.zeros_like(qd) if resting else step.qd
        # Near a singularity the tool moves otherwise than it was asked to, but no faster.
        made = J.dot(wish)
        self.limited = self._limited(step.limited, asked, made)
        kept = min(
            _slower(made[:3], limits.max_speed), _slower(made[3:], limits.max_rotation_speed)
        )
        wish = wish if kept == 1.0 else wish * kept
        change = J.dot(wish - qd)
        share = min(
            _share(change[:3], bend[:3], self._change), _share(change[3:], bend[3:], self._turn)
        )
        return self._joints.drive(wish.tolist(), share)[0][-1].copy()

    def _limited(self, by: Limited, asked: Twist, made: Twist) -> Limited:
        """What limits a step that makes less than it was asked for; damping has no other name."""
        lost = asked - made
        lost2, asked2 = float(lost.dot(lost)), float(asked.dot(asked))
        if lost2 <= max(_LOST * _LOST * asked2, _LITTLE * _LITTLE):
            return Limited.NONE
        self.share = math.sqrt(float(made.dot(made)) / asked2)
        return by or (Limited.SINGULAR if self.smallest < self.damped else Limited.NONE)


def _slower(v: Vector, most: float) -> float:
    """Share of ``v`` that is a little below ``most``."""
    size = math.hypot(*v.tolist())
    return 1.0 if size <= _INSIDE * most else _INSIDE * most / size


def _share(change: Vector, base: Vector, most: float) -> float:
    """The largest share of ``change`` that keeps it and ``base`` within ``most`` together; where
    none does, the one that comes nearest.
    """
    a, b = float(change.dot(change)), float(change.dot(base))
    c = float(base.dot(base)) - most * most
    if a + 2.0 * b + c <= 0.0 or a < 1e-24:
        return 1.0
    inside = b * b - a * c
    return min(1.0, max(0.0, (math.sqrt(max(inside, 0.0)) - b) / a))


def _cut(v: Vector, most: float) -> None:
    """``v`` in place to that length."""
    size = math.hypot(*v.tolist())
    if size > most:
        v *= most / size
