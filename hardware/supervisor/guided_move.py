"""Moves slowly along joint waypoints, and can be paused at any time.

Each segment is a minimum-jerk polynomial (Flash and Hogan, 1985) with speed and acceleration under
the given limits; pausing slows the *time* of the move down, so the path never changes (with a limit
on jerk, by less than the arm moves within its window).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from robolearn.arms.moving_mean import MovingMean, window_for
from robolearn.arms.shapes import Joints

# Peaks of the minimum-jerk polynomial over a unit segment: speed 15/8, acceleration 10/sqrt(3).
_PEAK_SPEED = 1.875
_PEAK_ACCELERATION = 10.0 / math.sqrt(3.0)
_PEAK_JERK = 60.0
RAMP_S = 0.1


class GuidedMove:
    """From ``start [joints]`` through ``waypoints`` [rad], stopping at each.

    ``speed`` [rad/s], ``acceleration`` [rad/s^2] and, if given, ``jerk`` [rad/s^3] bound every
    joint; a pause or a resumption takes 0.1 s.
    """

    def __init__(
        self,
        start: Joints,
        waypoints: Sequence[Joints],
        speed: float,
        acceleration: float,
        jerk: float | None = None,
        period_s: float = 0.002,
    ) -> None:
        self._points = [np.array(start, dtype=np.float64), *(np.array(w) for w in waypoints)]
        self._durations = [
            _duration(b - a, speed, acceleration, jerk)
            for a, b in zip(self._points[:-1], self._points[1:], strict=True)
        ]
        self._window = window_for(pause_acceleration(speed, acceleration), jerk, period_s)
        self._mean = MovingMean(self._window, len(self._points[0]))
        self._mean.reset(self._points[0])
        self._lag_s = 0.5 * self._window * period_s if self._window > 1 else 0.0
        # Set-points since the last one that differed: the mean has arrived after a window of them.
        self._still = self._window
        self._time_s = 0.0
        self._rate = 0.0

    @property
    def duration_s(self) -> float:
        """Without pauses [s]."""
        return sum(self._durations)

    @property
    def ahead(self) -> list[Joints]:
        """The waypoints that were not reached yet, the last one at least."""
        ends = itertools.accumulate(self._durations)
        passed = sum(self._time_s >= end for end in ends)
        return self._points[1 + min(passed, len(self._durations) - 1) :]

    @property
    def done(self) -> bool:
        """True at the last waypoint."""
        return self._time_s >= self.duration_s and self._still >= self._window

    @property
    def at_rest(self) -> bool:
        """True when paused completely, or done."""
        return self.done or (self._rate == 0.0 and self._still >= self._window)

    def slow_to(self, tool_speed: float, travel: Callable[[Joints, Joints], float]) -> None:
        """Keep the tool below a speed [m/s] in every segment; ``travel`` is how far it moves
        between two set-points [m].
        """
        if math.isinf(tool_speed):
            return
        for k, (a, b) in enumerate(zip(self._points[:-1], self._points[1:], strict=True)):
            if self._durations[k] == 0.0:
                # The arm stands there already.
                continue
            rows = [a + (b - a) * _share(s) for s in np.linspace(0.0, 1.0, 41).tolist()]
            gaps = [travel(one, two) for one, two in itertools.pairwise(rows)]
            # A mean over a fortieth of the segment is a little below the highest speed.
            fastest = 1.02 * max(gaps) * 40.0 / self._durations[k]
            self._durations[k] *= max(1.0, fastest / tool_speed)

    def step(self, dt_s: float, *, moving: bool) -> Joints:
        """The next set-point ``[joints]`` [rad]; ``moving=False`` slows down to a pause."""
        change = dt_s / RAMP_S
        goal = 1.0 if moving else 0.0
        self._rate += min(change, max(-change, goal - self._rate))
        before = self._time_s
        self._time_s = min(self.duration_s, before + self._rate * dt_s)
        self._still = self._still + 1 if self._time_s == before else 1
        q = self.at(self._time_s)
        return q if self._window == 1 else self._mean.add(q)

    def rest(self, q: Joints, qd: Joints) -> Joints:
        """Where a pause from ``q`` [rad] at ``qd`` [rad/s] ends, to first order ``[joints]``."""
        return q + (0.5 * RAMP_S * self._rate + self._lag_s) * qd

    def at(self, time_s: float) -> Joints:
        """Set-point at a time of the move [s]."""
        left = time_s
        for a, b, duration in zip(
            self._points[:-1], self._points[1:], self._durations, strict=True
        ):
            if left < duration:
                return a + (b - a) * _share(left / duration)
            left -= duration
        return self._points[-1].copy()

    def path(self, points: int = 40) -> list[Joints]:
        """Set-points along the whole move, for checking it before it starts."""
        return [self.at(t) for t in np.linspace(0.0, self.duration_s, points).tolist()]


def pause_acceleration(speed: float, acceleration: float) -> float:
    """The largest acceleration [rad/s^2] of a move that is paused in the worst moment."""
    return acceleration + speed / RAMP_S


def _share(s: float) -> float:
    return s * s * s * (10.0 + s * (6.0 * s - 15.0))


def _duration(step: Joints, speed: float, acceleration: float, jerk: float | None) -> float:
    distance = float(np.max(np.abs(step)))
    return max(
        _PEAK_SPEED * distance / speed,
        math.sqrt(_PEAK_ACCELERATION * distance / acceleration),
        0.0 if jerk is None else (_PEAK_JERK * distance / jerk) ** (1.0 / 3.0),
    )
