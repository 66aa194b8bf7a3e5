"""Says which observations become goals in training: those of values, and those of actors.

    values    {current .2, geometric .5, random .3}   a step costs 1 until the goal's row
    actors    {rest 1}                                a later row of the same recording

or, where goals are marks of which one holds from some row on,

    values    {rest .5, random .5}                    the mark that comes next, or any
    actors    {rest 1}

A policy is told what to reach, by every goal; what is worth what is learned from goals that are out
of reach as well (shares of OGBench, Park et al. 2025, appendix on its implementations). With goals,
every actor-critic is goal-conditioned; a file whose algorithm makes no sense without them requires
them (:func:`require_goals`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from robolearn.data.store.stats import SignalStats
from robolearn.errors import ConfigError
from robolearn.learning import BatchSpec, FutureSpec

REWARD = SignalStats(count=1, minimum=(-1.0,), maximum=(0.0,), mean=(-1.0,), std=(0.0,))
"""Of every step, for every goal (``robolearn/data/reading/goals.py``)."""
VALUES = FutureSpec(current=0.2, geometric=0.5, random=0.3)
"""Goals of values, of most algorithms."""
MARKS = FutureSpec(rest=0.5, random=0.5)
"""The same where goals are marks."""


@dataclass(frozen=True, slots=True)
class HindsightConfig:
    """Goals that are put in recordings."""

    # Pairs (goal signal, observed signal): the goal is what is observed in another row.
    signals: tuple[tuple[str, str], ...]
    # Rows whose observations values are learned for; its discount is of the row, not of rewards;
    # null: as the algorithm's authors have them, mostly {current .2, geometric .5, random .3}.
    values: FutureSpec | None = None
    # Rows whose observations the actor pursues.
    actor: FutureSpec = field(default_factory=lambda: FutureSpec(rest=1.0))
    # The one pair of signals holds marks (0 or 1), and a goal is one of them alone: the sub-goals
    # of a table to play on. Shares of 'rest' (the next that is reached) and 'random' (any).
    marks: bool = False

    def __post_init__(self) -> None:
        if not self.signals:
            raise ConfigError(
                "goals.signals: name pairs of a goal signal and the observed signal that it is of,"
                " such as [[goal/state, obs/state]]"
            )
        for name, future in (("values", self.values), ("actor", self.actor)):
            if future is not None and (future.goals or future.events or future.marks):
                raise ConfigError(
                    f"goals.{name} says which rows are drawn; what is seen of them stands in"
                    " goals.signals and goals.marks (no 'goals', 'events' or 'marks' here)"
                )
        # Pairs and shares that cannot be are refused where they are given.
        self.asked(BatchSpec(1, 1, 1))
        dataclasses.replace(self.actor, goals=self.signals, marks=self.marks)

    def asked(self, spec: BatchSpec, usual: FutureSpec = VALUES) -> BatchSpec:
        """``spec`` with both draws of goals; ``usual``: of values, where nothing else is said."""
        values = self.values or (MARKS if self.marks else usual)
        future = dataclasses.replace(values, goals=self.signals, marks=self.marks)
        return dataclasses.replace(spec, future=future, actor_future=self.actor)


def require_goals(goals: HindsightConfig | None, name: str) -> HindsightConfig:
    """Errors: :class:`ConfigError` where none are named."""
    if goals is None:
        raise ConfigError(
            f"{name} learns to reach goals: name them, such as"
            " algorithm.goals: {signals: [[goal/state, obs/state]]}, both in data.observations"
        )
    return goals
