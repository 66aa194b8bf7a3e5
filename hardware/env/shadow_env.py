"""Runs a real cell that is watched and not moved: ``deploy --shadow``."""

from __future__ import annotations

import time

import numpy as np

from hardware.env.real_env import RealEnv
from hardware.shapes import Components
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
)


class ShadowEnv:
    """Everything of a :class:`RealEnv` but motion: commands are compared, never sent.

    ``deviations``: by how much the policy's action differed from where the arm really was, one row
    per command, in the action's units. The arm holds; nobody but the operator moves anything.
    """

    def __init__(self, env: RealEnv) -> None:
        self._env = env
        self._last: Observation | None = None
        self.deviations: list[Components] = []

    @property
    def spec(self) -> EmbodimentSpec:
        """The cell's."""
        return self._env.spec

    @property
    def capabilities(self) -> Capabilities:
        """The cell's."""
        return self._env.capabilities

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Take everything as it stands; nothing moves."""
        del rng
        achieved = self._env.watch(condition)
        self.deviations = []
        found = {n: achieved.value(n) for n in condition.poses if n in achieved.samples}
        errors = self._env.config.standard_errors
        return ResetReport(condition, found, "taken as it stands (shadow)", errors)

    def now_ns(self) -> int:
        """The monotonic clock."""
        return time.monotonic_ns()

    def observe(self) -> Observation:
        """Newest sample of every signal."""
        self._last = self._env.observe()
        return self._last

    def apply(self, command: Command) -> None:
        """Compare with where the arm is."""
        last = self._last
        if last is not None:
            away = [
                np.asarray(value, dtype=np.float64) - np.asarray(last.value(name), dtype=np.float64)
                for name, value in command.action.items()
                if name in last.samples
            ]
            self.deviations += [np.concatenate(away)] if away else []

    def drain(self) -> SampleBatch:
        """What was measured; nothing was sent."""
        return self._env.drain()

    def late(self, until_ns: int) -> SampleBatch | None:
        """Pictures that are still under way."""
        return self._env.late(until_ns)

    def advance(self) -> None:
        """To the next tick."""
        self._env.advance()

    def outcome(self) -> Outcome:
        """How the task stands."""
        return self._env.outcome()

    def hold(self) -> None:
        """The arm holds already."""
        self._env.hold()

    def close(self) -> None:
        """Close the cell."""
        self._env.close()
