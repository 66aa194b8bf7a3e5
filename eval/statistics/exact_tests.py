"""Tests equality at a level that holds at every sample size: exactly, and by randomisation.

Each returns a p value, two-sided unless told otherwise. None is valid under peeking (``sequential``
is), nor for a family of comparisons (``multiplicity`` corrects).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from jaxtyping import Num
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import DIFFERENCE, check_counts, paired_successes, paired_values
from eval.statistics.random_weights import probability_below
from robolearn.errors import DataError
from robolearn.seeding import child_seed

# Of paired trials; successes may be whole numbers.
Scores = Num[NDArray[Any], " n"]


def mcnemar_exact(a: Any, b: Any) -> float:
    """Two-sided exact p value that paired success rates are equal (McNemar 1947, binomial form).

    Only the conditions on which the two differ count; without any the p value is 1.
    """
    x, y = paired_successes(a, b)
    only_a, only_b = int(np.sum(x > y)), int(np.sum(x < y))
    if only_a + only_b == 0:
        return 1.0
    return float(stats.binomtest(only_a, only_a + only_b, 0.5).pvalue)


def boschloo(k1: int, n1: int, k2: int, n2: int, alternative: str = "two-sided") -> float:
    """P value that two independent success rates are equal (Boschloo 1970, Stat. Neerl. 24:1).

    ``alternative="less"``: the first rate is smaller. Uniformly more powerful than Fisher's test.
    """
    check_counts(k1, n1)
    check_counts(k2, n2)
    if n1 == 0 or n2 == 0:
        raise DataError(f"two proportions need trials in both groups, got n = {n1} and {n2}")
    table = [[k1, k2], [n1 - k1, n2 - k2]]
    return float(stats.boschloo_exact(table, alternative=alternative).pvalue)


def barnard(k1: int, n1: int, k2: int, n2: int, alternative: str = "two-sided") -> float:
    """P value that two independent success rates are equal (Barnard 1945, pooled score order).

    ``alternative="less"``: the first rate is smaller.
    """
    check_counts(k1, n1)
    check_counts(k2, n2)
    if n1 == 0 or n2 == 0:
        raise DataError(f"two proportions need trials in both groups, got n = {n1} and {n2}")
    if k1 + k2 in (0, n1 + n2):
        return 1.0  # Nothing or everything succeeded: no table is less extreme.
    table = [[k1, k2], [n1 - k1, n2 - k2]]
    return float(stats.barnard_exact(table, alternative=alternative).pvalue)


def fisher(k1: int, n1: int, k2: int, n2: int, alternative: str = "two-sided") -> float:
    """P value of Fisher's exact test (1935); conservative, to compare with old tables."""
    check_counts(k1, n1)
    check_counts(k2, n2)
    table = [[k1, n1 - k1], [k2, n2 - k2]]
    result: Any = stats.fisher_exact(table, alternative=alternative)
    return float(result[1])


def bounded_mean_p(scores: Any, null: float, low: float = 0.0, high: float = 1.0) -> float:
    """Two-sided p value that scores in ``[low, high]`` have the mean ``null``; any distribution.

    At most ``1 - level`` exactly when :func:`eval.statistics.intervals.bounded_mean` leaves out
    ``null``; source and standing of the proof there.
    """
    x = np.sort(np.asarray(scores, dtype=np.float64).reshape(-1))
    if x.size == 0 or not np.isfinite(x).all() or x[0] < low - 1e-9 or x[-1] > high + 1e-9:
        raise DataError(f"expected finite scores in [{low:g}, {high:g}], at least one; got {x}")
    if not low < high:
        raise DataError(f"scores lie between two bounds, low first; got [{low:g}, {high:g}]")
    if not low <= null <= high:
        raise DataError(f"a mean of scores in [{low:g}, {high:g}] cannot be {null:g}")
    # Evidence that the mean is above ``null``, and that it is below.
    above = probability_below(np.append(x, low), null)
    below = probability_below(-np.append(x, high), -null)
    return min(1.0, 2.0 * min(above, below))


def bounded_difference_p(a: Any, b: Any) -> float:
    """Two-sided p value that paired scores in [0, 1] have equal means.

    No symmetry is assumed (:func:`sign_flip` needs it). For successes it equals
    :func:`mcnemar_exact`.
    """
    x, y = paired_values(a, b)
    return bounded_mean_p(y - x, 0.0, *DIFFERENCE) if x.size else 1.0


def sign_flip(a: Scores, b: Scores, *, flips: int = 20_000, seed: int = 0) -> float:
    """Two-sided p value that ``b - a`` is symmetric about 0 (Fisher 1935's paired randomisation).

    Assumes more than equal means: where differences are skewed (one policy rarely fails, but then
    badly) equal means are called different far too often, at 10 pairs in up to six of ten cases;
    :func:`bounded_difference_p` has no such assumption.
    Exact over all sign patterns up to 14 pairs that differ, by random ones beyond.
    """
    x, y = paired_values(a, b)
    d = y - x
    d = d[d != 0]
    if d.size == 0:
        return 1.0
    observed = abs(float(d.sum())) - 1e-12
    if d.size <= 14:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=d.size)))
        return float((np.abs(signs @ d) >= observed).mean())
    rng = np.random.default_rng(child_seed(seed, "sign_flip"))
    hits, part = 0, max(1, min(flips, 4_000_000 // d.size))
    for start in range(0, flips, part):
        signs = rng.integers(0, 2, (min(part, flips - start), d.size)) * 2.0 - 1.0
        hits += int((np.abs(signs @ d) >= observed).sum())
    return (hits + 1) / (flips + 1)
