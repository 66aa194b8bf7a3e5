"""Defines what a task is: what counts as progress and success, and where episodes start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from robolearn.types import Condition, Outcome, Signals


@runtime_checkable
class Task(Protocol):
    """Judges states; holds the sticky part of an episode's outcome."""

    @property
    def name(self) -> str:
        """The task's name in scenes, episodes and trials."""
        ...

    @property
    def distributions(self) -> tuple[str, ...]:
        """Names of the reset distributions that the task can draw from."""
        ...

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        ...

    @property
    def failures(self) -> tuple[str, ...]:
        """Words of its own that an episode's ``reason`` may be, besides the loop's."""
        ...

    def reset(self) -> None:
        """Forget the last episode."""
        ...

    def judge(self, values: Signals) -> Outcome:
        """The outcome now, from the newest values of the signals."""
        ...

    def check(self, poses: Mapping[str, Any]) -> None:
        """Raise :class:`DataError` for a start that the task cannot have (objects overlap)."""
        ...

    def sample_condition(self, seed: int) -> Condition:
        """A start drawn from the task's reset distribution; a pure function of ``seed``."""
        ...
