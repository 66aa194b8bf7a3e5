"""Delays and smooths a controller's set-points, as communication and drive electronics of a real
cell do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from math import gcd

import mujoco
import numpy as np

from robolearn.types import Command, SentBlock
from sim.control.planar import Controller
from sim.shapes import Indices, Values


class CriticalFilter:
    """A critically damped filter of the second order whose lag behind a ramp is ``lag`` of its own
    periods; exact for inputs that hold for a period.
    """

    def __init__(self, lag: float) -> None:
        w = 2.0 / lag
        a = math.exp(-w)
        self._ahead = (1.0 - a * (1.0 + w), a * (a + w - 1.0))
        self._back = (2.0 * a, -a * a)
        self._told = self._one = self._two = np.zeros(0)

    def reset(self, value: Values) -> None:
        """At rest at ``value [n]``."""
        self._told = self._one = self._two = value.copy()

    def step(self, value: Values) -> Values:
        """The output ``[n]`` of the period in which the input is ``value [n]``."""
        (b0, b1), (a1, a2) = self._ahead, self._back
        out = b0 * value + b1 * self._told + a1 * self._one + a2 * self._two
        self._told, self._one, self._two = value.copy(), out, self._one
        return out


class DelayedController:
    """``inner`` with every set-point written ``steps`` physics steps later, and with a lag of
    ``smoothing_steps`` of them behind a critically damped filter (0: none).

    Until the first one arrives, the actuators hold what the reset gave them. Actuators with a delay
    of their own get theirs at once.
    """

    def __init__(self, inner: Controller, steps: int, smoothing_steps: float = 0.0) -> None:
        self._inner, self._delay = inner, steps
        self._every = 1 if smoothing_steps else gcd(inner.every, steps)
        self._filter = CriticalFilter(smoothing_steps) if smoothing_steps else None
        self._at_once = inner.own_delay
        self._step = 0
        self._waiting: deque[tuple[int, Values]] = deque()
        self._now = self._own = np.zeros(0)

    @property
    def every(self) -> int:
        """Physics steps between two moments at which a set-point may come or arrive."""
        return self._every

    @property
    def places(self) -> frozenset[str]:
        """As ``inner``."""
        return self._inner.places

    @property
    def own_delay(self) -> Indices:
        """As ``inner``."""
        return self._at_once

    @property
    def slowed(self) -> str:
        """As ``inner``."""
        return self._inner.slowed

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Nothing is under way."""
        self._inner.reset(model, data, poses)
        self._waiting.clear()
        self._step, self._now = 0, data.ctrl.copy()
        self._own = self._now[self._at_once]
        if self._filter is not None:
            self._filter.reset(self._now)

    def set_target(self, command: Command, t_ns: int) -> None:
        """Hand the command on; its set-points are late."""
        self._inner.set_target(command, t_ns)

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Take the newest set-point, write the one that arrives now."""
        if self._step % self._inner.every == 0:
            self._inner.substep(model, data)
            self._waiting.append((self._step + self._delay, data.ctrl.copy()))
            self._own = data.ctrl[self._at_once]
        while self._waiting and self._waiting[0][0] <= self._step:
            self._now = self._waiting.popleft()[1]
        data.ctrl[:] = self._now if self._filter is None else self._filter.step(self._now)
        if len(self._own):
            data.ctrl[self._at_once] = self._own
        self._step += self._every

    def sent(self) -> SentBlock:
        """As ``inner``: what was decided, at the time it was decided."""
        return self._inner.sent()
