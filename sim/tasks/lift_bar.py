"""Judges the bar: two hands take it by its ends and hold it level, too long for one hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.types import Condition, Outcome, Signals
from sim.tasks.manipulation import level_pose, tilt

BAR = "bar/pose"
# Half the height of the bar's cross-section, and the height to hold it at [m].
HALF_M = 0.015
LIFT_M = 0.12
LEVEL_RAD = 0.05
_HOLD_TICKS = 10


class LiftBar:
    """Success: the bar is at least 12 cm up and level within 0.05 rad for half a second."""

    name = "lift_bar"
    distributions = ("uniform",)
    max_steps = 200
    failures: tuple[str, ...] = ("tilted",)

    def __init__(self, area: Sequence[Sequence[float]], yaw: float = 0.3) -> None:
        self._low, self._high = (tuple(float(v) for v in corner) for corner in area)
        self._yaw = float(yaw)
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._held, self._success = 0, False

    def check(self, poses: Mapping[str, Any]) -> None:
        """Any start will do."""
        del poses

    def judge(self, values: Signals) -> Outcome:
        """Progress is the height of the bar; the reward is the progress."""
        bar = values[BAR]
        height, slope = float(bar[2]) - HALF_M, tilt(bar)
        up = height >= LIFT_M and slope < LEVEL_RAD
        self._held = self._held + 1 if up else 0
        self._success = self._success or self._held >= _HOLD_TICKS
        share = max(0.0, min(1.0, height / LIFT_M))
        progress = 1.0 if self._success else 0.95 * share
        return Outcome(
            success=self._success,
            progress=progress,
            reward=progress,
            terminal=self._success,
            reason="success" if self._success else "",
            metrics={"height_m": height, "tilt_rad": slope},
            trouble="tilted" if slope > LEVEL_RAD and not self._success else "",
        )

    def sample_condition(self, seed: int) -> Condition:
        """The bar anywhere in the area, turned a little."""
        rng = np.random.default_rng(seed)
        x, y = (float(v) for v in rng.uniform(self._low, self._high))
        pose = level_pose(x, y, HALF_M, float(rng.uniform(-self._yaw, self._yaw)))
        return Condition(id=f"lift_bar-{seed}", seed=seed, poses={BAR: pose})


def grasps(bar: Any, half_length_m: float) -> tuple[Any, Any]:
    """Points ``[3]`` [m] at which the left and the right hand hold the bar (its y axis is long)."""
    yaw = 2.0 * math.atan2(float(bar[6]), float(bar[3]))
    along = np.array([-math.sin(yaw), math.cos(yaw), 0.0])
    return bar[:3] + half_length_m * along, bar[:3] - half_length_m * along
