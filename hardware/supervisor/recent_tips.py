"""Keeps the tool's poses that the checks of one set-point all ask for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from hardware.supervisor.checks import are_same
from robolearn.arms.shapes import Joints
from robolearn.geometry import Pose


class RecentTips:
    """The newest two that were asked for: of a set-point and of the one before it."""

    def __init__(self, pose: Callable[[Joints], Pose]) -> None:
        self._pose = pose
        self._known: deque[tuple[Joints, Pose]] = deque(maxlen=2)

    def at(self, q: Joints) -> Pose:
        """Pose ``[4, 4]`` of the tip at ``q [joints]``; not to be written to."""
        # Nearly always it is the very array that was asked for before.
        for known, tip in self._known:
            if q is known:
                return tip
        for known, tip in self._known:
            if are_same(q, known):
                return tip
        tip = self._pose(q)
        self._known.appendleft((q, tip))
        return tip

    def travel(self, one: Joints, two: Joints) -> float:
        """How far the tip moves from one set-point to the next [m]."""
        # In the order of time: the older one is still known.
        start = self.at(one)[:3, 3]
        return math.hypot(*(self.at(two)[:3, 3] - start).tolist())
