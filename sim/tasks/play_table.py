"""Judges the play table: cubes, tray, drawer, slider, button; five sub-goals, no single goal.

A condition says by ``goal/wanted`` (one number per sub-goal, 1: wanted) what an episode is about;
with nothing wanted it is play. ``goal/achieved`` tells at every tick which sub-goals hold, so that
recorded play can be relabelled with what it reached. An evaluation usually wants all five.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.agents.sub_goals import ACHIEVED, WANTED
from robolearn.errors import DataError
from robolearn.types import Condition, Outcome, Signals
from sim.tasks.manipulation import (
    WIDTH,
    Footprint,
    Start,
    as_area,
    check_apart,
    draw_apart,
    outside,
)

SubGoalFlags = Float64[NDArray[np.float64], "5"]

SUBGOALS = ("drawer_open", "slider_right", "button_pressed", "red_in_tray", "green_on_blue")
RED, GREEN, BLUE = "red/pose", "green/pose", "blue/pose"
DRAWER, SLIDER, BUTTON, TRAY = "drawer/opening", "slider/opening", "button/depth", "tray/pose"
SIDE_M, TRAVEL_M, BUTTON_TRAVEL_M = 0.04, 0.16, 0.008
# When each sub-goal holds [m].
OPEN_M, RIGHT_M, PRESSED_M, TRAY_M, STACK_M = 0.12, 0.12, 0.006, 0.035, 0.018
CUBES = {name: Footprint(SIDE_M / 2, SIDE_M / 2) for name in (RED, GREEN, BLUE)}


def achieved(values: Signals) -> SubGoalFlags:
    """Which sub-goals hold now ``[5]``: 1 or 0 each, in the order of :data:`SUBGOALS`."""
    red, tray = values[RED], values[TRAY]
    step = values[GREEN][:3] - values[BLUE][:3]
    loose = float(values[WIDTH][0]) > SIDE_M + 0.01
    in_tray = float(np.abs(red[:2] - tray[:2]).max()) < TRAY_M and float(red[2]) < 0.03
    stacked = float(np.hypot(step[0], step[1])) < STACK_M and abs(float(step[2]) - SIDE_M) < 0.006
    holds = (
        float(values[DRAWER][0]) >= OPEN_M,
        float(values[SLIDER][0]) >= RIGHT_M,
        float(values[BUTTON][0]) >= PRESSED_M,
        in_tray,
        stacked and loose,
    )
    return np.array(holds, dtype=np.float64)


class PlayTable:
    """Success: every wanted sub-goal was reached at some time after the start.

    Progress: the reached share of the wanted sub-goals (of all five when none is wanted; such an
    episode has no success and no end). Metrics: ``reached`` and one figure per sub-goal.
    """

    name = "play_table"
    distributions = ("uniform",)
    max_steps = 700
    failures = ("out_of_reach",)

    def __init__(
        self,
        area: Sequence[Sequence[float]],
        bounds: Sequence[Sequence[float]],
        min_gap_m: float = 0.055,
    ) -> None:
        self._area, self._bounds, self._gap = as_area(area), as_area(bounds), min_gap_m
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._reached = np.zeros(len(SUBGOALS), dtype=np.bool_)
        self._before: NDArray[np.bool_] | None = None

    def judge(self, values: Signals) -> Outcome:
        """Judge what was reached; the reward is the number of wanted sub-goals newly reached."""
        now = values[ACHIEVED] > 0.5
        # What holds at the start is no achievement until it was undone.
        before = now if self._before is None else self._before
        fresh = now & ~before & ~self._reached
        self._reached |= fresh
        self._before = now
        wanted = values[WANTED] > 0.5
        goals = wanted if wanted.any() else np.ones_like(wanted)
        progress = float((self._reached & goals).sum() / goals.sum())
        success = bool(wanted.any()) and progress == 1.0
        lost = not success and any(outside(values[n], self._bounds) for n in CUBES)
        metrics = {f"reached_{n}": float(r) for n, r in zip(SUBGOALS, self._reached, strict=True)}
        return Outcome(
            success=success,
            progress=progress,
            reward=float((fresh & goals).sum()),
            terminal=success or lost,
            reason="success" if success else "out_of_reach" if lost else "",
            metrics={"reached": float(self._reached.sum()), **metrics},
        )

    def sample_condition(self, seed: int) -> Condition:
        """Cubes anywhere in the area; drawer and slider nearly closed; everything is wanted."""
        rng = np.random.default_rng(seed)
        start = Start(self._area, (-np.pi / 4, np.pi / 4), SIDE_M / 2)
        poses = draw_apart(rng, dict.fromkeys(CUBES, start), CUBES, gap=self._gap)
        more = {
            DRAWER: (float(rng.uniform(0.0, 0.02)),),
            SLIDER: (float(rng.uniform(0.0, 0.04)),),
            WANTED: (1.0,) * len(SUBGOALS),
        }
        return Condition(id=f"{self.name}-{seed}", seed=seed, poses={**poses, **more})

    def check(self, poses: Mapping[str, Any]) -> None:
        """Cubes on the table must not share space; a goal is wanted (1) or not (0)."""
        low = {n: p for n, p in poses.items() if n in CUBES and float(p[2]) < SIDE_M}
        check_apart(low, CUBES)
        if any(float(v) not in (0.0, 1.0) for v in poses.get(WANTED, ())):
            raise DataError(
                f"{WANTED} has a 1 (wanted) or 0 for each of {list(SUBGOALS)}, got"
                f" {[float(v) for v in poses[WANTED]]}"
            )
