"""Moves the Push-T tool along a path: a speed profile, and targets that undo the tool's lag.

Every Push-T world moves its tool by the law of gym-pusht 0.1.8: at 100 Hz the speed changes by
(100 (target - x) - 20 v) dt (on arms the limiter follows the same law,
``robolearn/arms/limiter.py``). A target held for a tick of 0.1 s is therefore reached late; the
targets here are those whose *result* lies on the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from robolearn.geometry import XY
from robolearn.shapes import AnyFloats

STIFFNESS, DAMPING, STEP_S = 100.0, 20.0, 0.01
HORIZON = 8
# Weight of the target's distance from the path against that of the tool.
EFFORT = 0.01
# How much of a surprise in the position is taken as one in the speed, per tick.
SURPRISE = 0.3


@cache
def _law(tick_s: float) -> tuple[AnyFloats, AnyFloats]:
    """State ``[x, v]`` after a tick: ``A @ state + B * target``."""
    step = np.array([[1.0, STEP_S], [0.0, 1.0]]) @ np.array(
        [[1.0, 0.0], [-STIFFNESS * STEP_S, 1.0 - DAMPING * STEP_S]]
    )
    gain = np.array([STEP_S, 1.0]) * STIFFNESS * STEP_S
    A, B = np.eye(2), np.zeros(2)
    for _ in range(round(tick_s / STEP_S)):
        A, B = step @ A, step @ B + gain
    return A, B


@cache
def _gains(tick_s: float) -> tuple[AnyFloats, AnyFloats]:
    """``target = on_path @ positions [HORIZON] + on_state @ [x, v]``, by least squares."""
    A, B = _law(tick_s)
    free, forced = np.zeros((HORIZON, 2)), np.zeros((HORIZON, HORIZON))
    power = np.eye(2)
    for i in range(HORIZON):
        for j in range(i, HORIZON):
            forced[j, i] = (np.linalg.matrix_power(A, j - i) @ B)[0]
        power = A @ power
        free[i] = power[0]
    rows = np.vstack([forced, np.sqrt(EFFORT) * np.eye(HORIZON)])
    inverse = np.linalg.pinv(rows)[0]
    on_path = inverse[:HORIZON] + np.sqrt(EFFORT) * inverse[HORIZON:]
    return on_path, -inverse[:HORIZON] @ free


class Follower:
    """Knows where the tool is and how fast; walks a path and says the next target."""

    def __init__(
        self, tick_s: float, low: Sequence[float], high: Sequence[float], acceleration: float = 2.0
    ) -> None:
        self._tick, self._acceleration = tick_s, acceleration
        self._low, self._high = np.array(low), np.array(high)
        self._state = np.zeros((2, 2))
        self._points, self._limits = np.zeros((1, 2)), np.zeros(1)
        self._at = np.zeros(1)
        self._s = self._speed = 0.0

    @property
    def left(self) -> float:
        """Length of the path that is still ahead [m]."""
        return float(self._at[-1] - self._s)

    @property
    def tool(self) -> XY:
        """Where the tool is ``[2]`` [m]."""
        return self._state[0]

    def reset(self, tool: XY) -> None:
        """The tool rests at ``tool``."""
        self._state = np.stack([tool, np.zeros(2)])
        self.go([tool], 0.1)

    def see(self, tool: XY, tick_s: float) -> None:
        """Compare the expected position with the observed one, and believe the latter.

        ``tick_s``: how long the last tick took, which need not be what was promised.
        """
        self._tick = min(1.0, max(STEP_S, round(tick_s / STEP_S) * STEP_S))
        surprise = tool - self._state[0]
        self._state = np.stack([tool, self._state[1] + SURPRISE * surprise / self._tick])

    def go(self, points: list[XY], *speeds: float) -> None:
        """Follow a new path from here: ``speeds`` [m/s] of its parts, the last for the rest."""
        ahead = [self._state[0], *points]
        keep = [ahead[0]]
        for p in ahead[1:]:
            if float(np.linalg.norm(p - keep[-1])) > 1e-5:
                keep.append(p)
        self._points = np.array(keep)
        parts = np.diff(self._points, axis=0)
        lengths = np.linalg.norm(parts, axis=1)
        self._at = np.concatenate([[0.0], np.cumsum(lengths)])
        given = list(speeds)[: len(lengths)]
        self._limits = np.array(given + [speeds[-1]] * (len(lengths) - len(given)))
        self._s = 0.0
        heading = parts[0] / lengths[0] if len(lengths) else np.zeros(2)
        self._speed = max(0.0, float(self._state[1] @ heading))

    def step(self) -> XY:
        """The target of this tick ``[2]`` [m]."""
        s, speed = self._s, self._speed
        wanted = np.empty((HORIZON, 2))
        for i in range(HORIZON):
            s, speed = self._advance(s, speed)
            wanted[i] = self._point(s)
            if i == 0:
                self._s, self._speed = s, speed
        on_path, on_state = _gains(self._tick)
        return self.clip(on_path @ wanted + on_state @ self._state)

    def stay(self) -> XY:
        """The target that keeps the tool where it is."""
        return self.tool.copy()

    def clip(self, target: XY) -> XY:
        """The nearest target that the env accepts."""
        return np.clip(target, self._low, self._high)

    def anywhere(self, rng: np.random.Generator) -> XY:
        """A random place of the table, not at its edge."""
        margin = 0.04 * (self._high - self._low)
        return rng.uniform(self._low + margin, self._high - margin)

    def sent(self, target: XY) -> None:
        """Expect the tool where this target brings it within the tick."""
        A, B = _law(self._tick)
        self._state = A @ self._state + B[:, None] * target

    def _advance(self, s: float, speed: float) -> tuple[float, float]:
        """One tick along the path, in small steps: speeds up, and is slow in time for corners."""
        steps, a = 5, self._acceleration
        dt = self._tick / steps
        for _ in range(steps):
            ahead = np.flatnonzero(self._at[1:] >= s - 1e-9)
            if not len(ahead) or s >= self._at[-1]:
                return float(self._at[-1]), 0.0
            first = int(ahead[0])
            limit = float(self._limits[first])
            for k in range(first, len(self._limits)):
                room = max(0.0, float(self._at[k + 1]) - s)
                limit = min(limit, float(np.sqrt(self._corner(k) ** 2 + 2 * a * room)))
            speed = min(limit, speed + a * dt)
            s = min(float(self._at[-1]), s + max(speed, 0.004) * dt)
        return s, speed

    def _corner(self, k: int) -> float:
        """Speed at the end of part ``k`` [m/s]."""
        if k + 1 >= len(self._limits):
            return 0.0
        a, b = self._points[k + 1] - self._points[k], self._points[k + 2] - self._points[k + 1]
        cosine = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
        slow = min(float(self._limits[k]), float(self._limits[k + 1]))
        return slow * max(0.15, cosine) ** 1.5

    def _point(self, s: float) -> XY:
        return np.array([np.interp(s, self._at, self._points[:, i]) for i in range(2)])
