"""Judges success from pictures by a classifier that errs, and says how often."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eval.statistics.clusters import corrected_rate
from eval.statistics.intervals import Estimate
from robolearn.shapes import Picture
from robolearn.types import TrialRecord


@dataclass(frozen=True, slots=True)
class JudgeCounts:
    """How often the classifier that decided on success was right on held-out episodes."""

    true_positives: int
    successes: int
    false_positives: int
    failures: int

    def corrected(self, positives: int, n: int) -> Estimate:
        """The true success rate behind ``positives`` verdicts of ``n``."""
        return corrected_rate(
            positives,
            n,
            true_positives=self.true_positives,
            successes=self.successes,
            false_positives=self.false_positives,
            failures=self.failures,
        )

    def words(self, judge: str) -> str:
        """What the protocol says about the classifier with the hash ``judge``."""
        return (
            f"success was judged from pictures by the classifier {judge}, which recognised"
            f" {self.true_positives} of {self.successes} held-out successes and mistook"
            f" {self.false_positives} of {self.failures} held-out failures for one"
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """A classifier that decides on success from the last picture of ``signal``; it errs, and
    ``counts`` say how often.
    """

    hash: str
    signal: str
    build: Callable[[], Callable[[Sequence[Picture]], Sequence[bool]]]
    counts: JudgeCounts


def judged(records: Sequence[TrialRecord], verdicts: Sequence[bool]) -> tuple[TrialRecord, ...]:
    """The records with a classifier's verdicts; what the world said is kept as a metric."""
    return tuple(
        dataclasses.replace(
            r,
            success=bool(yes),
            reason="success" if yes else r.reason if r.reason != "success" else "judged_failed",
            metrics={**r.metrics, "world_success": float(r.success)},
        )
        for r, yes in zip(records, verdicts, strict=True)
    )
