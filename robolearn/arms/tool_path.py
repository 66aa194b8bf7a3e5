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

from robolearn.arms.moving_mean import MovingMean, window_for
from robolearn.arms.shapes import Twist
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, Vector, quat_from_rotation

# Plain numbers: at this size numpy's calls take several times as long.
_Vec = tuple[float, float, float]
_Quat = tuple[float, float, float, float]
_NONE: _Vec = (0.0, 0.0, 0.0)
# Saturations act this far inside the stated limits, so rounding cannot ask for more.
_INSIDE = 0.98
# Of the acceleration, what plans that must be kept count on, and what each axis may brake with
# before a wall: all three together stay below one.
_PLANNED, _WALL = 0.7, 0.55
# Turned by more within the window of the mean [rad], neighbouring quaternions are so far apart that
# their mean keeps jerk no more (by 4 % at 3 rad and 60 rad/s^2).
_MOST_TURNED = 1.0
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
    # Of the tool [rad/s^3]; null for none. Costs as max_jerk does; of both the longer delay counts,
    # for travel and turning alike, so that neither runs ahead.
    max_rotation_jerk: float | None = None
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
        periods = self.jerk_window(0.01)
        turned = 0.01 * periods * self.max_rotation_speed
        if self.max_rotation_jerk is not None and turned > _MOST_TURNED:
            raise ConfigError(
                f"tool limits: max_rotation_jerk {self.max_rotation_jerk:g} cannot be kept: at"
                f" {self.max_rotation_speed:g} rad/s the tool turns by {turned:.2f} rad (at most"
                f" {_MOST_TURNED:g}) in the {0.01 * periods:.2f} s that are averaged over; lower"
                " max_rotation_speed or the accelerations, or raise the jerks"
            )
        low, high = self.workspace_low, self.workspace_high
        if not all(a < b for a, b in zip(low, high, strict=True)):
            raise ConfigError(
                f"tool limits: workspace_low {low} must be below workspace_high {high}"
            )

    def jerk_window(self, period_s: float) -> int:
        """Periods that the path is averaged over, so that both limits on jerk hold; 1 for none."""
        return max(
            window_for(self.max_acceleration, self.max_jerk, period_s),
            window_for(self.max_rotation_acceleration, self.max_rotation_jerk, period_s),
        )

    def outside(self, place: Vector) -> float:
        """How far a place ``[3]`` [m] is outside the workspace, along the worst axis."""
        (a, b, c), (x, y, z), (d, e, f) = self.workspace_low, place.tolist(), self.workspace_high
        return max(a - x, x - d, b - y, y - e, c - z, z - f, 0.0)


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
        # An axis that brakes before a wall sheds so much speed per period.
        self._shed = _WALL * _INSIDE * limits.max_acceleration * period_s
        self._p, self._v, self._w = _NONE, _NONE, _NONE
        self._quat: _Quat = (1.0, 0.0, 0.0, 0.0)
        self._goal, self._goal_quat = _NONE, self._quat
        window = limits.jerk_window(period_s)
        self._mean = MovingMean(window, 13) if window > 1 else None
        self._sent_T, self._sent_v, self._moves = np.eye(4), np.zeros(6), False

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
        place = _sum(self._p, _times(0.5 * self._travel.stop_time(self._v), self._v))
        return _matrix(place, _turned(self._quat, self._w, 0.5 * self._turn.stop_time(self._w)))

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return not self._moves

    def reset(self, T: Pose, twist: Twist | None = None) -> None:
        """Go on from ``T [4, 4]``, at rest or at a ``twist [6]``; DataError if not finite."""
        if not np.all(np.isfinite(T)):
            raise DataError(f"a tool's path begins at a finite pose, got {T.tolist()}")
        self._p, self._quat = _place(T), _facing(T)
        self._v = self._w = _NONE
        if twist is not None:
            vx, vy, vz, wx, wy, wz = twist.tolist()
            self._v, self._w = self._travel.cut((vx, vy, vz)), self._turn.cut((wx, wy, wz))
        self._goal, self._goal_quat = self._p, self._quat
        if self._mean is not None:
            self._mean.reset(np.array((*self._p, *self._quat, *self._v, *self._w)))
        self._sent_T, self._sent_v = T.copy(), np.array((*self._v, *self._w))
        self._moves = any((*self._v, *self._w))

    def relatch(self, T: Pose, twist: Twist) -> None:
        """The tool is at ``T`` and moves by ``twist``: go on from there to the same target."""
        goal, facing = self._goal, self._goal_quat
        self.reset(T, twist)
        self._goal, self._goal_quat = goal, facing

    def follow(self, T: Pose) -> None:
        """Lead to ``T [4, 4]`` from now on, its place to the border of the workspace."""
        low, high = self.limits.workspace_low, self.limits.workspace_high
        x, y, z = (min(max(v, a), b) for a, v, b in zip(low, _place(T), high, strict=True))
        self._goal, self._goal_quat = (x, y, z), _facing(T)

    def advance(self) -> None:
        """One period on, towards the target."""
        turn = _between(self._quat, self._goal_quat)
        angle = math.hypot(*turn)
        if angle > _HALF_TURN and _dot(turn, self._w) < 0.0:
            turn = _times(1.0 - 2.0 * math.pi / angle, turn)
        ahead = _sum(self._goal, _times(-1.0, self._p))
        self._to(self._law(ahead, self._v, self._travel), self._law(turn, self._w, self._turn))

    def brake(self) -> None:
        """One period on, slowing down to rest along the motion."""
        self._to(self._travel.braked(self._v), self._turn.braked(self._w))

    def _law(self, ahead: _Vec, v: _Vec, bounds: _Bounds) -> _Vec:
        """Speed after the period: the law, then what still stops at the target, then the limits."""
        wish = _sum(_times(1.0 - self._d, v), _times(self._k, ahead))
        distance = math.hypot(*ahead)
        if distance > 1e-9:
            along = _times(1.0 / distance, ahead)
            excess = _dot(wish, along) - bounds.stopping(distance, _dot(v, along))
            if excess > 0.0:
                wish = _sum(wish, _times(-excess, along))
        return bounds.reached(v, bounds.cut(wish))

    def _to(self, v: _Vec, w: _Vec) -> None:
        v = self._before_walls(v)
        half = 0.5 * self.period_s
        self._p = _sum(self._p, _times(half, _sum(self._v, v)))
        self._quat = _turned(self._quat, _sum(self._w, w), half)
        self._v, self._w = v, w
        self._moves = any((*v, *w))
        if self._mean is None:
            self._sent_T, self._sent_v = _matrix(self._p, self._quat), np.array((*v, *w))
            return
        # Quaternions of neighbours are neighbours: their mean, at length 1, is the rotations'.
        row = self._mean.add(np.array((*self._p, *self._quat, *v, *w)))
        x, y, z, a, b, c, d = row[:7].tolist()
        self._sent_T, self._sent_v = _matrix((x, y, z), _unit((a, b, c, d))), row[7:]
        self._moves = self._moves or bool(self._sent_v.any())

    def _before_walls(self, v: _Vec) -> _Vec:
        """Each axis stays able to stop before the border; the others' change shrinks for it."""
        low, high, shed, T = (
            *(self.limits.workspace_low, self.limits.workspace_high),
            *(self._shed, self.period_s),
        )
        kept = [
            max(min(wish, _stop_speed(b - p, was, shed, T)), -_stop_speed(p - a, -was, shed, T))
            for a, p, b, was, wish in zip(low, self._p, high, self._v, v, strict=True)
        ]
        held = [k != w for k, w in zip(kept, v, strict=True)]
        if not any(held):
            return v
        change = [k - n for k, n in zip(kept, self._v, strict=True)]
        taken = sum(c * c for c, h in zip(change, held, strict=True) if h)
        free = sum(c * c for c, h in zip(change, held, strict=True) if not h)
        room = max(0.0, self._travel.change**2 - taken)
        share = 1.0 if free <= room else math.sqrt(room / free)
        x, y, z = (
            k if h else n + share * c
            for k, n, c, h in zip(kept, self._v, change, held, strict=True)
        )
        return (x, y, z)


