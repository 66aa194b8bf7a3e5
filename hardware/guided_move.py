"""A slow move along joint waypoints that can be paused at any time.

Each segment is a minimum-jerk polynomial (Flash and Hogan, 1985) with speed and acceleration under
the given limits; pausing slows the *time* of the move down, so the path never changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Peaks of the minimum-jerk polynomial over a unit segment: speed 15/8, acceleration 10/sqrt(3).
_PEAK_SPEED = 1.875
_PEAK_ACCELERATION = 10.0 / math.sqrt(3.0)


class GuidedMove:
    """From ``start [joints]`` through ``waypoints`` [rad], stopping at each.

    ``speed`` [rad/s] and ``acceleration`` [rad/s^2] bound every joint; a pause or a resumption
    takes ``ramp_s`` [s].
    """

    def __init__(
        self,
        start: Array,
        waypoints: Sequence[Array],
        speed: float,
        acceleration: float,
        ramp_s: float = 0.1,
    ) -> None:
        self._points = [np.array(start, dtype=np.float64), *(np.array(w) for w in waypoints)]
        self._durations = [
            _duration(b - a, speed, acceleration)
            for a, b in zip(self._points[:-1], self._points[1:], strict=True)
        ]
        self._ramp_s = ramp_s
        self._time_s = 0.0
        self._rate = 0.0

    @property
    def duration_s(self) -> float:
        """Without pauses [s]."""
        return sum(self._durations)

    @property
    def done(self) -> bool:
        """True at the last waypoint."""
        return self._time_s >= self.duration_s

    @property
    def at_rest(self) -> bool:
        """True when paused completely, or done."""
        return self._rate == 0.0 or self.done

    def step(self, dt_s: float, *, moving: bool) -> Array:
        """The next set-point ``[joints]`` [rad]; ``moving=False`` slows down to a pause."""
        change = dt_s / self._ramp_s
        goal = 1.0 if moving else 0.0
        self._rate += min(change, max(-change, goal - self._rate))
        self._time_s = min(self.duration_s, self._time_s + self._rate * dt_s)
        return self.at(self._time_s)

    def rest(self, q: Array, qd: Array) -> Array:
        """Where a pause from ``q`` [rad] at ``qd`` [rad/s] ends, to first order ``[joints]``."""
        return q + 0.5 * self._ramp_s * self._rate * qd

    def at(self, time_s: float) -> Array:
        """Set-point at a time of the move [s]."""
        left = time_s
        for a, b, duration in zip(
            self._points[:-1], self._points[1:], self._durations, strict=True
        ):
            if left < duration:
                s = left / duration
                return a + (b - a) * (s * s * s * (10.0 + s * (6.0 * s - 15.0)))
            left -= duration
        return self._points[-1].copy()

    def path(self, points: int = 40) -> list[Array]:
        """Set-points along the whole move, for checking it before it starts."""
        return [self.at(t) for t in np.linspace(0.0, self.duration_s, points).tolist()]


def _duration(step: Array, speed: float, acceleration: float) -> float:
    distance = float(np.max(np.abs(step)))
    return max(
        _PEAK_SPEED * distance / speed, math.sqrt(_PEAK_ACCELERATION * distance / acceleration)
    )
