"""Judges peg insertion: a square peg that stands on the table goes into a square hole.

How tight the hole is belongs to the scene: ``insertion_loose`` has 2 mm of clearance per side,
``insertion_tight`` 0.5 mm. Both holes have a chamfer of 2 mm, as such parts have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.types import Condition, Outcome, Signals
from sim.tasks.manipulation import (
    Footprint,
    Grasp,
    Start,
    as_area,
    check_apart,
    draw_apart,
    outside,
    tilt,
    within,
)

PEG, HOLE = "peg/pose", "hole/pose"
# Side and length of the peg; height, outer side and chamfer of the block with the hole [m].
PEG_SIDE_M, PEG_LENGTH_M = 0.03, 0.10
BLOCK_HEIGHT_M, BLOCK_SIDE_M, CHAMFER_M = 0.05, 0.11, 0.002
FOOTPRINTS = {
    PEG: Footprint(PEG_SIDE_M / 2, PEG_SIDE_M / 2),
    HOLE: Footprint(BLOCK_SIDE_M / 2, BLOCK_SIDE_M / 2),
}
# A peg that is in the hole and does not sink for this many ticks is jammed.
_JAM_TICKS = 40


class Insertion:
    """Success: the peg's end is ``depth_m`` below the block's top, inside the hole.

    Progress: up to 0.5 for holding, lifting and bringing the peg over the hole, the rest for depth.
    """

    name = "insertion"
    distributions = ("uniform",)
    max_steps = 400
    failures = ("missed_grasp", "dropped", "jammed", "out_of_reach")

    def __init__(
        self,
        area: Sequence[Sequence[float]],
        bounds: Sequence[Sequence[float]],
        clearance_m: float,
        depth_m: float = 0.04,
        min_gap_m: float = 0.06,
    ) -> None:
        self._area, self._bounds = as_area(area), as_area(bounds)
        self._clearance, self._depth, self._gap = clearance_m, depth_m, min_gap_m
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._grasp, self._success, self._far = Grasp(0.06), False, 0.0
        self._deepest, self._waiting = 0.0, 0

    def judge(self, values: Signals) -> Outcome:
        """Judge where the peg's lower end is in the block's frame; the reward is the progress."""
        peg, block = values[PEG], values[HOLE]
        tip = within(block, peg[:3]) - (0.0, 0.0, PEG_LENGTH_M / 2)
        distance = float(np.linalg.norm(tip[:2]))
        over = float(np.abs(tip[:2]).max()) < self._clearance + CHAMFER_M
        depth = max(0.0, BLOCK_HEIGHT_M - float(tip[2])) if over else 0.0
        self._far = max(self._far, distance, 1e-6)
        height = float(peg[2]) - PEG_LENGTH_M / 2
        self._grasp.update(values, peg, 0.0 if depth > 0.0 else height)
        upright = tilt(peg) < 0.1
        self._success = self._success or (depth >= self._depth and upright)
        lost = not self._success and outside(peg, self._bounds)
        progress = 1.0 if self._success else self._progress(distance, height, depth)
        return Outcome(
            success=self._success,
            progress=progress,
            reward=progress,
            terminal=self._success or lost,
            reason="success" if self._success else "out_of_reach" if lost else "",
            metrics={"distance_m": distance, "depth_m": depth},
            trouble="" if self._success else self._trouble(depth, tilt(peg) > 0.8),
        )

    def sample_condition(self, seed: int) -> Condition:
        """Peg upright and block anywhere in the area, far enough apart for the fingers."""
        rng = np.random.default_rng(seed)
        starts = {
            HOLE: Start(self._area, (-np.pi / 4, np.pi / 4), 0.0),
            PEG: Start(self._area, (-np.pi / 4, np.pi / 4), PEG_LENGTH_M / 2),
        }
        poses = draw_apart(rng, starts, FOOTPRINTS, gap=self._gap)
        return Condition(id=f"{self.name}-{seed}", seed=seed, poses=poses)

    def check(self, poses: Mapping[str, Any]) -> None:
        """A peg on the table must stand beside the block."""
        if PEG in poses and float(poses[PEG][2]) < BLOCK_HEIGHT_M + PEG_LENGTH_M / 2:
            check_apart(poses, FOOTPRINTS)

    def _trouble(self, depth: float, fallen: bool) -> str:
        if depth > self._deepest + 0.0005:
            self._deepest, self._waiting = depth, 0
        self._waiting = self._waiting + 1 if depth > 0.0005 else 0
        if self._waiting > _JAM_TICKS:
            return "jammed"
        return "dropped" if fallen else self._grasp.trouble

    def _progress(self, distance: float, height: float, depth: float) -> float:
        near = 1.0 - min(1.0, distance / self._far)
        if depth > 0.0:
            return 0.5 + 0.49 * min(1.0, depth / self._depth)
        if self._grasp.held:
            return 0.1 + 0.1 * min(1.0, max(0.0, height) / 0.05) + 0.3 * near
        return 0.0