class _Bounds:
    """Speed, and change of speed per period, of a vector: norms."""

    def __init__(self, speed: float, acceleration: float, period_s: float) -> None:
        self.speed = _INSIDE * speed
        self.change = _INSIDE * acceleration * period_s
        self._brake = _PLANNED * self.change
        self._period_s = period_s

    def cut(self, v: _Vec) -> _Vec:
        """Within the speed."""
        size = math.hypot(*v)
        return v if size <= self.speed else _times(self.speed / size, v)

    def reached(self, v: _Vec, wish: _Vec) -> _Vec:
        """From ``v`` as far to ``wish`` as one period leads."""
        change = _sum(wish, _times(-1.0, v))
        size = math.hypot(*change)
        return wish if size <= self.change else _sum(v, _times(self.change / size, change))

    def braked(self, v: _Vec) -> _Vec:
        """After one period of braking; zeros at the end."""
        size = math.hypot(*v)
        return _times(1.0 - self._brake / size, v) if size > self._brake else _NONE

    def stopping(self, distance: float, v: float) -> float:
        """Largest speed after the period from which ``distance`` suffices to stop."""
        return _stop_speed(distance, v, self._brake, self._period_s)

    def stop_time(self, v: _Vec) -> float:
        """How long braking takes [s]."""
        return math.hypot(*v) / self._brake * self._period_s


