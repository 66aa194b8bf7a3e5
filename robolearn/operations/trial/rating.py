"""Asks how far a trial came by the steps of its plan's rubric."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from eval.blinded.plan import TrialPlan
from robolearn.runtime import EpisodeResult


@runtime_checkable
class Rater(Protocol):
    """Who is told of trials and asked about them."""

    def told(self, what: str, text: str) -> None:
        """How a trial went."""
        ...

    def choose(self, question: str, answers: Sequence[str]) -> int:
        """Which of ``answers`` (its index)."""
        ...


def rate(plan: TrialPlan, rater: Rater) -> float | None:
    """How far the trial came by the rubric, in [0, 1]; None without one."""
    if not plan.rubric:
        return None
    answers = ("nothing of it", *plan.rubric)
    reached = rater.choose("how far did it come?", answers)
    return reached / len(plan.rubric)


def rubric_figures(rating: float | None) -> dict[str, float]:
    """What a trial's metrics keep of the rubric."""
    return {} if rating is None else {"rubric_progress": rating}


def rated_result(result: EpisodeResult, rating: float) -> EpisodeResult:
    """What came of a trial by its rating: the whole rubric is success."""
    outcome = dataclasses.replace(
        result.outcome, success=rating == 1.0, progress=rating, reason="rubric"
    )
    return dataclasses.replace(result, outcome=outcome, score=rating)
