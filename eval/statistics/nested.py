"""Means over two layers: rollouts within conditions, and variants that were or were not trained on.

What is drawn anew in the next experiment is the condition (or the variant), so that these are
what the intervals count; more rollouts of one condition only tell its own mean better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.statistics.intervals import OUTCOME, Bounds, Estimate, bounded_mean, square_and_add
from eval.statistics.variance import components
from robolearn.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NestedMean:
    """Mean over conditions of which each was tried several times.

    ``estimate.n`` counts conditions. Variances are those of a random-effects model (a score is its
    condition's mean plus noise), nan where one rollout each cannot tell them apart.
    """

    estimate: Estimate
    # Rollouts per condition on average, and of all conditions.
    rollouts: float
    trials: int
    between_conditions: float
    within_condition: float

    @property
    def share(self) -> float:
        """Share of the variance of one trial that its condition explains (intraclass)."""
        total = self.between_conditions + self.within_condition
        return self.between_conditions / total if total > 0 else math.nan

    def half_width_ratio(self, rollouts: int) -> float:
        """Width with ``rollouts`` per condition over the width with one, conditions unchanged."""
        total = self.between_conditions + self.within_condition
        if not total > 0:
            return math.nan
        return math.sqrt((self.between_conditions + self.within_condition / rollouts) / total)


def mean_of_rollouts(
    rollouts: Sequence[Any], level: float = 0.95, bounds: Bounds = OUTCOME
) -> NestedMean:
    """``rollouts[i]``: the scores under condition ``i`` (numbers of rollouts may differ).

    Interval: that of :func:`~eval.statistics.intervals.bounded_mean` over the means of the
    conditions, which are independent however alike the rollouts of one are; conditions count alike.
    Two policies: give differences over the same conditions and ``bounds=(-1, 1)``.
    """
    groups = [np.asarray(r, dtype=np.float64).reshape(-1) for r in rollouts]
    if not groups or min(g.size for g in groups) == 0:
        raise DataError("every condition needs at least one rollout, and there must be conditions")
    means = np.array([g.mean() for g in groups])
    estimate, spread = bounded_mean(means, *bounds, level), components(groups)
    trials = sum(g.size for g in groups)
    return NestedMean(estimate, trials / len(groups), trials, spread.between, spread.within)


@dataclass(frozen=True, slots=True)
class GeneralisationGap:
    """Means over variants that were trained on and over unseen ones, and what is lost between.

    ``gap`` is seen less unseen; every ``n`` counts variants.
    """

    seen: Estimate
    unseen: Estimate
    gap: Estimate


def generalisation_gap(
    seen: Sequence[Any], unseen: Sequence[Any], level: float = 0.95, bounds: Bounds = OUTCOME
) -> GeneralisationGap:
    """``seen[i]``, ``unseen[j]``: the scores in one variant each (objects, scenes, layouts).

    Variants of both kinds are independent draws from one distribution; with few of them the
    interval is as wide as few variants deserve, whatever the number of trials in each. The interval
    of the gap adds those of the two means (:func:`~eval.statistics.intervals.square_and_add`).
    """
    first = mean_of_rollouts(seen, level, bounds).estimate
    second = mean_of_rollouts(unseen, level, bounds).estimate
    return GeneralisationGap(
        first, second, square_and_add(first, second, "bounded means, square-and-add")
    )
