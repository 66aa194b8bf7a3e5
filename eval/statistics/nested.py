"""Estimates means over two layers: rollouts in conditions, variants trained on or not.

What is drawn anew in the next experiment is the condition (or the variant), so that these are
what the intervals count; more rollouts of one condition only tell its own mean better.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.statistics.exact_tests import bounded_difference_p
from eval.statistics.intervals import (
    OUTCOME,
    Bounds,
    Estimate,
    bounded_difference,
    bounded_mean,
    square_and_add,
)
from eval.statistics.multiplicity import family
from eval.statistics.variance import components, interaction
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
        if rollouts < 1:
            raise DataError(f"a condition has one rollout at least, got {rollouts}")
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
    wrong = sum(int((~((g >= bounds[0]) & (g <= bounds[1]))).sum()) for g in groups)
    if wrong:
        raise DataError(
            f"expected scores in [{bounds[0]:g}, {bounds[1]:g}], {wrong} are outside or not"
            " numbers; give their bounds"
        )
    means = np.array([g.mean() for g in groups])
    estimate, spread = bounded_mean(means, *bounds, level), components(groups)
    trials = sum(g.size for g in groups)
    return NestedMean(estimate, trials / len(groups), trials, spread.between, spread.within)


@dataclass(frozen=True, slots=True)
class MixedEffect:
    """``b - a`` over the conditions; ``better`` is a name, or empty.

    The interval leaves out 0 exactly where there is a decision; both hold for all pairs together.
    """

    a: str
    b: str
    difference: Estimate
    p: float
    better: str


@dataclass(frozen=True, slots=True)
class MixedModel:
    """``outcome = policy + condition + policy on that condition + noise of the rollout``.

    Conditions and what a policy makes of them are random: what is said holds for conditions drawn
    anew. Variances, not below 0, are nan where the trials cannot tell them (one policy, one
    condition, one rollout each).
    """

    means: Mapping[str, NestedMean]
    effects: tuple[MixedEffect, ...]
    conditions: int
    # What all policies find hard or easy alike.
    of_conditions: float
    # What one policy finds harder than another does.
    of_policies_on_conditions: float
    of_rollouts: float


def mixed_model(
    outcomes: Mapping[str, Mapping[str, Sequence[float]]], alpha: float = 0.05
) -> MixedModel:
    """``outcomes[policy][condition]``: the outcomes in [0, 1] of its rollouts, one or more.

    Policies are compared by their means under each condition, which differ independently from
    condition to condition however alike the rollouts of one are: the bounded mean of these
    differences assumes neither bells nor equal numbers of rollouts, and all pairs are one family
    (Holm). With equal numbers the means are those of restricted maximum likelihood; with unequal
    ones conditions still count alike, so that a condition that was tried more often has no more
    say. Variances by analysis of unweighted means (Searle, Casella and McCulloch 1992, "Variance
    components", section 5.4), which for equal numbers is the usual analysis of variance.
    """
    cells, names = _cells(outcomes)
    level = 1.0 - alpha
    means = {name: mean_of_rollouts(row, level) for name, row in zip(outcomes, cells, strict=True)}
    table = np.array([[np.mean(cell) for cell in row] for row in cells])
    pairs = list(itertools.combinations(range(len(cells)), 2))
    members = family(
        [bounded_difference_p(table[i], table[j]) for i, j in pairs],
        [functools.partial(bounded_difference, table[i], table[j]) for i, j in pairs],
        alpha=alpha,
    )
    policies = list(outcomes)
    effects: list[MixedEffect] = []
    for (i, j), m in zip(pairs, members, strict=True):
        a, b = policies[i], policies[j]
        better = {"negative": a, "positive": b}.get(m.direction, "")
        effects.append(MixedEffect(a, b, m.difference, m.p, better))
    return MixedModel(means, tuple(effects), len(names), *_variances(cells, table))


def _cells(
    outcomes: Mapping[str, Mapping[str, Sequence[float]]],
) -> tuple[list[list[Array]], list[str]]:
    """Outcomes ``[policies][conditions]`` in the order of the first policy's conditions."""
    if not outcomes or not all(outcomes.values()):
        raise DataError("a mixed model needs a policy, and a condition of each")
    names = list(next(iter(outcomes.values())))
    for policy, found in outcomes.items():
        if apart := sorted(set(names) ^ set(found)):
            raise DataError(
                f"every policy needs the same conditions; {len(apart)} are not those of both"
                f" '{next(iter(outcomes))}' and '{policy}', for example '{apart[0]}'"
            )
    rows = [[np.asarray(found[n], dtype=np.float64) for n in names] for found in outcomes.values()]
    return rows, names


def _variances(cells: list[list[Array]], table: Array) -> tuple[float, float, float]:
    """Of conditions, of policies on conditions, of rollouts."""
    policies, conditions = table.shape
    every = [cell for row in cells for cell in row]
    single = components(every)
    if policies == 1:
        return single.between, math.nan, single.within
    if conditions == 1:
        return math.nan, math.nan, single.within
    both = interaction(table)
    alike = max(0.0, float(table.mean(axis=0).var(ddof=1)) - both / policies)
    noise = single.within * float(np.mean([1.0 / cell.size for cell in every]))
    return alike, max(0.0, both - noise) if math.isfinite(noise) else math.nan, single.within


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
