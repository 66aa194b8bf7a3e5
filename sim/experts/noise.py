"""Makes an expert suboptimal: one dial from 0 (the expert) to 1 (useless).

    correlated noise   an Ornstein-Uhlenbeck process on every commanded value; its stationary
                       deviation grows with the dial, it wanders within about half a second
    hesitation         the hand stops for a moment and then goes on
    mis-grasps         the fingers close beside the object, or let go on the way

The commands of an episode are the disturbed ones: data is always consistent with what was done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.geometry import Vector

NoiseValues = Float64[NDArray[np.float64], "5"]


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The disturbance at dial 1."""

    # Standard deviation of the correlated noise per axis [m].
    position_m: float = 0.03
    # The same for the heading [rad].
    yaw: float = 0.35
    # The same for the gripper's width [m].
    width_m: float = 0.02
    # Of the correlated noise.
    time_constant_s: float = 0.5
    # How often the hand stops.
    hesitation_hz: float = 0.8
    # For how long.
    hesitation_s: tuple[float, float] = (0.2, 1.0)
    # How far beside the object, and how far above it, a mis-grasp closes.
    miss_m: tuple[float, float] = (0.03, 0.06)


class Noise:
    """The disturbances of one episode; all of them vanish at dial 0.

    ``rate_hz`` is the control rate; the same seed gives the same disturbances.
    """

    def __init__(
        self, dial: float, rng: np.random.Generator, rate_hz: float, scale: NoiseScale
    ) -> None:
        self._dial, self._rng, self._rate, self._scale = dial, rng, rate_hz, scale
        s = scale
        deviation = np.array([s.position_m] * 3 + [s.yaw, s.width_m])
        self._deviation = dial * deviation
        self._keep = math.exp(-1.0 / (s.time_constant_s * rate_hz))
        self._state = np.zeros(5)
        self._pause = 0

    def wander(self) -> NoiseValues:
        """The correlated noise ``[5]`` of this tick: x, y, z [m], yaw [rad], width [m]."""
        fresh = math.sqrt(1.0 - self._keep * self._keep)
        step = self._rng.standard_normal(5)
        self._state = self._keep * self._state + fresh * self._deviation * step
        return self._state

    def hesitates(self) -> bool:
        """True while the hand stands still; call once per tick."""
        if self._pause > 0:
            self._pause -= 1
            return True
        if self._rng.random() < self._dial * self._scale.hesitation_hz / self._rate:
            low, high = self._scale.hesitation_s
            self._pause = round(self._rng.uniform(low, high) * self._rate)
        return False

    def miss(self) -> Vector:
        """Where a grasp goes wrong ``[3]`` [m]: zero, or beside and above the object."""
        if self._rng.random() >= self._dial:
            return np.zeros(3)
        angle = self._rng.uniform(-math.pi, math.pi)
        side, up = self._rng.uniform(*self._scale.miss_m, size=2)
        return np.array([side * math.cos(angle), side * math.sin(angle), up])

    def lets_go(self) -> bool:
        """True if the fingers open on this way (asked once per carry)."""
        return bool(self._rng.random() < 0.7 * self._dial)
