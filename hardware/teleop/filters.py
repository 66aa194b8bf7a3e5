"""Smooths and shapes what a hand does: the one-euro filter, dead zone and curve, slew limit.

Filter: Casiez, Roussel and Vogel, "1 euro filter" (CHI 2012). ``beta`` is in Hz per unit per
second: values published for pixels do nothing in metres.
"""

from __future__ import annotations

import math

import numpy as np

from hardware.teleop.shapes import Deflection, Filtered
from robolearn.geometry import (
    Pose,
    Rotation,
    pose,
    rotation_from_rotvec,
    rotvec_from_rotation,
)

_DERIVATIVE_CUTOFF_HZ = 1.0


def smoothing(cutoff_hz: float, dt_s: float) -> float:
    """Weight of the newest value in a low-pass filter of first order."""
    return 1.0 / (1.0 + 1.0 / (2.0 * math.pi * cutoff_hz * dt_s))


class OneEuro:
    """A low-pass filter whose cut-off rises with speed: steady at rest, prompt in motion."""

    def __init__(self, min_cutoff_hz: float, beta: float) -> None:
        self._min_hz, self._beta = min_cutoff_hz, beta
        self._value: Filtered | None = None
        self._speed: Filtered | None = None

    def reset(self) -> None:
        """Forget what was; the next value passes as it is."""
        self._value = self._speed = None

    def __call__(self, value: Filtered, dt_s: float) -> Filtered:
        """The filtered value ``[k]``, ``dt_s`` after the one before; where no time has passed, that
        one.
        """
        if self._value is None or self._speed is None:
            self._value, self._speed = value, np.zeros_like(value)
            return value
        if dt_s <= 0.0:
            return self._value
        weight = smoothing(_DERIVATIVE_CUTOFF_HZ, dt_s)
        self._speed = self._speed + weight * ((value - self._value) / dt_s - self._speed)
        cutoff = self._min_hz + self._beta * float(np.linalg.norm(self._speed))
        self._value = self._value + smoothing(cutoff, dt_s) * (value - self._value)
        return self._value


class PoseFilter:
    """:class:`OneEuro` of a position; of a rotation by its increments, so that no angle wraps."""

    def __init__(self, min_cutoff_hz: float, beta: float) -> None:
        self._min_hz, self._beta = min_cutoff_hz, beta
        self._position = OneEuro(min_cutoff_hz, beta)
        self.reset()

    def reset(self) -> None:
        """Forget what was; the next pose passes as it is."""
        self._position.reset()
        self._before: Rotation | None = None
        self._R: Rotation = np.eye(3)
        self._speed = np.zeros(3)

    def __call__(self, T: Pose, dt_s: float) -> Pose:
        """The filtered pose ``[4, 4]``, ``dt_s`` after the one before."""
        R, position = T[:3, :3], self._position(T[:3, 3], dt_s)
        if self._before is not None and dt_s <= 0.0:
            # What turned meanwhile is part of the next turn.
            return pose(self._R, position)
        if self._before is None:
            self._R = R
        else:
            turned = rotvec_from_rotation(R @ self._before.T) / dt_s
            self._speed = self._speed + smoothing(_DERIVATIVE_CUTOFF_HZ, dt_s) * (
                turned - self._speed
            )
            cutoff = self._min_hz + self._beta * float(np.linalg.norm(self._speed))
            left = rotvec_from_rotation(R @ self._R.T)
            self._R = rotation_from_rotvec(smoothing(cutoff, dt_s) * left) @ self._R
        self._before = R
        return pose(self._R, position)


def shaped(twist: Deflection, dead_zone: float, exponent: float) -> Deflection:
    """Deflections without their dead zone, bent: slow near the middle, full at the end."""
    size = np.minimum(np.abs(twist), 1.0)
    live = np.maximum(0.0, (size - dead_zone) / (1.0 - dead_zone))
    return np.sign(twist) * live**exponent


def slewed(now: Deflection, wanted: Deflection, most: float) -> Deflection:
    """``now`` moved towards ``wanted`` by at most ``most`` in every component."""
    return now + np.clip(wanted - now, -most, most)
