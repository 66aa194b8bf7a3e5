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

from robolearn.arms.moving_mean import MovingMean, window_for
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
        if not (period_s > 0.0 and rows >= 1 and natural_frequency > 0.0):
            raise ConfigError(
                "a joint path needs a positive period, frequency and number of rows, got"
                f" {period_s:g} s, {natural_frequency:g} rad/s, {rows}"
            )
        self.limits, self.period_s, self._count = limits, period_s, rows
        # With x+ = x + T v + T^2 a / 2, v+ = v + T a and a = K d - D v, both poles are at p.
        p = math.exp(-natural_frequency * period_s)
        self._k = (1.0 - p) ** 2 / period_s
        self._d = 1.0 - p * p + 0.5 * (1.0 - p) ** 2
        # Plain numbers: a loop over eight joints is faster than numpy's calls at this size.
        self._joints = [
            _Joint(*row, period_s)
            for row in zip(limits.low, limits.high, limits.speed, limits.acceleration, strict=True)
        ]
        share = (np.arange(rows) + 1.0) / rows
        position = [
            np.ones(rows),
            share * period_s * (1.0 - 0.5 * share),
            0.5 * share**2 * period_s,
        ]
        speed = [np.zeros(rows), 1.0 - share, share]
        self._basis = np.concatenate([np.stack(position, 1), np.stack(speed, 1)])
        self._q: list[float] = [0.0] * len(limits.low)
        self._v: list[float] = [0.0] * len(limits.low)
        window = limits.window(period_s / rows)
        self._mean = MovingMean(window, 2 * len(limits.low)) if window > 1 else None
        self._sent = np.zeros(2 * len(limits.low))

    @property
    def q(self) -> Joints:
        """Position ``[n]`` now."""
        return np.array(self._q) if self._mean is None else self._sent[: len(self._q)].copy()

    @property
    def qd(self) -> Joints:
        """Speed ``[n]`` now."""
        return np.array(self._v) if self._mean is None else self._sent[len(self._q) :].copy()

    @property
    def rest(self) -> Joints:
        """Position ``[n]`` at which braking from now on would end."""
        v = np.array(self._v)
        return np.array(self._q) + 0.5 * v * np.abs(v) / np.array(self.limits.acceleration)

    def reset(self, q: Any) -> None:
        """Start at rest at ``q [n]``; :class:`DataError` outside the limits."""
        start = np.array(q, dtype=np.float64)
        if start.shape != (len(self._joints),) or not np.all(np.isfinite(start)):
            raise DataError(f"start: expected {len(self._joints)} finite values, got {q!r}")
        if np.any(start < self.limits.low) or np.any(start > self.limits.high):
            raise DataError(
                f"start: {np.round(start, 4).tolist()} is not within the joint limits"
                f" {self.limits.low} to {self.limits.high}"
            )
        self._q, self._v = start.tolist(), [0.0] * len(start)
        self._sent = np.concatenate([start, np.zeros(len(start))])
        if self._mean is not None:
            self._mean.reset(self._sent)

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return not any(self._v) and not self.qd.any()

    def advance(
        self, target: Sequence[float], weights: Sequence[float] = (), budget: float = math.inf
    ) -> tuple[JointRows, JointRows]:
        """Set-points and their speeds ``[rows, n]`` for the next period; row k at its end.

        With ``weights [n]`` (how far a place on the arm moves per joint angle), the weighted sum of
        the joints' speeds is kept within ``budget``, and with it the place's speed.
        """
        k, d = self._k, self._d
        share = 1.0
        if weights:
            wish = [
                min(joint.limit, abs(v + k * (goal - q) - d * v))
                for joint, q, v, goal in zip(self._joints, self._q, self._v, target, strict=True)
            ]
            share = min(1.0, budget / max(_dot(weights, wish), 1e-12))
        after = [
            joint.speed_after(q, v, goal, k, d, share)
            for joint, q, v, goal in zip(self._joints, self._q, self._v, target, strict=True)
        ]
        return self._to(self._within(after, weights, budget) if weights else after)

    def _within(self, after: list[float], weights: Sequence[float], budget: float) -> list[float]:
        """Joints gain speed only as far as the others leave them some; slowing down is free."""
        base = [
            math.copysign(min(abs(v), abs(w)), w) if v * w > 0.0 else 0.0
            for v, w in zip(self._v, after, strict=True)
        ]
        more = _dot(weights, after) - _dot(weights, base)
        left = max(0.0, budget - _dot(weights, base))
        if more <= left:
            return after
        return [b + (w - b) * left / more for b, w in zip(base, after, strict=True)]

    def drive(self, speeds: Sequence[float], share: float = 1.0) -> tuple[JointRows, JointRows]:
        """As :meth:`advance`, towards ``speeds [n]`` rather than places, of whose change at most
        ``share`` is made in this period: all joints change alike, so the motion keeps its
        direction, unless one has to stop before its limit.
        """
        for joint, v, wish in zip(self._joints, self._v, speeds, strict=True):
            share = min(share, joint.share(v, wish))
        after = [
            joint.speed_kept(q, v, v + share * (wish - v))
            for joint, q, v, wish in zip(self._joints, self._q, self._v, speeds, strict=True)
        ]
        return self._to(after)

    def brake(self) -> tuple[JointRows, JointRows]:
        """As :meth:`advance`, every joint slowing down to rest as fast as it may."""
        return self._to([j.speed_braked(v) for j, v in zip(self._joints, self._v, strict=True)])

    def _to(self, after: list[float]) -> tuple[JointRows, JointRows]:
        table = self._basis.dot(np.array((self._q, self._v, after)))
        rows, speeds = table[: self._count], table[self._count :]
        self._q, self._v = rows[-1].tolist(), after
        if self._mean is None:
            return rows, speeds
        sent = np.array([self._mean.add(row) for row in np.concatenate([rows, speeds], axis=1)])
        self._sent = sent[-1]
        return sent[:, : len(after)], sent[:, len(after) :]


