"""Turns joint targets into servo set-points: the pure interpolator and limiter of an arm's joints.

One call per control tick gives all of the tick's set-points. Acceleration is constant within a
tick, so the path is C1; with a limit on jerk it is C2 (``robolearn/arms/moving_mean.py``). Each
joint follows its target by a critically damped law with both poles
at ``exp(-natural_frequency * period)``; saturations on acceleration, speed and position come after
it, in an order in which each can always be met. Like ``robolearn/arms/limiter.py`` it knows no
clock, no I/O and no threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.arms.compiled.forms import JointBounds, JointState
from robolearn.arms.moving_mean import window_for
from robolearn.arms.shapes import JointRows, Joints
from robolearn.errors import ConfigError, DataError

# Braking is planned with this share of the acceleration, so rounding cannot ask for more.
_INSIDE = 0.98


@dataclass(frozen=True, slots=True)
class JointLimits:
    """Limits per joint; [rad] or [m] and their derivatives."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    speed: tuple[float, ...]
    acceleration: tuple[float, ...]
    # Optional: costs a delay of acceleration / jerk.
    jerk: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        sizes = {len(self.low), len(self.high), len(self.speed), len(self.acceleration)}
        if len(sizes) != 1 or (self.jerk is not None and {len(self.jerk)} != sizes):
            raise ConfigError(f"joint limits need one value per joint each, got {self}")
        if not np.all(np.array(self.low) < np.array(self.high)):
            raise ConfigError(f"joint limits: low {self.low} must be below high {self.high}")
        rates = np.array([*self.speed, *self.acceleration])
        if not np.all(np.isfinite(rates) & (rates > 0.0)):
            raise ConfigError(f"joint limits: speed and acceleration must be positive, got {self}")
        self.window(0.01)

    def window(self, period_s: float) -> int:
        """Set-points to average over for the limit on jerk; 1 without one."""
        pairs = zip(self.acceleration, self.jerk or (), strict=False)
        return max([1, *(window_for(a, j, period_s) for a, j in pairs)])


class JointPath:
    """State of the commanded path: ``q`` and ``qd`` ``[n]`` at the last tick. Not thread-safe."""

    def __init__(
        self, limits: JointLimits, period_s: float, rows: int, natural_frequency: float
    ) -> None:
        # Compiled, and numba loaded, where one is made.
        from robolearn.arms.compiled import joints as compiled

        if not (period_s > 0.0 and rows >= 1 and natural_frequency > 0.0):
            raise ConfigError(
                "a joint path needs a positive period, frequency and number of rows, got"
                f" {period_s:g} s, {natural_frequency:g} rad/s, {rows}"
            )
        self.limits, self.period_s, self._count = limits, period_s, rows
        self._compiled, self._dof = compiled, len(limits.low)
        # As kernels take them.
        self.bounds = _bounds(limits, period_s, rows, natural_frequency)
        self.state = JointState(
            q=np.zeros(self._dof),
            qd=np.zeros(self._dof),
            sent=np.zeros(2 * self._dof),
            newest=np.zeros((limits.window(period_s / rows), 2 * self._dof)),
            next=np.zeros(1, dtype=np.int64),
        )

    def warm(self) -> None:
        """Compile what a period may call: before the first one, where each has its time."""
        start = 0.5 * (self.bounds.low + self.bounds.high)
        self._stand(start)
        self.advance(start.tolist())
        self.brake()
        self._stand(np.zeros(self._dof))

    @property
    def q(self) -> Joints:
        """Position ``[n]`` now."""
        return self.state.sent[: self._dof].copy()

    @property
    def qd(self) -> Joints:
        """Speed ``[n]`` now."""
        return self.state.sent[self._dof :].copy()

    @property
    def rest(self) -> Joints:
        """Position ``[n]`` at which braking from now on would end."""
        v = self.state.qd
        return self.state.q + 0.5 * v * np.abs(v) / np.array(self.limits.acceleration)

    def reset(self, q: Any) -> None:
        """Start at rest at ``q [n]``; :class:`DataError` outside the limits."""
        start = np.array(q, dtype=np.float64)
        if start.shape != (self._dof,) or not np.all(np.isfinite(start)):
            raise DataError(f"start: expected {self._dof} finite values, got {q!r}")
        if np.any(start < self.limits.low) or np.any(start > self.limits.high):
            raise DataError(
                f"start: {np.round(start, 4).tolist()} is not within the joint limits"
                f" {self.limits.low} to {self.limits.high}"
            )
        self._stand(start)

    def _stand(self, q: Joints) -> None:
        state = self.state
        state.q[:], state.qd[:] = q, 0.0
        state.sent[: self._dof], state.sent[self._dof :] = q, 0.0
        state.newest[:] = state.sent

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return not (self.state.qd.any() or self.state.sent[self._dof :].any())

    def advance(
        self, target: Sequence[float], weights: Sequence[float] = (), budget: float = math.inf
    ) -> tuple[JointRows, JointRows]:
        """Set-points and their speeds ``[rows, n]`` for the next period; row k at its end.

        With ``weights [n]`` (how far a place on the arm moves per joint angle), the weighted sum of
        the joints' speeds is kept within ``budget``, and with it the place's speed.
        """
        goal, weigh = self._per_joint(target), np.array(weights, dtype=np.float64)
        if len(weigh) not in (0, self._dof):
            raise ValueError(f"expected {self._dof} weights or none, got {weights}")
        table = self._compiled.advance(self.bounds, self.state, goal, weigh, float(budget))
        return table[: self._count], table[self._count :]

    def drive(self, speeds: Sequence[float], share: float = 1.0) -> tuple[JointRows, JointRows]:
        """As :meth:`advance`, towards ``speeds [n]`` rather than places, of whose change at most
        ``share`` is made in this period: all joints change alike, so the motion keeps its
        direction, unless one has to stop before its limit.
        """
        wish = self._per_joint(speeds)
        table = self._compiled.drive(self.bounds, self.state, wish, float(share))
        return table[: self._count], table[self._count :]

    def brake(self) -> tuple[JointRows, JointRows]:
        """As :meth:`advance`, every joint slowing down to rest as fast as it may."""
        table = self._compiled.brake(self.bounds, self.state)
        return table[: self._count], table[self._count :]

    def _per_joint(self, values: Sequence[float]) -> Joints:
        out = np.array(values, dtype=np.float64)
        if out.shape != (self._dof,):
            raise ValueError(f"expected {self._dof} values, one per joint, got {values}")
        return out


def _bounds(
    limits: JointLimits, period_s: float, rows: int, natural_frequency: float
) -> JointBounds:
    # With x+ = x + T v + T^2 a / 2, v+ = v + T a and a = K d - D v, both poles are at p.
    p = math.exp(-natural_frequency * period_s)
    low, high, speed, acceleration = (
        np.array(v, dtype=np.float64)
        for v in (limits.low, limits.high, limits.speed, limits.acceleration)
    )
    share = (np.arange(rows) + 1.0) / rows
    position = (np.ones(rows), share * period_s * (1.0 - 0.5 * share), 0.5 * share**2 * period_s)
    ends = (np.zeros(rows), 1.0 - share, share)
    return JointBounds(
        low,
        high,
        speed,
        change=acceleration * period_s,
        brake=_INSIDE * (acceleration * period_s),
        period_s=float(period_s),
        k=(1.0 - p) ** 2 / period_s,
        d=1.0 - p * p + 0.5 * (1.0 - p) ** 2,
        basis=np.concatenate([np.stack(position, 1), np.stack(ends, 1)]),
    )
