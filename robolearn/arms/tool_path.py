"""Limits a tool's way through space: the pure limiter between poses that are wanted and followed.

One call per servo period. Position and orientation each follow their target by a critically damped
law with both poles at ``exp(-natural_frequency * period)`` (as ``robolearn/arms/joint_path.py``),
on straight lines where nothing holds them: saturations on speed and acceleration are those of
norms, and the tool can always stop before the border of its workspace. Acceleration is constant
within a period, so the path is C1; with a limit on jerk it is C2, by a moving mean.

It knows no arm. Whoever follows it and cannot keep up says so (:meth:`ToolPath.relatch`), and the
path goes on from where the tool is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robolearn.arms.kinematics import pose_difference
from robolearn.arms.moving_mean import MovingMean, window_for
from robolearn.arms.shapes import Twist
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, Vector, quat_from_rotation, rotation_from_quat
from robolearn.geometry import rotation_from_rotvec as turned

# Saturations act this far inside the stated limits, so rounding cannot ask for more.
_INSIDE = 0.98
# Of the acceleration, what plans that must be kept count on, and what each axis may brake with
# before a wall: all three together stay below one.
_PLANNED, _WALL = 0.7, 0.55
# Beyond this angle the shorter way round may change between two ticks; the one begun is kept.
_HALF_TURN = math.pi - 0.1


@dataclass(frozen=True, slots=True)
class ToolPathLimits:
    """Limits of a tool that moves through space, and of the joints that carry it."""

    # Box that the tip stays in, in the frame of its poses [m].
    workspace_low: tuple[float, float, float]
    workspace_high: tuple[float, float, float]
    # Of the tip [m/s]; the default is "reduced speed" (ISO 10218-1).
    max_speed: float = 0.25
    # Of the tip [m/s^2].
    max_acceleration: float = 1.0
    # Of the tip [m/s^3]; null for none. Costs a delay of acceleration / jerk [s].
    max_jerk: float | None = None
    # Of the tool [rad/s].
    max_rotation_speed: float = 0.6
    # Of the tool [rad/s^2].
    max_rotation_acceleration: float = 3.0
    # [rad/s] of the critically damped law; the tool lags about 2 / natural_frequency.
    natural_frequency: float = 20.0
    # Of every joint [rad/s].
    max_joint_speed: float = 1.0
    # Of every joint [rad/s^2].
    max_joint_acceleration: float = 10.0
    # Kept from the arm's position limits [rad].
    joint_margin: float = 0.1
    # Around the workspace: the last check of a set-point allows for so much [m].
    workspace_margin: float = 0.01

    def __post_init__(self) -> None:
        positive = (
            *("max_speed", "max_acceleration", "max_rotation_speed", "max_rotation_acceleration"),
            *("natural_frequency", "max_joint_speed", "max_joint_acceleration"),
        )
        for name in positive:
            value = float(getattr(self, name))
            if not 0.0 < value < math.inf:
                raise ConfigError(f"tool limits: {name} must be positive and finite, got {value}")
        for name in ("joint_margin", "workspace_margin"):
            value = float(getattr(self, name))
            if not 0.0 <= value < math.inf:
                raise ConfigError(f"tool limits: {name} must not be negative, got {value}")
        window_for(self.max_acceleration, self.max_jerk, 0.01)
        low, high = self.workspace_low, self.workspace_high
        if not all(a < b for a, b in zip(low, high, strict=True)):
            raise ConfigError(
                f"tool limits: workspace_low {low} must be below workspace_high {high}"
            )

    def outside(self, place: Vector) -> float:
        """How far a place ``[3]`` [m] is outside the workspace, along the worst axis."""
        return float(
            max(
                max(low - v, v - high, 0.0)
                for low, v, high in zip(
                    self.workspace_low, place.tolist(), self.workspace_high, strict=True
                )
            )
        )


class ToolPath:
    """State of the commanded path: pose and twist at the last tick. Not thread-safe."""

    def __init__(self, limits: ToolPathLimits, period_s: float) -> None:
        if not 1e-4 <= period_s <= 0.2:
            raise ConfigError(f"a tool's path takes a period of 0.1 to 200 ms, got {period_s:g} s")
        self.limits, self.period_s = limits, period_s
        # As in JointPath: with a = K d - D v, both poles are at p.
        p = math.exp(-limits.natural_frequency * period_s)
        self._k = (1.0 - p) ** 2 / period_s
        self._d = 1.0 - p * p + 0.5 * (1.0 - p) ** 2
        self._travel = _Bounds(limits.max_speed, limits.max_acceleration, period_s)
        self._turn = _Bounds(limits.max_rotation_speed, limits.max_rotation_acceleration, period_s)
        self._low, self._high = np.array(limits.workspace_low), np.array(limits.workspace_high)
        # An axis that brakes before a wall sheds so much speed per period.
        self._shed = _WALL * _INSIDE * limits.max_acceleration * period_s
        self._p, self._v, self._w = np.zeros(3), np.zeros(3), np.zeros(3)
        self._quat = np.array((1.0, 0.0, 0.0, 0.0))
        self._R = np.eye(3)
        self._goal = np.eye(4)
        window = window_for(limits.max_acceleration, limits.max_jerk, period_s)
        self._mean = MovingMean(window, 13) if window > 1 else None
        self._sent_T, self._sent_v = np.eye(4), np.zeros(6)

    @property
    def pose(self) -> Pose:
        """``T_frame_tip [4, 4]`` as told last."""
        return self._sent_T

    @property
    def twist(self) -> Twist:
        """Speeds ``[6]`` [m/s, rad/s] in the frame's axes, as told last."""
        return self._sent_v

    @property
    def rest(self) -> Pose:
        """Where braking from now on would end ``[4, 4]``, turning about one axis."""
        out = np.eye(4)
        out[:3, 3] = self._p + self._travel.stop_time(self._v) * 0.5 * self._v
        out[:3, :3] = turned(0.5 * self._turn.stop_time(self._w) * self._w).dot(self._R)
        return out

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return not (self._v.any() or self._w.any() or self._sent_v.any())

    def reset(self, T: Pose, twist: Twist | None = None) -> None:
        """Go on from ``T [4, 4]``, at rest or at a ``twist [6]``; DataError if not finite."""
        if not np.all(np.isfinite(T)):
            raise DataError(f"a tool's path begins at a finite pose, got {T.tolist()}")
        self._p, self._R = T[:3, 3].copy(), T[:3, :3].copy()
        self._quat = quat_from_rotation(self._R)
        speeds = np.zeros(6) if twist is None else twist
        self._v, self._w = self._travel.cut(speeds[:3]), self._turn.cut(speeds[3:])
        self._goal = T.copy()
        self._sent_T, self._sent_v = T.copy(), np.concatenate([self._v, self._w])
        if self._mean is not None:
            self._mean.reset(np.concatenate([self._p, self._quat, self._sent_v]))

    def relatch(self, T: Pose, twist: Twist) -> None:
        """The tool is at ``T`` and moves by ``twist``: go on from there to the same target."""
        goal = self._goal
        self.reset(T, twist)
        self._goal = goal

    def follow(self, T: Pose) -> None:
        """Lead to ``T [4, 4]`` from now on, its place to the border of the workspace."""
        self._goal = T.copy()
        self._goal[:3, 3] = np.minimum(np.maximum(T[:3, 3], self._low), self._high)

    def advance(self) -> None:
        """One period on, towards the target."""
        ahead = pose_difference(self._goal, self._now())
        turn = ahead[3:]
        angle = math.hypot(*turn.tolist())
        if angle > _HALF_TURN and float(turn.dot(self._w)) < 0.0:
            turn = turn * (1.0 - 2.0 * math.pi / angle)
        self._to(self._law(ahead[:3], self._v, self._travel), self._law(turn, self._w, self._turn))

    def brake(self) -> None:
        """One period on, slowing down to rest along the motion."""
        self._to(self._travel.braked(self._v), self._turn.braked(self._w))

    def _now(self) -> Pose:
        out = np.eye(4)
        out[:3, :3], out[:3, 3] = self._R, self._p
        return out

    def _law(self, ahead: Vector, v: Vector, bounds: _Bounds) -> Vector:
        """Speed after the period: the law, then what still stops at the target, then the limits."""
        wish = v + self._k * ahead - self._d * v
        distance = math.hypot(*ahead.tolist())
        if distance > 1e-9:
            along = ahead / distance
            excess = float(wish.dot(along)) - bounds.stopping(distance, float(v.dot(along)))
            if excess > 0.0:
                wish = wish - excess * along
        return bounds.reached(v, bounds.cut(wish))

    def _to(self, v: Vector, w: Vector) -> None:
        v = self._before_walls(v)
        self._p = self._p + 0.5 * self.period_s * (self._v + v)
        turn = 0.5 * self.period_s * (self._w + w)
        self._R = turned(turn).dot(self._R)
        self._v, self._w = v, w
        quat = quat_from_rotation(self._R)
        # Of the two that mean the same, the one beside the last.
        self._quat = quat if float(quat.dot(self._quat)) >= 0.0 else -quat
        # Rounding adds up; the quaternion is of length 1.
        self._R = rotation_from_quat(self._quat)
        row = np.concatenate([self._p, self._quat, v, w])
        if self._mean is not None:
            row = self._mean.add(row)
        self._sent_T = np.eye(4)
        self._sent_T[:3, :3] = rotation_from_quat(row[3:7])
        self._sent_T[:3, 3] = row[:3]
        self._sent_v = row[7:]

    def _before_walls(self, v: Vector) -> Vector:
        """Each axis stays able to stop before the border; the others' change shrinks for it."""
        now, wished = self._v.tolist(), v.tolist()
        kept = [
            max(
                min(wish, _stop_speed(high - p, was, self._shed, self.period_s)),
                -_stop_speed(p - low, -was, self._shed, self.period_s),
            )
            for p, was, wish, low, high in zip(
                self._p.tolist(), now, wished, self._low.tolist(), self._high.tolist(), strict=True
            )
        ]
        if kept == wished:
            return v
        change = [k - n for k, n in zip(kept, now, strict=True)]
        held = [k != w for k, w in zip(kept, wished, strict=True)]
        taken = sum(c * c for c, h in zip(change, held, strict=True) if h)
        free = sum(c * c for c, h in zip(change, held, strict=True) if not h)
        room = max(0.0, self._travel.change**2 - taken)
        share = 1.0 if free <= room else math.sqrt(room / free)
        return np.array(
            [k if h else n + share * c for k, n, c, h in zip(kept, now, change, held, strict=True)]
        )


