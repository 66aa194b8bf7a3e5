"""Tells how far an evaluation is, from sums: trials are not kept, or copied, to say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from robolearn.types import TrialRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after every chunk: ``added`` trials of one policy in one world, which now has ``n`` with
    the mean ``score``.
    """

    policy: str
    world: str
    added: int
    n: int
    score: float


@dataclass(slots=True)
class Tally:
    """The trials of one policy in one world so far."""

    n: int = 0
    total: float = 0.0

    def add(self, records: Iterable[TrialRecord]) -> None:
        """Count some more."""
        for r in records:
            self.n, self.total = self.n + 1, self.total + r.score

    def progress(self, policy: str, world: str, added: int) -> Progress:
        """What there is to tell."""
        return Progress(policy, world, added, self.n, self.total / max(1, self.n))
