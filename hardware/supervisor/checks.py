"""Checks what the arm does and where it is going.

:class:`FollowingCheck` and :class:`LoadCheck` look at measured states, :class:`CollisionGuard` at
set-points and at where the arm would come to rest if it braked now.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardware.devices.robot import RobotState
from hardware.shapes import Components, Limits
from robolearn.arms.collision import Capsule, CollisionModel, Plane
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import APART, CAPSULES
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError
from robolearn.timing.overrun import Overrun

log = logging.getLogger(__name__)

# Rounding must not keep an arm that rests near something from moving away.
_SLACK_M = 0.002
# The limiter keeps the limits; the blend of a start that was slightly off comes on top.
_RATE_SLACK = 1.1


class FollowingCheck:
    """Whether the measured arm is where it was told to be at some time within ``window_s`` [s].

    An arm lags behind its set-points by its servo's delay; one that is blocked, pushed or driven by
    somebody else is at none of them.
    """

    def __init__(self, joints: int, rate_hz: float, window_s: float) -> None:
        # A row per joint: what is taken over the joints then goes along whole rows, at a third of
        # the time.
        self._sent = np.zeros((joints, max(1, round(window_s * rate_hz))))
        self._next, self._newest = 0, [0.0] * joints

    def reset(self, q: Joints) -> None:
        """The arm stands at ``q [joints]``."""
        self._sent[:], self._newest = q[:, None], q.tolist()

    def sent(self, q: Joints) -> None:
        """A set-point went out."""
        self._sent[:, self._next], self._newest = q, q.tolist()
        self._next = (self._next + 1) % self._sent.shape[1]

    def error(self, q: Joints, enough: float = 0.0) -> float:
        """Largest joint error [rad] to the nearest of the set-points; to the newest of them, where
        that is not above ``enough``.
        """
        largest = 0.0
        for a, b in zip(q.tolist(), self._newest, strict=True):
            error = abs(a - b)
            largest = max(largest, error)
        if largest <= enough:
            return largest
        errors = self._sent - q[:, None]
        np.abs(errors, out=errors)
        return float(errors.max(axis=0).min())


class RateGate:
    """Acceleration and jerk of consecutive set-points, by differences: the last look at them.

    ``acceleration`` and ``jerk`` are limits per component, or of the norm for a single number.
    """

    def __init__(self, acceleration: Limits, jerk: Limits | None, rate_hz: float) -> None:
        # Compiled, and numba loaded, where one is made.
        from robolearn.arms.compiled import gates as compiled

        # Limits of the second and third differences of set-points.
        second = np.atleast_1d(_RATE_SLACK * acceleration / rate_hz**2)
        third = np.full(len(second), math.inf)
        if jerk is not None:
            third[:] = _RATE_SLACK * jerk / rate_hz**3
        self._limits, self._rate_hz, self._compiled = np.stack([second, third]), rate_hz, compiled
        self._rows = np.zeros((4, len(second)))
        # What this calls is compiled now, not in a tick.
        self.broken(np.zeros(len(second)))

    def reset(self, x: Components) -> None:
        """At rest at ``x [n]``."""
        if self._limits.shape[1] not in {1, len(x)}:
            raise ValueError(f"expected {self._limits.shape[1]} values, got {x}")
        self._rows = np.zeros((4, len(x)))
        self._rows[self._compiled.AT] = x

    def broken(self, x: Components) -> str:
        """What ``x [n]``, the next one, breaks; "" for nothing."""
        new, rows = np.array(x, dtype=np.float64), self._rows
        if new.shape != rows.shape[1:]:
            raise ValueError(f"expected {rows.shape[1]} values, as at the reset, got {x}")
        order = self._compiled.first_broken(rows, self._limits, new)
        if not order:
            return ""
        scale, name = self._rate_hz**order, "acceleration" if order == 2 else "jerk"
        made = np.round(scale * self._rows[order], 1)
        return f"{name} {made} beyond {np.round(scale * self._limits[order - 2], 1)}"


def are_finite(values: Components) -> bool:
    """Whether all of ``values [n]`` are finite numbers."""
    numbers = values.tolist()
    # Nothing makes a sum finite again; finite numbers alone may have one that is not.
    return math.isfinite(sum(numbers)) or all(map(math.isfinite, numbers))


def are_angles(q: Joints, count: int) -> bool:
    """Whether ``q`` is so many finite numbers."""
    return q.shape == (count,) and are_finite(q)


def are_same(one: Joints, two: Joints) -> bool:
    """Whether both are the same numbers; at this size lists are compared in a third of the time."""
    return one.tolist() == two.tolist()


def is_outside(values: Joints, low: Sequence[float], high: Sequence[float]) -> bool:
    """Whether one of ``values [n]`` is below ``low [n]`` or above ``high [n]``.

    In plain numbers, as all that is asked for at every tick of a supervisor: at this size numpy's
    calls take several times as long.
    """
    # A loop, as ``any`` with a generator takes twice as long here.
    for least, value, most in zip(low, values.tolist(), high, strict=True):
        if value < least or value > most:
            return True
    return False


def too_fast(q: Joints, before: Joints, dt_s: float, most: Sequence[float]) -> str:
    """The speeds of joints from ``before`` to ``q [n]`` where one is beyond ``most [n]`` [rad/s],
    "" where none is.
    """
    for a, b, limit in zip(q.tolist(), before.tolist(), most, strict=True):
        if abs(a - b) / dt_s > limit:
            speed = np.abs(q - before) / dt_s
            return f"joint speeds {np.round(speed, 2)} beyond {np.round(most, 2)} rad/s"
    return ""


@dataclass(frozen=True, slots=True)
class Strain:
    """A limit on the measured arm that was broken: its value and the limit."""

    kind: str
    value: float
    limit: float

    @property
    def text(self) -> str:
        """A few words for a person."""
        return f"{self.kind} {self.value:.3f}, limit {self.limit:.3f}"


class LoadCheck:
    """Tool force and joint load, as far as the driver reports them (NaN: it does not)."""

    def __init__(self, max_tool_force_n: float, max_load: float, patience_s: float) -> None:
        self._force = Overrun(max_tool_force_n, patience_s)
        self._load = Overrun(max_load, patience_s)

    def strain(self, state: RobotState, now_ns: int) -> Strain | None:
        """The broken limit, if one is."""
        # Both are looked at, so that both remember since when.
        force = self._force.over(state.tool_force_n, now_ns)
        load = self._load.over(state.load, now_ns)
        if force:
            return Strain("tool force [N]", state.tool_force_n, self._force.limit)
        return Strain("joint load", state.load, self._load.limit) if load else None

    def reset(self) -> None:
        """Begin anew."""
        self._force.reset()
        self._load.reset()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A capsule that stands in the cell, in the arm's base frame [m]."""

    name: str
    start: tuple[float, float, float]
    end: tuple[float, float, float]
    radius: float


