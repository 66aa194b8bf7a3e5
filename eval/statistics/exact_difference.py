"""Bounds the difference of two independent success rates and never covers too little.

Source: Chan and Zhang 1999, "Test-based exact confidence intervals for the difference of two
binomial proportions", Biometrics 55:1202: the two one-sided exact unconditional tests, tables
ordered by the score statistic (Farrington and Manning 1990, Statistics in Medicine 9:1447), the
worst nuisance rate taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Num
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import Estimate, check_counts, check_level
from robolearn.errors import DataError
from robolearn.shapes import AnyFloats

Array = NDArray[np.float64]
# Successes, whole or not, of any shape.
Counts = Num[NDArray[Any], "..."]

# Nuisance rates tried, and differences scanned from outside before the end is refined.
_RATES = 128
_STEPS = 40
# Outcomes of both that it goes through.
MOST_TABLES = 100_000


def exact_difference(k1: int, n1: int, k2: int, n2: int, level: float = 0.95) -> Estimate:
    """Interval of ``k1/n1 - k2/n2``; wider than Newcombe's, which at the edges covers .86."""
    check_counts(k1, n1)
    check_counts(k2, n2)
    check_level(level)
    if n1 == 0 or n2 == 0 or (n1 + 1) * (n2 + 1) > MOST_TABLES:
        raise DataError(
            f"the exact interval takes 1 to about 300 trials per policy, got {n1} and {n2}; use"
            " newcombe, which covers well with so many"
        )
    tail = (1.0 - level) / 2.0
    low = _lower_end(k1, n1, k2, n2, tail)
    high = -_lower_end(k2, n2, k1, n1, tail)
    return Estimate(k1 / n1 - k2 / n2, low, high, n1 + n2, "exact unconditional", level)


def _lower_end(k1: int, n1: int, k2: int, n2: int, tail: float) -> float:
    """The smallest difference that is not rejected in favour of larger ones."""
    value = k1 / n1 - k2 / n2
    outside = -1.0
    for inside in np.linspace(-1.0, value, _STEPS + 1)[1:]:
        if _largest_p(k1, n1, k2, n2, float(inside)) > tail:
            break
        outside = float(inside)
    else:
        return value
    low, high = outside, float(inside)
    while high - low > 1e-5:
        middle = (low + high) / 2.0
        if _largest_p(k1, n1, k2, n2, middle) > tail:
            high = middle
        else:
            low = middle
    return low


def _largest_p(k1: int, n1: int, k2: int, n2: int, difference: float) -> float:
    """Probability of tables as far above ``difference`` as the observed one, at the worst rate."""
    first, second = np.arange(n1 + 1.0)[:, None], np.arange(n2 + 1.0)[None]
    z = score(first, n1, second, n2, difference)
    extreme = z >= z[k1, k2] - 1e-9
    rates = np.linspace(max(0.0, -difference), min(1.0, 1.0 - difference), _RATES)
    mass_1 = stats.binom.pmf(first.T, n1, np.clip(rates + difference, 0, 1)[:, None])
    mass_2 = stats.binom.pmf(second, n2, rates[:, None])
    return float(((mass_1 @ extreme) * mass_2).sum(axis=1).max())


def score(k1: Counts, n1: int, k2: Counts, n2: int, difference: float) -> AnyFloats:
    """Score statistic of ``p1 - p2 = difference``; the variance is that of the rates which are most
    likely under it (a cubic equation with one root in range).
    """
    p1, p2, ratio = k1 / n1, k2 / n2, n2 / n1
    a = 1.0 + ratio
    b = -(1.0 + ratio + p1 + ratio * p2 + difference * (ratio + 2.0))
    c = difference**2 + difference * (2.0 * p1 + ratio + 1.0) + p1 + ratio * p2
    d = -p1 * difference * (1.0 + difference)
    v = b**3 / (27.0 * a**3) - b * c / (6.0 * a**2) + d / (2.0 * a)
    u = np.copysign(np.sqrt(np.maximum(0.0, b**2 / (9.0 * a**2) - c / (3.0 * a))), v)
    cosine = np.divide(v, u**3, out=np.ones_like(v), where=np.abs(u) > 1e-12)
    angle = (math.pi + np.arccos(np.clip(cosine, -1.0, 1.0))) / 3.0
    likely_1 = np.clip(2.0 * u * np.cos(angle) - b / (3.0 * a), max(0.0, difference), 1.0)
    likely_1 = np.minimum(likely_1, min(1.0, 1.0 + difference))
    likely_2 = likely_1 - difference
    variance = likely_1 * (1.0 - likely_1) / n1 + likely_2 * (1.0 - likely_2) / n2
    gap = p1 - p2 - difference
    spread = np.sqrt(np.maximum(variance, 1e-12))
    return np.asarray(np.where(np.abs(gap) < 1e-12, 0.0, gap / spread))