class _Bounds:
    """Speed, and change of speed per period, of a vector: norms."""

    def __init__(self, speed: float, acceleration: float, period_s: float) -> None:
        self.speed = _INSIDE * speed
        self.change = _INSIDE * acceleration * period_s
        self._brake = _PLANNED * self.change
        self._period_s = period_s

    def cut(self, v: Vector) -> Vector:
        """Within the speed."""
        size = math.hypot(*v.tolist())
        return v if size <= self.speed else v * (self.speed / size)

    def reached(self, v: Vector, wish: Vector) -> Vector:
        """From ``v`` as far to ``wish`` as one period leads."""
        change = wish - v
        size = math.hypot(*change.tolist())
        return wish if size <= self.change else v + change * (self.change / size)

    def braked(self, v: Vector) -> Vector:
        """After one period of braking; zeros at the end."""
        size = math.hypot(*v.tolist())
        return v * (1.0 - self._brake / size) if size > self._brake else np.zeros(3)

    def stopping(self, distance: float, v: float) -> float:
        """Largest speed after the period from which ``distance`` suffices to stop."""
        return _stop_speed(distance, v, self._brake, self._period_s)

    def stop_time(self, v: Vector) -> float:
        """How long braking takes [s]."""
        return math.hypot(*v.tolist()) / self._brake * self._period_s


def _stop_speed(distance: float, v: float, shed: float, period_s: float) -> float:
    """Solves ``w^2 / (2 a) = distance - T (v + w) / 2`` for ``a = shed / T``; where that is too
    late already, what brakes hardest.
    """
    left = distance - 0.5 * period_s * v
    if left <= 0.0:
        return max(0.0, v - shed)
    return shed * (math.sqrt(0.25 + 2.0 * left / (shed * period_s)) - 0.5)
