"""Loads the classifier that decides on success from pictures, as evaluations use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.trials.judge import Judge, JudgeCounts
from policies.imitation.success_classifier import load_success


@dataclass(frozen=True, slots=True)
class JudgeBuilder:
    """Loads the classifier in a worker."""

    folder: Path

    def __call__(self) -> Any:
        """From pictures to verdicts."""
        classifier = load_success(self.folder)

        def verdicts(pictures: Any) -> list[bool]:
            return [bool(p > 0.5) for p in classifier.probability(pictures)]

        return verdicts


def load_judge(folder: Path) -> Judge:
    """The classifier in ``folder`` as evaluations use it."""
    found = load_success(folder)
    h = found.held_out
    return Judge(
        hash=found.hash,
        signal=found.config.signal,
        build=JudgeBuilder(folder.absolute()),
        counts=JudgeCounts(h.true_positives, h.successes, h.false_positives, h.failures),
    )
