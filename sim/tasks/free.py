"""Judges nothing: a workcell to try robots in. Starts are drawn uniformly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robolearn.errors import ConfigError
from robolearn.types import Condition, Outcome, Signals


class Free:
    """Progress is always 0.

    ``uniform``: signal -> ``{low: [...], high: [...]}``; a pose is given as x, y, z [m], yaw [rad].
    """

    name = "free"
    distributions = ("uniform",)
    failures: tuple[str, ...] = ()

    def __init__(
        self, uniform: Mapping[str, Mapping[str, Any]] | None = None, max_steps: int = 200
    ) -> None:
        self.max_steps = max_steps
        self._ranges: dict[str, tuple[Any, Any]] = {}
        for name, bounds in (uniform or {}).items():
            if set(bounds) != {"low", "high"} or len(bounds["low"]) != len(bounds["high"]):
                raise ConfigError(f"uniform.{name} needs 'low' and 'high' of one length")
            self._ranges[name] = (np.array(bounds["low"], float), np.array(bounds["high"], float))

    def reset(self) -> None:
        """Nothing is kept."""

    def check(self, poses: Mapping[str, Any]) -> None:
        """Every start is fine."""
        del poses

    def judge(self, values: Signals) -> Outcome:
        """Nothing to judge."""
        del values
        return Outcome(success=False, progress=0.0, reward=0.0)

    def sample_condition(self, seed: int) -> Condition:
        """Uniform in the ranges."""
        rng = np.random.default_rng(seed)
        poses: dict[str, tuple[float, ...]] = {}
        for name, (low, high) in self._ranges.items():
            at = [float(v) for v in rng.uniform(low, high)]
            if name.endswith("/pose") and len(at) == 4:
                at = [*at[:3], float(np.cos(at[3] / 2)), 0.0, 0.0, float(np.sin(at[3] / 2))]
            poses[name] = tuple(at)
        return Condition(id=f"free-{seed}", seed=seed, poses=poses)
