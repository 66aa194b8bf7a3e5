"""Limits jerk: the mean of the newest set-points of a path that keeps all other limits.

Every bound that is convex (a box of positions, a norm of speed or acceleration) holds for a mean
if it holds for what goes in, and the acceleration of a mean over ``n`` periods changes by at most
``2 a / n`` per period. So jerk is met by construction and takes nothing from the other guarantees;
it costs half the window in delay, and the whole window more until the arm is at rest.
"""

from __future__ import annotations

import math

import numpy as np

from robolearn.errors import ConfigError
from robolearn.shapes import Floats

# A longer window would make an arm late, not smooth [s].
_LONGEST_S = 0.5


def window_for(acceleration: float, jerk: float | None, period_s: float) -> int:
    """Periods to average over so that ``jerk`` holds for a path with that acceleration; 1 for none.

    Raises ConfigError for a jerk that would take longer than half a second.
    """
    if jerk is None:
        return 1
    if not 0.0 < jerk < math.inf:
        raise ConfigError(f"jerk must be positive and finite, got {jerk}")
    window_s = 2.0 * acceleration / jerk
    if window_s > _LONGEST_S:
        raise ConfigError(
            f"a jerk of {jerk:g} with an acceleration of {acceleration:g} takes {window_s:.2f} s to"
            f" build up (at most {_LONGEST_S} s); lower the acceleration or raise the jerk"
        )
    return max(1, math.ceil(window_s / period_s - 1e-9))


class MovingMean:
    """Mean of the newest ``window`` rows of ``width`` values."""

    def __init__(self, window: int, width: int) -> None:
        self.window = window
        self._rows = np.zeros((window, width))
        self._next = 0

    def reset(self, row: Floats) -> None:
        """As if ``row [width]`` had been there for long."""
        self._rows[:] = row

    def add(self, row: Floats) -> Floats:
        """The mean ``[width]`` with this one."""
        self._rows[self._next] = row
        self._next = (self._next + 1) % self.window
        return self._rows.sum(axis=0) / self.window