def _stop_speed(distance: float, v: float, shed: float, period_s: float) -> float:
    """Solves ``w^2 / (2 a) = distance - T (v + w) / 2`` for ``a = shed / T``; where that is too
    late already, what brakes hardest.
    """
    left = distance - 0.5 * period_s * v
    if left <= 0.0:
        return max(0.0, v - shed)
    return shed * (math.sqrt(0.25 + 2.0 * left / (shed * period_s)) - 0.5)


def _sum(a: _Vec, b: _Vec) -> _Vec:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _times(s: float, v: _Vec) -> _Vec:
    return s * v[0], s * v[1], s * v[2]


def _dot(a: _Vec, b: _Vec) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _place(T: Pose) -> _Vec:
    x, y, z = T[:3, 3].tolist()
    return x, y, z


def _facing(T: Pose) -> _Quat:
    w, x, y, z = quat_from_rotation(T[:3, :3]).tolist()
    return w, x, y, z


def _unit(q: _Quat) -> _Quat:
    size = math.hypot(*q)
    return q[0] / size, q[1] / size, q[2] / size, q[3] / size


def _turned(q: _Quat, w: _Vec, time_s: float) -> _Quat:
    """``q`` after turning by ``w`` [rad/s] for a time, at length 1."""
    speed = math.hypot(*w)
    half = 0.5 * speed * time_s
    s = math.sin(half) / speed if speed > 1e-12 else 0.5 * time_s
    return _unit(_product((math.cos(half), s * w[0], s * w[1], s * w[2]), q))


def _between(q: _Quat, goal: _Quat) -> _Vec:
    """Rotation vector that leads from ``q`` to ``goal``, the shorter way."""
    w, x, y, z = _product(goal, (q[0], -q[1], -q[2], -q[3]))
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.hypot(x, y, z)
    scale = 2.0 * math.atan2(sine, w) / sine if sine > 1e-12 else 2.0
    return scale * x, scale * y, scale * z


def _product(a: _Quat, b: _Quat) -> _Quat:
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def _matrix(at: _Vec, q: _Quat) -> Pose:
    w, x, y, z = q
    return np.array(
        (
            (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y), at[0]),
            (2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x), at[1]),
            (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y), at[2]),
            (0.0, 0.0, 0.0, 1.0),
        )
    )