@dataclass(frozen=True, slots=True)
class CollisionConfig:
    """Distances that the arm keeps to itself, the table and obstacles."""

    # The arm brakes when it would come to rest nearer than this [m].
    margin_m: float = 0.02
    # A set-point nearer than this is not sent [m].
    gate_m: float = 0.005
    # How often the way ahead is checked [s].
    period_s: float = 0.004
    # Radius of the capsule around the tool [m].
    tool_radius_m: float = 0.02
    # What stands in the cell beside the table.
    obstacles: tuple[Obstacle, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 < self.gate_m <= self.margin_m < 1.0:
            raise ConfigError(
                "collision: expected 0 < gate_m <= margin_m < 1 m, got"
                f" {self.gate_m} and {self.margin_m}"
            )
        if not (0.0 < self.period_s <= 0.02 and 0.0 < self.tool_radius_m < 0.5):
            raise ConfigError("collision: period_s must be in (0, 0.02], tool_radius_m in (0, 0.5)")

    def guard(
        self,
        arm: SerialArm,
        rate_hz: float,
        *,
        table: Plane | None = None,
        tool_length_m: float = 0.0,
        tool_touches: bool = False,
        fingers_m: float = 0.0,
    ) -> CollisionGuard | None:
        """The check of an arm that stands by a table; None for an arm without known capsules.

        ``tool_touches``: the tool works near the table, and its height is somebody else's check;
        ``fingers_m``: so does what reaches so much further than the tool.
        """
        if arm.name not in CAPSULES:
            log.warning("no capsules describe '%s': distances are not checked", arm.name)
            return None
        capsules = list(CAPSULES[arm.name])
        if tool_length_m > self.tool_radius_m:
            end = (0.0, 0.0, tool_length_m - self.tool_radius_m)
            tool = Capsule(arm.dof + 1, (0.0, 0.0, 0.0), end, self.tool_radius_m, "tool")
            capsules.append(tool)
        if fingers_m > self.tool_radius_m:
            start = (0.0, 0.0, tool_length_m)
            end = (0.0, 0.0, tool_length_m + fingers_m - self.tool_radius_m)
            capsules.append(Capsule(arm.dof + 1, start, end, self.tool_radius_m, "fingers"))
        capsules += [Capsule(0, o.start, o.end, o.radius, o.name) for o in self.obstacles]
        touching = ("tool", "fingers") if tool_touches else ("fingers",)
        model = CollisionModel(
            arm, capsules, table=table, touching=touching, apart=APART.get(arm.name, ())
        )
        return CollisionGuard(model, self, max(1, round(self.period_s * rate_hz)))


class CollisionGuard:
    """Keeps the arm apart from things; a motion that starts too near may lead away only."""

    def __init__(self, model: CollisionModel, config: CollisionConfig, every: int) -> None:
        self.model, self._config, self._every = model, config, every
        self._margin, self._gate = config.margin_m, config.gate_m
        self._tick = 0

    def begin(self, q: Joints) -> None:
        """A motion starts from rest at ``q [dof]``."""
        near = self.model.distance(q) - _SLACK_M
        self._margin, self._gate = min(self._config.margin_m, near), min(self._config.gate_m, near)
        self._tick = 0

    def tick(self) -> None:
        """A period begins. Once in so many of them the way ahead is checked, and as often the
        set-point: half of the time later, so that no period of a fast robot carries both.
        """
        self._tick = (self._tick + 1) % self._every

    @property
    def ahead_due(self) -> bool:
        """True in a period in which :meth:`ahead` should be asked."""
        return self._tick == 1 % self._every

    @property
    def gate_due(self) -> bool:
        """True in a period in which :meth:`gate` should be asked."""
        return self._tick == (1 + self._every // 2) % self._every

    def ahead(self, rest: Joints) -> Strain | None:
        """What the arm would come too near to when it comes to rest at ``rest [dof]``."""
        return self._nearer(rest, self._margin)

    def gate(self, q: Joints) -> Strain | None:
        """The same for a set-point, with the smaller limit."""
        return self._nearer(q, self._gate)

    def _nearer(self, q: Joints, limit: float) -> Strain | None:
        found = self.model.clearance(q)
        if found.distance_m >= limit:
            return None
        return Strain(f"{found.between[0]} to {found.between[1]} [m]", found.distance_m, limit)
