"""Judges an episode with several valid goals by whichever it comes closest to.

A condition may name a goal more than once: ``goal/pose`` is the one that is placed and observed,
``goal/pose#2``, ``goal/pose#3``, ... are others that count as well. "Put the cube on a square" has
as many right answers as there are squares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robolearn.errors import DataError
from robolearn.shapes import OwnFloats
from robolearn.types import Condition, Outcome, Signals
from sim.tasks.contract import Task

MARK = "#"
Goal = Mapping[str, OwnFloats]


def split_goals(condition: Condition) -> tuple[Condition, tuple[Goal, ...]]:
    """The condition as it is placed, and the other goals in the order of their numbers."""
    others: dict[str, dict[str, OwnFloats]] = {}
    placed: dict[str, tuple[float, ...]] = {}
    for name, value in condition.poses.items():
        signal, mark, number = name.partition(MARK)
        if not mark:
            placed[name] = value
            continue
        first = condition.poses.get(signal, ())
        if not number.isdecimal() or int(number) < 2 or len(first) != len(value):
            raise DataError(
                f"condition '{condition.id}': '{name}' is another value of '{signal}', numbered"
                f" from {MARK}2 on, with as many numbers ({len(first)}); got {list(value)}"
            )
        others.setdefault(number, {})[signal] = np.asarray(value, dtype=np.float64)
    goals = tuple(others[number] for number in sorted(others, key=int))
    return (dataclasses.replace(condition, poses=placed) if goals else condition), goals


class AnyGoal:
    """Judges by every goal at once; the metric ``goal`` says which is closest (0: the placed)."""

    def __init__(self, build: Callable[[], Task], goals: Sequence[Goal]) -> None:
        self._goals: list[Goal] = [{}, *goals]
        self._tasks = [build() for _ in self._goals]
        first = self._tasks[0]
        self.name, self.distributions = first.name, first.distributions
        self.max_steps, self.failures = first.max_steps, first.failures

    def reset(self) -> None:
        """Forget the last episode."""
        for task in self._tasks:
            task.reset()

    def judge(self, values: Signals) -> Outcome:
        """The best verdict; trouble ends the episode only if it does so for every goal."""
        verdicts = [
            task.judge({**values, **goal})
            for task, goal in zip(self._tasks, self._goals, strict=True)
        ]
        best = max(range(len(verdicts)), key=lambda i: (verdicts[i].success, verdicts[i].progress))
        found = verdicts[best]
        over = found.success or all(v.terminal for v in verdicts)
        return dataclasses.replace(
            found,
            terminal=over,
            reason=found.reason if over else "",
            metrics={**found.metrics, "goal": float(best)},
        )

    def check(self, poses: Mapping[str, Any]) -> None:
        """A start must be possible with every goal."""
        for task, goal in zip(self._tasks, self._goals, strict=True):
            task.check({**poses, **goal})

    def sample_condition(self, seed: int) -> Condition:
        """As the task: one goal."""
        return self._tasks[0].sample_condition(seed)
