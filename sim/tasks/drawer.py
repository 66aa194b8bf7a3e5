"""Judges the drawer: it is pulled open by its handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.types import Condition, Outcome, Signals
from sim.tasks.manipulation import CLOSED_M, TOOL, WIDTH, Footprint, Start, as_area, draw_apart

CABINET, OPENING = "cabinet/pose", "drawer/opening"
# The cabinet's frame: on the table, under the middle of its front; x points into it.
# The handle is a tab in the middle of the front, 52 mm long and 15 mm wide: where to take it, this
# far in front of the closed drawer's front and this high [m].
HANDLE_X_M, HANDLE_Z_M = 0.035, 0.07
TRAVEL_M = 0.16
FOOTPRINT = Footprint(0.11, 0.12, cx=0.11)


class Drawer:
    """Success: the drawer is open by ``target_m``. Progress: the share of it, at most 1."""

    name = "drawer"
    distributions = ("uniform",)
    max_steps = 300
    failures = ("missed_grasp",)

    def __init__(
        self,
        area: Sequence[Sequence[float]],
        yaw: Sequence[float],
        target_m: float = 0.12,
    ) -> None:
        self._area, self._yaw = as_area(area), (float(yaw[0]), float(yaw[1]))
        self._target = target_m
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._success, self._trouble = False, ""

    def judge(self, values: Signals) -> Outcome:
        """Judge the opening; the reward is the progress."""
        opening = float(values[OPENING][0])
        progress = min(1.0, max(0.0, opening / self._target))
        self._success = self._success or progress >= 1.0
        closed = float(values[WIDTH][0]) < CLOSED_M
        if closed and float(values[TOOL][2]) < 2.0 * HANDLE_Z_M:
            self._trouble = "missed_grasp"
        elif opening > 0.01:
            self._trouble = ""
        return Outcome(
            success=self._success,
            progress=1.0 if self._success else progress,
            reward=1.0 if self._success else progress,
            terminal=self._success,
            reason="success" if self._success else "",
            metrics={"opening_m": opening},
            trouble="" if self._success else self._trouble,
        )

    def sample_condition(self, seed: int) -> Condition:
        """The cabinet anywhere in its area, turned a little, closed or ajar by up to 15 mm."""
        rng = np.random.default_rng(seed)
        start = Start(self._area, self._yaw, 0.0)
        poses = draw_apart(rng, {CABINET: start}, {CABINET: FOOTPRINT}, gap=0.0)
        ajar = float(rng.uniform(0.0, 0.015))
        return Condition(id=f"{self.name}-{seed}", seed=seed, poses={**poses, OPENING: (ajar,)})

    def check(self, poses: Mapping[str, Any]) -> None:
        """Nothing can overlap."""
