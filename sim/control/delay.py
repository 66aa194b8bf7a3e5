"""Delays a controller's set-points, as communication and drive electronics of a real cell do."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import gcd

import mujoco
import numpy as np

from robolearn.types import Command, SentBlock
from sim.control.planar import Controller
from sim.shapes import Values


class DelayedController:
    """``inner`` with every set-point written ``steps`` physics steps later.

    Until the first one arrives, the actuators hold what the reset gave them.
    """

    def __init__(self, inner: Controller, steps: int) -> None:
        self._inner, self._delay = inner, steps
        self._every = gcd(inner.every, steps)
        self._step = 0
        self._waiting: deque[tuple[int, Values]] = deque()
        self._now = np.zeros(0)

    @property
    def every(self) -> int:
        """Physics steps between two moments at which a set-point may come or arrive."""
        return self._every

    @property
    def places(self) -> frozenset[str]:
        """As ``inner``."""
        return self._inner.places

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Nothing is under way."""
        self._inner.reset(model, data, poses)
        self._waiting.clear()
        self._step, self._now = 0, data.ctrl.copy()

    def set_target(self, command: Command, t_ns: int) -> None:
        """Hand the command on; its set-points are late."""
        self._inner.set_target(command, t_ns)

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Take the newest set-point, write the one that arrives now."""
        if self._step % self._inner.every == 0:
            self._inner.substep(model, data)
            self._waiting.append((self._step + self._delay, data.ctrl.copy()))
        while self._waiting and self._waiting[0][0] <= self._step:
            self._now = self._waiting.popleft()[1]
        data.ctrl[:] = self._now
        self._step += self._every

    def sent(self) -> SentBlock:
        """As ``inner``: what was decided, at the time it was decided."""
        return self._inner.sent()
