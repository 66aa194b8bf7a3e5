"""Judges reach: the joints of an arm are brought to a given posture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.errors import ConfigError
from robolearn.types import Condition, Outcome, Signals

JOINTS, GOAL = "arm/joint_position", "goal/joint_position"


class Reach:
    """Success: every joint is within ``tolerance`` [rad] of the goal. Progress: the share of the
    way of the joint that is furthest off. ``low``, ``high`` [rad]: range of starts and goals.
    """

    name = "reach"
    distributions = ("uniform",)
    max_steps = 60
    failures: tuple[str, ...] = ()

    def __init__(
        self,
        low: Sequence[float] = (),
        high: Sequence[float] = (),
        tolerance: float = 0.05,
    ) -> None:
        if len(low) != len(high) or not tolerance > 0.0:
            raise ConfigError(
                f"reach: low and high of one length and a tolerance above 0 are needed, got"
                f" {len(low)}, {len(high)}, {tolerance:g}"
            )
        self._low, self._high = np.array(low, float), np.array(high, float)
        self._tolerance = tolerance
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._success, self._first = False, 0.0

    def judge(self, values: Signals) -> Outcome:
        """Judge the joints; the reward is the progress."""
        error = float(np.abs(np.asarray(values[JOINTS]) - np.asarray(values[GOAL])).max())
        self._first = self._first or max(error, self._tolerance)
        self._success = self._success or error <= self._tolerance
        way = max(self._first - self._tolerance, 1e-9)
        progress = min(1.0, max(0.0, (self._first - error) / way))
        score = 1.0 if self._success else progress
        return Outcome(
            success=self._success,
            progress=score,
            reward=score,
            terminal=self._success,
            reason="success" if self._success else "",
            metrics={"error_rad": error},
        )

    def check(self, poses: Mapping[str, Any]) -> None:
        """Every posture may be a start."""
        del poses

    def sample_condition(self, seed: int) -> Condition:
        """Start and goal, uniform in the range."""
        rng = np.random.default_rng(seed)
        start, goal = rng.uniform(self._low, self._high, (2, len(self._low)))
        poses = {JOINTS: tuple(start.tolist()), GOAL: tuple(goal.tolist())}
        return Condition(id=f"{self.name}-{seed}", seed=seed, poses=poses)
