"""Says how well estimates order policies: Spearman's correlation, and what the choice loses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from eval.statistics.intervals import Estimate, check_level, paired_values
from robolearn.errors import DataError
from robolearn.shapes import Floats

MIN_POLICIES = 2


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Estimates beside what trials say, over the policies that have both."""

    # Of the two orders.
    spearman: Estimate
    # The policy that the estimates prefer, and the one that did best.
    chosen: str
    best: str
    # Top-1 regret: by how much the best did better than the chosen one.
    regret: float


def spearman(a: Any, b: Any, level: float = 0.95) -> Estimate:
    """Correlation of ranks (ties share theirs) over pairs, at least four for an interval.

    Interval by Fisher's z with the standard error sqrt((1 + r^2 / 2) / (n - 3)) of Bonett and
    Wright 2000 (Psychometrika 65:23); for few pairs it is rough. Undefined (nan) for a constant.
    """
    check_level(level)
    x, y = paired_values(a, b)
    n, method = int(x.size), "Spearman, Bonett-Wright"
    if n < MIN_POLICIES or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Estimate(math.nan, math.nan, math.nan, n, method, level)
    ranks = stats.rankdata(x), stats.rankdata(y)
    # Rounded: the same for both orders of the arguments, and 1 where the orders are the same.
    value = round(float(np.clip(np.corrcoef(*ranks)[0, 1], -1.0, 1.0)), 12)
    if n <= 3:
        return Estimate(value, -1.0, 1.0, n, method, level)
    low, high = (float(end[0]) for end in spearman_interval(np.array([value]), n, level))
    return Estimate(value, low, high, n, method, level)


def spearman_interval(values: Floats, n: int, level: float = 0.95) -> tuple[Floats, Floats]:
    """Ends of the intervals of :func:`spearman` for many correlations of ``n`` pairs, four or
    more; nan stays nan.
    """
    # A perfect order of few says no more than one that is nearly so.
    centre = np.arctanh(np.clip(values, -1.0 + 1.0 / n**2, 1.0 - 1.0 / n**2))
    reach = float(stats.norm.ppf((1 + level) / 2)) * np.sqrt((1 + values**2 / 2) / (n - 3))
    low, high = np.tanh(centre - reach), np.tanh(centre + reach)
    return np.minimum(low, values), np.maximum(high, values)


def rank_agreement(
    estimates: Mapping[str, float], outcomes: Mapping[str, float], level: float = 0.95
) -> RankAgreement:
    """Of the policies in both, by their names; of equal estimates the first is chosen.

    Errors: :class:`DataError` where fewer than two have both.
    """
    both = [name for name in estimates if name in outcomes]
    if len(both) < MIN_POLICIES:
        raise DataError(
            f"{len(both)} of the policies {sorted(estimates)} have trials; an order takes two"
        )
    said, was = [estimates[n] for n in both], [outcomes[n] for n in both]
    chosen, best = both[int(np.argmax(said))], both[int(np.argmax(was))]
    regret = outcomes[best] - outcomes[chosen]
    return RankAgreement(spearman(said, was, level), chosen, best, regret)