def _dot(weights: Sequence[float], speeds: Sequence[float]) -> float:
    return sum(w * abs(v) for w, v in zip(weights, speeds, strict=True))


class _Joint:
    """Limits of one joint as plain numbers; ``change`` is the speed it may gain in one period."""

    __slots__ = ("_brake", "_change", "_high", "_low", "_twice", "limit")

    def __init__(
        self, low: float, high: float, speed: float, acceleration: float, period_s: float
    ) -> None:
        self._low, self._high, self.limit = low, high, speed
        self._change = acceleration * period_s
        self._brake = _INSIDE * self._change
        self._twice = 2.0 / period_s

    def speed_after(
        self, q: float, v: float, goal: float, k: float, d: float, share: float = 1.0
    ) -> float:
        """Speed at the end of the period: ``share`` of the law, then the saturations."""
        if goal > self._high:
            goal = self._high
        elif goal < self._low:
            goal = self._low
        ahead = goal - q
        wish = v + k * ahead - d * v
        if share < 1.0:
            wish = share * min(max(wish, -self.limit), self.limit)
        # Never faster than what still stops at the target, or at the limit when moving away.
        if wish > 0.0:
            wish = min(wish, self.limit, self._stop(ahead if ahead > 0.0 else self._high - q, v))
        elif wish < 0.0:
            room = self._stop(-ahead if ahead < 0.0 else q - self._low, -v)
            wish = max(wish, -self.limit, -room)
        return min(max(wish, v - self._change), v + self._change)

    def share(self, v: float, wish: float) -> float:
        """Of the change from ``v`` to ``wish`` that one period has room for."""
        change = abs(wish - v)
        return 1.0 if change <= self._brake else self._brake / change

    def speed_kept(self, q: float, v: float, wish: float) -> float:
        """``wish`` as far as the joint can still stop before its limits."""
        if wish > 0.0:
            wish = min(wish, self.limit, self._stop(self._high - q, v))
        elif wish < 0.0:
            wish = max(wish, -self.limit, -self._stop(q - self._low, -v))
        return min(max(wish, v - self._change), v + self._change)

    def speed_braked(self, v: float) -> float:
        """Speed at the end of the period when braking; 0 in the last one."""
        return math.copysign(max(0.0, abs(v) - self._brake), v)

    def _stop(self, distance: float, v: float) -> float:
        """Largest speed after the period from which ``distance`` suffices to stop.

        The plan is a ramp to zero over whole periods: after ``w`` and ``n`` periods the joint has
        moved ``T (v + w) / 2 + n T w / 2`` with a deceleration ``w / n`` per period. The next
        period's plan may always be the rest of this one, so the bound can be kept for ever, and
        nothing overshoots inside a period.
        """
        room = self._twice * distance - v
        if room < 0.0:
            return room
        periods = math.floor(math.sqrt(0.25 + room / self._brake) - 0.5)
        return max(periods * self._brake, room / (periods + 2.0))
