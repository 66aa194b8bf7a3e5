"""Judges pick and place: a cube is carried to a coloured square and let go there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.geometry import rotation_from_quat
from robolearn.types import Condition, Outcome, Signals
from sim.tasks.manipulation import (
    GOAL,
    TOOL,
    WIDTH,
    Footprint,
    Grasp,
    Start,
    Still,
    as_area,
    box_of,
    draw_apart,
    outside,
)

CUBE = "cube/pose"
# Side of the cube and of the square [m]; a test compares them with the MJCF. What lies there
# instead of the cube has the sides that ``sizes_m`` says.
SIDE_M = 0.04
ZONE_M = 0.10
# Middle of the cube to middle of the square [m]: the cube is well inside.
TOLERANCE_M = 0.025
_ZONE = Footprint(ZONE_M / 2, ZONE_M / 2)


class PickPlace:
    """Carries a cube (``sizes_m``: a box of other sides [m], by its signal) to a square.

    Success: the cube lies within 25 mm of the square's middle, on the table, let go, at rest.

    Progress: a quarter each for holding the cube and for lifting it, the rest for the distance to
    the goal while it is carried or lies there.
    """

    name = "pick_place"
    distributions = ("uniform",)
    max_steps = 300
    failures = ("missed_grasp", "dropped", "out_of_reach")

    def __init__(
        self,
        area: Sequence[Sequence[float]],
        bounds: Sequence[Sequence[float]],
        min_distance_m: float = 0.10,
        sizes_m: Any = None,
    ) -> None:
        self._area, self._bounds = as_area(area), as_area(bounds)
        x, y, z = box_of({CUBE: (SIDE_M,) * 3} if sizes_m is None else sizes_m, CUBE)
        self._sides, self._rest_m = (x, y), z / 2
        self._gap = max(0.0, min_distance_m - (max(x, y) + ZONE_M) / 2)
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._grasp, self._still = Grasp(0.035), Still()
        self._success, self._far = False, 0.0

    def judge(self, values: Signals) -> Outcome:
        """Judge where the cube is; the reward is the progress."""
        cube, goal = values[CUBE].tolist(), values[GOAL].tolist()
        distance = math.dist(cube[:2], goal[:2])
        height = cube[2] - self._rest_m
        self._far = max(self._far, distance, 1e-6)
        self._grasp.update(values, cube, height)
        rests = self._still.update(cube)
        placed = distance < TOLERANCE_M and abs(height) < 0.006
        loose = values[WIDTH].item(0) > self._between(values) + 0.01
        self._success = self._success or (placed and loose and rests)
        progress = 1.0 if self._success else self._progress(distance, height)
        lost = not self._success and outside(cube, self._bounds)
        return Outcome(
            success=self._success,
            progress=progress,
            reward=progress,
            terminal=self._success or lost,
            reason="success" if self._success else "out_of_reach" if lost else "",
            metrics={"distance_m": distance, "height_m": height},
            trouble="" if self._success else self._grasp.trouble,
        )

    def sample_condition(self, seed: int) -> Condition:
        """Cube and square anywhere in the area, at least 10 cm between their middles."""
        rng = np.random.default_rng(seed)
        starts = {
            CUBE: Start(self._area, (-np.pi / 4, np.pi / 4), self._rest_m),
            GOAL: Start(self._area, (0.0, 0.0), 0.0),
        }
        x, y = self._sides
        footprints = {CUBE: Footprint(x / 2, y / 2), GOAL: _ZONE}
        return Condition(
            id=f"{self.name}-{seed}",
            seed=seed,
            poses=draw_apart(rng, starts, footprints, gap=self._gap),
        )

    def check(self, poses: Mapping[str, Any]) -> None:
        """Anything goes: a cube may start on its goal."""

    def _between(self, values: Signals) -> float:
        """The side [m] that lies along the fingers' way, the tool's y axis."""
        x, y = self._sides
        if x == y:
            return x
        fingers = rotation_from_quat(values[TOOL][3:7])[:, 1]
        along = np.abs(rotation_from_quat(values[CUBE][3:7])[:, :2].T @ fingers)
        return x if along[0] > along[1] else y

    def _progress(self, distance: float, height: float) -> float:
        near = 1.0 - min(1.0, distance / self._far)
        if self._grasp.held:
            return 0.25 + 0.25 * min(1.0, height / 0.05) + 0.45 * near
        return 0.95 if distance < TOLERANCE_M and abs(height) < 0.006 else 0.2 * near
