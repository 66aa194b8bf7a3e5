"""Tells whoever wants to know how far a practice is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from robolearn.operations.practice.records import VersionTest


@dataclass(frozen=True, slots=True)
class RoundReport:
    """How a practice stands after a round: shares of successes without a person's help among the
    last episodes of the parent and of what is learned (None: no such episode yet), and the figures
    of its updates.
    """

    rounds: int
    episodes: int
    decisions: int
    updates: int
    version: int | None
    parent: float | None
    explorer: float | None
    seconds: float
    cpu_seconds: float
    figures: Mapping[str, float]
    # Time in which episodes drove the arm [s].
    robot_seconds: float = 0.0
    # Share of the last episodes' steps that a person drove.
    person: float = 0.0


@dataclass(frozen=True, slots=True)
class PracticeListener:
    """Who wants to know how far it is."""

    # A round was taken in.
    on_round: Callable[[RoundReport], None] | None = None
    # A version was tried on held-out starts.
    on_test: Callable[[VersionTest], None] | None = None
