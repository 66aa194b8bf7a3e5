"""Estimates means of trials that are not independent: several per condition or training seed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from eval.statistics.intervals import Bounds, Estimate, check_level, mean_of_equals
from robolearn.errors import DataError

Array = NDArray[np.float64]


def mean_clustered(
    values: Any,
    clusters: Sequence[Hashable],
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
) -> Estimate:
    """Mean with a cluster-robust interval; trials of one cluster may depend on each other.

    Sandwich variance with the correction ``G / (G - 1)`` and Student's quantile with ``G - 1``
    degrees of freedom (Cameron and Miller 2015, "A practitioner's guide to cluster-robust
    inference", section VI). ``n`` counts clusters: they, not trials, carry the information.
    ``bounds``: what the values cannot exceed (:func:`eval.statistics.intervals.mean_of_equals`
    where nothing varies).
    """
    check_level(level)
    x = _values(values, len(clusters))
    totals, sizes = _sums(x - x.mean(), clusters)
    groups = sizes.size
    method = "cluster-robust t"
    if groups == 1:
        return Estimate(float(x.mean()), -math.inf, math.inf, 1, method, level)
    variance = groups / (groups - 1) * float((totals**2).sum()) / x.size**2
    return _student(float(x.mean()), variance, groups, method, level, bounds)


def mean_two_way(
    values: Any,
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
) -> Estimate:
    """Mean when trials cluster in two ways at once (training seeds and conditions).

    Variance: that of each clustering, added, less that of their intersection (Cameron, Gelbach and
    Miller 2011, "Robust inference with multiway clustering"); not below the larger of the two.
    ``n`` and the degrees of freedom are those of the coarser clustering. ``bounds``: what the
    values cannot exceed (:func:`eval.statistics.intervals.mean_of_equals` where nothing varies).
    """
    check_level(level)
    x = _values(values, len(first))
    if len(second) != x.size:
        raise DataError(f"every value needs both clusters, got {len(second)} for {x.size}")
    residual = x - x.mean()
    both = list(zip(first, second, strict=True))
    parts: list[float] = []
    groups: list[int] = []
    for labels in (first, second, both):
        totals, sizes = _sums(residual, labels)
        count = sizes.size
        factor = count / (count - 1) if count > 1 else math.inf
        parts.append(factor * float((totals**2).sum()) / x.size**2)
        groups.append(count)
    smallest, mean = min(groups[:2]), float(x.mean())
    method = "two-way cluster-robust t"
    if smallest == 1:
        return Estimate(mean, -math.inf, math.inf, 1, method, level)
    variance = max(parts[0] + parts[1] - parts[2], parts[0], parts[1])
    return _student(mean, variance, smallest, method, level, bounds)


def _student(
    mean: float, variance: float, groups: int, method: str, level: float, bounds: Bounds | None
) -> Estimate:
    # What is left of equal values is their rounding.
    if bounds is not None and math.sqrt(variance) < 1e-12:
        return mean_of_equals(mean, groups, bounds, level)
    half = float(scipy.stats.t.ppf((1 + level) / 2, groups - 1)) * math.sqrt(variance)
    least, most = bounds or (-math.inf, math.inf)
    return Estimate(mean, max(least, mean - half), min(most, mean + half), groups, method, level)


def corrected_rate(
    positives: int,
    n: int,
    *,
    true_positives: int,
    successes: int,
    false_positives: int,
    failures: int,
    level: float = 0.95,
    draws: int = 40_000,
    seed: int = 20240501,
) -> Estimate:
    """True success rate behind ``positives`` of ``n`` verdicts of an imperfect classifier.

    The classifier said yes to ``true_positives`` of ``successes`` and ``false_positives`` of
    ``failures`` labelled held-out episodes. Value: Rogan and Gladen 1978, cut to [0, 1]. Interval:
    posterior draws of the three rates (Jeffreys priors), each corrected alike, so that a badly
    known classifier gives a wide interval.
    """
    check_level(level)
    for k, m in ((positives, n), (true_positives, successes), (false_positives, failures)):
        if not 0 <= k <= m or m == 0:
            raise DataError(f"expected 0 <= count <= total with a positive total, got {k} of {m}")
    sensitivity, false_alarm = true_positives / successes, false_positives / failures
    if sensitivity <= false_alarm:
        raise DataError(
            f"the classifier says yes to {sensitivity:.2f} of the successes and"
            f" {false_alarm:.2f} of the failures: it cannot tell them apart;"
            " train it on more labels"
        )
    rng = np.random.default_rng(seed)
    q = rng.beta(0.5 + positives, 0.5 + n - positives, draws)
    s = rng.beta(0.5 + true_positives, 0.5 + successes - true_positives, draws)
    f = rng.beta(0.5 + false_positives, 0.5 + failures - false_positives, draws)
    usable = s > f
    rates = np.clip((q[usable] - f[usable]) / (s[usable] - f[usable]), 0.0, 1.0)
    low, high = np.percentile(rates, [50 * (1 - level), 50 * (1 + level)])
    value = min(1.0, max(0.0, (positives / n - false_alarm) / (sensitivity - false_alarm)))
    # At the ends the posterior leaves out the end itself, which is where the value lies.
    low, high = min(value, float(low)), max(value, float(high))
    return Estimate(value, low, high, n, "Rogan-Gladen, Jeffreys draws", level)


def _sums(residual: Array, labels: Sequence[Hashable]) -> tuple[Array, NDArray[np.int64]]:
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    index = np.array([numbers[label] for label in labels])
    totals = np.bincount(index, residual).astype(np.float64)
    return totals, np.bincount(index).astype(np.int64)


def _values(values: Any, labels: int) -> Array:
    x = np.asarray(values, dtype=np.float64).reshape(-1)
    if x.size == 0 or x.size != labels:
        raise DataError(f"every value needs a cluster, got {x.size} values and {labels} clusters")
    if not np.isfinite(x).all():
        raise DataError(f"{int((~np.isfinite(x)).sum())} of {x.size} values are not finite")
    return x
