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

from robolearn.arms.compiled.forms import Norms, PathBounds, PathState
from robolearn.arms.moving_mean import window_for
from robolearn.arms.shapes import Twist
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, Vector
from robolearn.shapes import AnyFloats

# Saturations act this far inside the stated limits, so rounding cannot ask for more.
_INSIDE = 0.98
# Of the acceleration, what plans that must be kept count on, and what each axis may brake with
# before a wall: all three together stay below one.
_PLANNED, _WALL = 0.7, 0.55
# Turned by more within the window of the mean [rad], neighbouring quaternions are so far apart that
# their mean keeps jerk no more (by 4 % at 3 rad and 60 rad/s^2).
_MOST_TURNED = 1.0


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
        # Compiled, and numba loaded, where one is made.
        from robolearn.arms.compiled import tool_path as compiled

        if not 1e-4 <= period_s <= 0.2:
            raise ConfigError(f"a tool's path takes a period of 0.1 to 200 ms, got {period_s:g} s")
        self.limits, self.period_s, self._compiled = limits, period_s, compiled
        # As kernels take them.
        self.bounds = _bounds(limits, period_s)
        self.state = PathState(
            now=np.zeros(compiled.WIDTH),
            goal=np.zeros(7),
            T=np.eye(4),
            twist=np.zeros(6),
            newest=np.zeros((limits.jerk_window(period_s), compiled.WIDTH)),
            next=np.zeros(1, dtype=np.int64),
        )
        self.reset(np.eye(4))

    @property
    def pose(self) -> Pose:
        """``T_frame_tip [4, 4]`` as told last."""
        return self.state.T.copy()

    @property
    def twist(self) -> Twist:
        """Speeds ``[6]`` [m/s, rad/s] in the frame's axes, as told last."""
        return self.state.twist.copy()

    @property
    def rest(self) -> Pose:
        """Where braking from now on would end ``[4, 4]``, turning about one axis."""
        return self._compiled.rest(self.bounds, self.state)

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return not (self.state.twist.any() or self.state.now[self._compiled.SPEED :].any())

    def reset(self, T: Pose, twist: Twist | None = None) -> None:
        """Go on from ``T [4, 4]``, at rest or at a ``twist [6]``; DataError if not finite."""
        self.relatch(T, np.zeros(6) if twist is None else twist)
        self.state.goal[:] = self.state.now[: len(self.state.goal)]

    def relatch(self, T: Pose, twist: Twist) -> None:
        """The tool is at ``T`` and moves by ``twist``: go on from there to the same target."""
        if not np.all(np.isfinite(T)):
            raise DataError(f"a tool's path begins at a finite pose, got {T.tolist()}")
        self._compiled.relatch(self.bounds, self.state, _own(T), _own(twist))

    def follow(self, T: Pose) -> None:
        """Lead to ``T [4, 4]`` from now on, its place to the border of the workspace."""
        self._compiled.aim(self.bounds, self.state, _own(T))

    def advance(self) -> None:
        """One period on, towards the target."""
        self._compiled.advance(self.bounds, self.state, False)

    def brake(self) -> None:
        """One period on, slowing down to rest along the motion."""
        self._compiled.advance(self.bounds, self.state, True)


def _bounds(limits: ToolPathLimits, period_s: float) -> PathBounds:
    # As in JointPath: with a = K d - D v, both poles are at p.
    p = math.exp(-limits.natural_frequency * period_s)
    return PathBounds(
        period_s=float(period_s),
        k=(1.0 - p) ** 2 / period_s,
        d=1.0 - p * p + 0.5 * (1.0 - p) ** 2,
        travel=_norms(limits.max_speed, limits.max_acceleration, period_s),
        turn=_norms(limits.max_rotation_speed, limits.max_rotation_acceleration, period_s),
        shed=_WALL * _INSIDE * limits.max_acceleration * period_s,
        low=np.array(limits.workspace_low, dtype=np.float64),
        high=np.array(limits.workspace_high, dtype=np.float64),
    )


def _norms(speed: float, acceleration: float, period_s: float) -> Norms:
    change = _INSIDE * acceleration * period_s
    return Norms(_INSIDE * speed, change, _PLANNED * change)


def _own(values: AnyFloats) -> AnyFloats:
    """Kernels are compiled for arrays in one piece that can be written to."""
    return np.array(values, dtype=np.float64, order="C")
