"""Checks what the arm does and where it is going.

:class:`FollowingCheck` and :class:`LoadCheck` look at measured states, :class:`CollisionGuard` at
set-points and at where the arm would come to rest if it braked now.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np

from hardware.devices.robot import RobotState
from hardware.shapes import Components, Limits
from robolearn.arms.collision import Capsule, CollisionModel, Plane
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import APART, CAPSULES
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError

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
        self._sent = np.zeros((max(1, round(window_s * rate_hz)), joints))
        self._next = 0

    def reset(self, q: Joints) -> None:
        """The arm stands at ``q [joints]``."""
        self._sent[:] = q

    def sent(self, q: Joints) -> None:
        """A set-point went out."""
        self._sent[self._next] = q
        self._next = (self._next + 1) % len(self._sent)

    def error(self, q: Joints) -> float:
        """Largest joint error [rad] to the nearest of the set-points."""
        return float(np.abs(self._sent - q).max(axis=1).min())


class RateGate:
    """Acceleration and jerk of consecutive set-points, by differences: the last look at them.

    ``acceleration`` and ``jerk`` are limits per component, or of the norm for a single number.
    """

    def __init__(self, acceleration: Limits, jerk: Limits | None, rate_hz: float) -> None:
        # Limits of the second and third differences of set-points.
        self._second = np.atleast_1d(_RATE_SLACK * acceleration / rate_hz**2)
        self._third = None if jerk is None else np.atleast_1d(_RATE_SLACK * jerk / rate_hz**3)
        self._rate_hz = rate_hz
        self._x, self._step, self._bend = np.zeros(0), np.zeros(0), np.zeros(0)

    def reset(self, x: Components) -> None:
        """At rest at ``x [n]``."""
        self._x, self._step, self._bend = x, np.zeros_like(x), np.zeros_like(x)

    def broken(self, x: Components) -> str:
        """What ``x [n]``, the next one, breaks; "" for nothing."""
        step = x - self._x
        bend = step - self._step
        twist = bend - self._bend
        self._x, self._step, self._bend = x, step, bend
        if _beyond(bend, self._second):
            return self._told("acceleration", bend, self._second, 2)
        if self._third is not None and _beyond(twist, self._third):
            return self._told("jerk", twist, self._third, 3)
        return ""

    def _told(self, name: str, value: Components, limit: Limits, order: int) -> str:
        scale = self._rate_hz**order
        return f"{name} {np.round(scale * value, 1)} beyond {np.round(scale * limit, 1)}"


def _beyond(value: Components, limit: Limits) -> bool:
    if limit.size == 1:
        return not math.hypot(*value.tolist()) <= float(limit[0])
    return not bool((np.abs(value) <= limit).all())


class Overrun:
    """How long a value has been above its limit."""

    def __init__(self, limit: float, patience_s: float) -> None:
        self.limit, self._patience_ns = limit, round(patience_s * 1e9)
        self._since_ns: int | None = None

    def over(self, value: float, now_ns: int) -> bool:
        """True once ``value`` has been above the limit for the patience; NaN is not above."""
        if not value > self.limit:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = now_ns
        return now_ns - self._since_ns >= self._patience_ns

    def reset(self) -> None:
        """Begin anew."""
        self._since_ns = None


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

    @property
    def due(self) -> bool:
        """True at every tick at which the way ahead should be checked; counts the ticks."""
        self._tick += 1
        return self._tick % self._every == 1 or self._every == 1

    def look(self, q: Joints, rest: Joints) -> tuple[Strain | None, Strain | None]:
        """:meth:`gate` of a set-point and :meth:`ahead` of where the arm would rest, at once."""
        here, there = self.model.distances_rows((q, rest)).min(axis=1, initial=np.inf).tolist()
        return (
            None if here >= self._gate else self._nearer(q, self._gate),
            None if there >= self._margin else self._nearer(rest, self._margin),
        )

    def ahead(self, rest: Joints) -> Strain | None:
        """What the arm would come too near to when it comes to rest at ``rest [dof]``."""
        return self._nearer(rest, self._margin)

    def gate(self, q: Joints) -> Strain | None:
        """The same for a set-point, with the smaller limit."""
        return self._nearer(q, self._gate)

    def _nearer(self, q: Joints, limit: float) -> Strain | None:
        if self.model.distance(q) >= limit:
            return None
        found = self.model.clearance(q)
        return Strain(f"{found.between[0]} to {found.between[1]} [m]", found.distance_m, limit)
