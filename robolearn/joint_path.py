"""Joint targets in, servo set-points out: the pure interpolator and limiter of an arm's joints.

One call per control tick gives all of the tick's set-points. Acceleration is constant within a
tick, so the path is C1. Each joint follows its target by a critically damped law with both poles
at ``exp(-natural_frequency * period)``; saturations on acceleration, speed and position come after
it, in an order in which each can always be met. Like ``robolearn/limiter.py`` it knows no clock,
no I/O and no threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import ConfigError, DataError

Array = NDArray[np.float64]

# Braking is planned with this share of the acceleration, so rounding cannot ask for more.
_INSIDE = 0.98


@dataclass(frozen=True, slots=True)
class JointLimits:
    """Limits per joint; [rad] or [m] and their derivatives."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    speed: tuple[float, ...]
    acceleration: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = {len(self.low), len(self.high), len(self.speed), len(self.acceleration)}
        if len(sizes) != 1:
            raise ConfigError(f"joint limits need one value per joint each, got {self}")
        if not np.all(np.array(self.low) < np.array(self.high)):
            raise ConfigError(f"joint limits: low {self.low} must be below high {self.high}")
        rates = np.array([*self.speed, *self.acceleration])
        if not np.all(np.isfinite(rates) & (rates > 0.0)):
            raise ConfigError(f"joint limits: speed and acceleration must be positive, got {self}")


class JointPath:
    """State of the commanded path: ``q`` and ``qd`` ``[n]`` at the last tick. Not thread-safe."""

    def __init__(
        self, limits: JointLimits, period_s: float, rows: int, natural_frequency: float
    ) -> None:
        if not (period_s > 0.0 and rows >= 1 and natural_frequency > 0.0):
            raise ConfigError(
                "a joint path needs a positive period, frequency and number of rows, got"
                f" {period_s:g} s, {natural_frequency:g} rad/s, {rows}"
            )
        self.limits, self.period_s = limits, period_s
        self._low, self._high = np.array(limits.low), np.array(limits.high)
        self._speed = np.array(limits.speed)
        self._change = np.array(limits.acceleration) * period_s
        self._brake = _INSIDE * self._change
        # With x+ = x + T v + T^2 a / 2, v+ = v + T a and a = K d - D v, both poles are at p.
        p = math.exp(-natural_frequency * period_s)
        self._k = (1.0 - p) ** 2 / period_s
        self._d = 1.0 - p * p + 0.5 * (1.0 - p) ** 2
        share = (np.arange(rows) + 1.0) / rows
        self._at_position = np.stack(
            [np.ones(rows), share * period_s * (1.0 - 0.5 * share), 0.5 * share**2 * period_s], 1
        )
        self._at_speed = np.stack([np.zeros(rows), 1.0 - share, share], 1)
        self.q = np.zeros(len(limits.low))
        self.qd = np.zeros(len(limits.low))

    def reset(self, q: Any) -> None:
        """Start at rest at ``q [n]``; :class:`DataError` outside the limits."""
        start = np.array(q, dtype=np.float64)
        if start.shape != self._low.shape or not np.all(np.isfinite(start)):
            raise DataError(f"start: expected {len(self._low)} finite values, got {q!r}")
        if np.any(start < self._low) or np.any(start > self._high):
            raise DataError(
                f"start: {np.round(start, 4).tolist()} is not within the joint limits"
                f" {self.limits.low} to {self.limits.high}"
            )
        self.q, self.qd = start, np.zeros_like(start)

    def advance(self, target: Array) -> tuple[Array, Array]:
        """Set-points and their speeds ``[rows, n]`` for the next period; row k at its end."""
        q, v = self.q, self.qd
        goal = np.minimum(np.maximum(target, self._low), self._high)
        ahead = goal - q
        wish = v + self._k * ahead - self._d * v
        # Never faster than what still stops at the target, or at the limit when moving away.
        up = np.where(ahead > 0.0, ahead, self._high - q)
        down = np.where(ahead < 0.0, -ahead, q - self._low)
        wish = np.minimum(wish, np.minimum(self._stop(up, v), self._speed))
        wish = np.maximum(wish, -np.minimum(self._stop(down, -v), self._speed))
        after = np.minimum(np.maximum(wish, v - self._change), v + self._change)
        knots = np.stack([q, v, after])
        rows, speeds = self._at_position @ knots, self._at_speed @ knots
        self.q, self.qd = rows[-1], after
        return rows, speeds

    def _stop(self, distance: Array, v: Array) -> Array:
        """Largest speed after the period from which ``distance`` suffices to stop.

        The plan is a ramp to zero over whole periods: after ``w`` and ``n`` periods the joint has
        moved ``T (v + w) / 2 + n T w / 2`` with a deceleration ``w / n`` per period. The next
        period's plan may always be the rest of this one, so the bound can be kept for ever, and
        nothing overshoots inside a period.
        """
        room = 2.0 * distance / self.period_s - v
        periods = np.floor(np.sqrt(0.25 + np.maximum(room, 0.0) / self._brake) - 0.5)
        slow = np.maximum(periods * self._brake, room / (periods + 2.0))
        return np.where(room < 0.0, room, slow)
