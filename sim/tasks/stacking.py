"""Judges stacking: the red cube is put on the green one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.types import Condition, Outcome, Signals
from sim.tasks.manipulation import (
    WIDTH,
    Footprint,
    Grasp,
    Start,
    Still,
    as_area,
    check_apart,
    draw_apart,
    outside,
)

RED, GREEN = "red/pose", "green/pose"
SIDE_M = 0.04
# The cubes' middles may be this far apart seen from above [m]: the tower is stable up to 20 mm.
TOLERANCE_M = 0.018
FOOTPRINTS = {name: Footprint(SIDE_M / 2, SIDE_M / 2) for name in (RED, GREEN)}


class Stacking:
    """Success: red rests on green, let go, green still on the table.

    Progress: a quarter each for holding and lifting red, the rest for the distance to the place
    above green.
    """

    name = "stacking"
    distributions = ("uniform",)
    max_steps = 300
    failures = ("missed_grasp", "dropped", "out_of_reach")

    def __init__(
        self,
        area: Sequence[Sequence[float]],
        bounds: Sequence[Sequence[float]],
        min_gap_m: float = 0.06,
    ) -> None:
        self._area, self._bounds, self._gap = as_area(area), as_area(bounds), min_gap_m
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._grasp, self._still = Grasp(0.035), Still()
        self._success, self._far = False, 0.0

    def judge(self, values: Signals) -> Outcome:
        """Judge where the cubes are; the reward is the progress."""
        red, green = values[RED].tolist(), values[GREEN].tolist()
        distance = math.dist(red[:2], green[:2])
        self._far = max(self._far, distance, 1e-6)
        level = red[2] - green[2]
        over = distance < SIDE_M
        height = level - SIDE_M if over else red[2] - SIDE_M / 2
        self._grasp.update(values, red, max(height, red[2] - 1.5 * SIDE_M))
        rests = self._still.update(red)
        stacked = (
            distance < TOLERANCE_M
            and abs(level - SIDE_M) < 0.006
            and abs(green[2] - SIDE_M / 2) < 0.006
        )
        loose = values[WIDTH].item(0) > SIDE_M + 0.01
        self._success = self._success or (stacked and loose and rests)
        lost = not self._success and any(outside(p, self._bounds) for p in (red, green))
        progress = 1.0 if self._success else self._progress(distance, red[2], stacked)
        return Outcome(
            success=self._success,
            progress=progress,
            reward=progress,
            terminal=self._success or lost,
            reason="success" if self._success else "out_of_reach" if lost else "",
            metrics={"distance_m": distance, "level_m": level},
            trouble="" if self._success else self._grasp.trouble,
        )

    def sample_condition(self, seed: int) -> Condition:
        """Both cubes anywhere in the area, far enough apart for the fingers."""
        rng = np.random.default_rng(seed)
        start = Start(self._area, (-np.pi / 4, np.pi / 4), SIDE_M / 2)
        poses = draw_apart(rng, {RED: start, GREEN: start}, FOOTPRINTS, gap=self._gap)
        return Condition(id=f"{self.name}-{seed}", seed=seed, poses=poses)

    def check(self, poses: Mapping[str, Any]) -> None:
        """Two cubes on the table must not share space."""
        low = {n: p for n, p in poses.items() if n in FOOTPRINTS and float(p[2]) < SIDE_M}
        check_apart(low, FOOTPRINTS)

    def _progress(self, distance: float, z: float, stacked: bool) -> float:
        near = 1.0 - min(1.0, distance / self._far)
        lifted = min(1.0, max(0.0, z - SIDE_M / 2) / 0.06)
        if self._grasp.held:
            return 0.25 + 0.25 * lifted + 0.45 * near
        return 0.95 if stacked else 0.2 * near
