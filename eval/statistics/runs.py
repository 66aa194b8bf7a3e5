"""Estimates means of methods over training runs, few, unequal in number, now and then collapsed.

A training run is what one would draw anew; the trials of one run share its luck, and all runs share
the conditions. Three runs say little: what they leave open is told by the width of the interval.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from eval.statistics.intervals import (
    DIFFERENCE,
    Estimate,
    bounded_mean,
    check_level,
    mean_of_equals,
    square_and_add,
)
from eval.statistics.variance import interaction
from robolearn.errors import DataError
from robolearn.seeding import child_seed
from robolearn.shapes import Floats

Array = NDArray[np.float64]

# A run this far from the median of its method, in scores and in robust standard deviations, is not
# the tail of a bell.
_FAR = 0.2
_DEVIATIONS = 5.0
# Relabellings of runs: all of them up to so many, else so many drawn ones.
_RELABELLINGS = 1_000


@dataclass(frozen=True, slots=True)
class MeanOverRuns:
    """Mean of a method; ``estimate.n`` counts runs."""

    # Holds for every distribution of runs, so also for those that collapse now and then.
    estimate: Estimate
    # Student's t: right where runs scatter like a bell, far too narrow where some collapse.
    student: Estimate
    # Indices of runs far from the others.
    collapsed: tuple[int, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DifferenceOverRuns:
    """Mean of method b less that of method a, with the two-sided p value that it is zero.

    The interval leaves out 0 only where ``p`` decides at its level.
    """

    estimate: Estimate
    p: float
    # Indices of runs far from the others of their method.
    collapsed_a: tuple[int, ...]
    collapsed_b: tuple[int, ...]
    warnings: tuple[str, ...]


def mean_over_runs(scores: Any, level: float = 0.95, *, name: str = "the method") -> MeanOverRuns:
    """``scores [runs, conditions]`` in [0, 1] of one method; ``name``: what warnings call it.

    The means of the runs have the interval of :func:`~eval.statistics.intervals.bounded_mean`, the
    conditions add what they vary beyond the noise of single trials (Student's t over conditions,
    joined by square-and-add).
    """
    x = _table(scores, "scores")
    runs, conditions = x.shape
    means = x.mean(axis=1)
    over_runs = bounded_mean(means, level=level)
    excess = _excess_of_conditions(x.mean(axis=0), _of_runs(x), [x])
    half = _student(level, conditions) * math.sqrt(excess) if excess > 0 else 0.0
    mean = over_runs.value
    low = max(0.0, mean - math.hypot(mean - over_runs.low, half))
    high = min(1.0, mean + math.hypot(over_runs.high - mean, half))
    estimate = Estimate(mean, low, high, runs, "bounded mean over runs and conditions", level)
    collapsed = collapsed_runs(means)
    return MeanOverRuns(
        estimate, _student_mean(x, level), collapsed, _warnings(name, means, collapsed)
    )


def difference_over_runs(
    a: Any, b: Any, level: float = 0.95, *, names: tuple[str, str] = ("a", "b"), seed: int = 0
) -> DifferenceOverRuns:
    """Two methods of several runs each over the same conditions, scores in [0, 1].

    ``a [runs, conditions]``, ``b [other runs, conditions]``; ``names``: what warnings call them.

    Variance: that of the mean over each method's runs, and what the difference varies over
    conditions beyond the noise of single trials. The critical value weighs Student's quantiles of
    the three parts by their variances (Cochran and Cox 1950, "Experimental designs", section 4.14),
    which keeps the level with few and unequal runs, where Welch's degrees of freedom do not.

    This takes the means of runs to scatter like a bell, and refuses to decide (``p`` 1) where a
    method has two of them; of a method with one run only that run is compared. Where some run lies
    far from the others, runs are relabelled, too (studentised permutation test: Janssen 1997, Stat.
    Prob. Letters 36:9), the larger p value counts, and the interval is that of bounded means over
    the runs.
    """
    check_level(level)
    x, y = _table(a, "a"), _table(b, "b")
    if x.shape[1] != y.shape[1]:
        raise DataError(f"both methods need the same conditions, got {x.shape} and {y.shape}")
    value = float(y.mean() - x.mean())
    means = x.mean(axis=1), y.mean(axis=1)
    far_a, far_b = collapsed_runs(means[0]), collapsed_runs(means[1])
    warnings = (*_warnings(names[0], means[0], far_a), *_warnings(names[1], means[1], far_b))
    runs = min(x.shape[0], y.shape[0])
    several = [v for v in (x, y) if v.shape[0] > 1]
    if not several or x.shape[1] == 1:
        unknown = Estimate(value, -1.0, 1.0, runs, "no spread of runs", level)
        return DifferenceOverRuns(unknown, 1.0, far_a, far_b, warnings)
    parts = [(_of_runs(v), v.shape[0]) for v in several]
    excess = _excess_of_conditions(y.mean(axis=0) - x.mean(axis=0), _sum(parts), several)
    parts.append((excess, x.shape[1]))
    estimate, p = _cochran(value, parts, runs, level)
    if any(v.shape[0] == 2 for v in several):
        # Two runs that happen to agree would prove anything.
        p = 1.0
        low, high = max(-1.0, min(estimate.low, 0.0)), min(1.0, max(estimate.high, 0.0))
        estimate = replace(estimate, low=low, high=high)
        warnings += ("two training runs of a method do not show its spread; train three or more",)
    elif far_a or far_b:
        p = max(p, _relabelled(*means, child_seed(seed, "difference_over_runs")))
        estimate = _wider(estimate, x, y, p, level)
    return DifferenceOverRuns(estimate, p, far_a, far_b, warnings)


def collapsed_runs(means: Floats) -> tuple[int, ...]:
    """Indices of the runs that lie far from the median run, on either side; none of two runs."""
    if means.size < 3:
        return ()
    distance = np.abs(means - np.median(means))
    robust = 1.4826 * float(np.median(distance))
    far = distance > max(_FAR, _DEVIATIONS * robust)
    return tuple(int(i) for i in np.flatnonzero(far))


def _of_runs(x: Array) -> float:
    """Variance of the mean over runs; 0 where one run cannot tell."""
    return float(x.mean(axis=1).var(ddof=1)) / x.shape[0] if x.shape[0] > 1 else 0.0


def _excess_of_conditions(by_condition: Array, by_run: float, tables: list[Array]) -> float:
    """Variance of a mean that its conditions add to that of its runs, ``by_run``.

    Single trials vary in both; what they do is taken off once.
    """
    spread = float(by_condition.var(ddof=1)) / by_condition.size if by_condition.size > 1 else 0.0
    noise = sum(interaction(v) / v.size for v in tables if min(v.shape) > 1)
    return max(spread - noise, spread - by_run, 0.0)


def _student_mean(x: Array, level: float) -> Estimate:
    runs, mean = x.shape[0], float(x.mean())
    if runs == 1:
        return Estimate(mean, 0.0, 1.0, 1, "no spread of runs", level)
    by_run = _of_runs(x)
    excess = _excess_of_conditions(x.mean(axis=0), by_run, [x])
    found, _ = _cochran(mean, [(by_run, runs), (excess, x.shape[1])], runs, level)
    return Estimate(mean, max(0.0, found.low), min(1.0, found.high), runs, found.method, level)


def _cochran(
    value: float, parts: list[tuple[float, int]], runs: int, level: float
) -> tuple[Estimate, float]:
    """Interval and p value of ``value``, whose variance is a sum of independently estimated parts
    ``(variance, number of units)``.
    """
    method = "runs and conditions, Cochran's t"
    variance = _sum(parts)
    if variance == 0:
        # Under equality either sign of a run's difference is as likely as the other.
        p = 1.0 if value == 0 else 2.0 ** (1 - runs)
        return mean_of_equals(value, runs, DIFFERENCE, level), p

    def critical(p: float) -> float:
        return sum(v * _student(1.0 - p, units) for v, units in parts if v > 0) / variance

    half = critical(1.0 - level) * math.sqrt(variance)
    t = abs(value) / math.sqrt(variance)
    p = _root(lambda p: critical(p) - t) if t > 0 else 1.0
    low, high = max(-1.0, value - half), min(1.0, value + half)
    return Estimate(value, low, high, runs, method, level), p


def _root(excess: Any) -> float:
    """The p value whose critical value is the statistic; the quantile is infinite at 0."""
    least = 1e-15
    if excess(least) < 0:
        return least
    found: float = optimize.brentq(excess, least, 1.0, xtol=1e-15)  # pyright: ignore[reportAssignmentType]
    return found


def _relabelled(a: Array, b: Array, seed: int) -> float:
    """Share of the relabellings of runs with a studentised difference as large as the real one."""
    pooled, size = np.concatenate([a, b]), a.size
    if math.comb(pooled.size, size) <= _RELABELLINGS:
        chosen = np.array(list(itertools.combinations(range(pooled.size), size)))
    else:
        rng = np.random.default_rng(seed)
        drawn = rng.permuted(np.tile(np.arange(pooled.size), (_RELABELLINGS - 1, 1)), axis=1)
        chosen = np.concatenate([np.arange(size)[None], drawn[:, :size]])
    first = np.zeros((len(chosen), pooled.size), dtype=np.bool_)
    first[np.arange(len(chosen))[:, None], chosen] = True
    x = pooled[chosen]
    y = np.broadcast_to(pooled, first.shape)[~first].reshape(len(chosen), -1)
    spread = sum(
        v.var(axis=1, ddof=1) / v.shape[1] if v.shape[1] > 1 else np.zeros(len(v)) for v in (x, y)
    )
    statistic = np.abs(x.mean(axis=1) - y.mean(axis=1)) / np.sqrt(spread + 1e-12)
    return float((statistic >= statistic[0] * (1.0 - 1e-9)).mean())


def _wider(narrow: Estimate, x: Array, y: Array, p: float, level: float) -> Estimate:
    """The interval where some runs collapsed; it holds 0 unless ``p`` decides."""
    first, second = mean_over_runs(x, level).estimate, mean_over_runs(y, level).estimate
    wide = square_and_add(second, first, "bounded means over runs, square-and-add")
    low, high = max(-1.0, min(wide.low, narrow.low)), min(1.0, max(wide.high, narrow.high))
    if p > 1.0 - level:
        low, high = min(low, 0.0), max(high, 0.0)
    return Estimate(narrow.value, low, high, narrow.n, wide.method, level)


def _warnings(name: str, means: Array, collapsed: tuple[int, ...]) -> tuple[str, ...]:
    if means.size == 1:
        return (f"{name} is one training run: what is said holds for that run only",)
    if not collapsed:
        return ()
    values = ", ".join(f"{means[i]:.2f}" for i in collapsed)
    told = (
        f"{len(collapsed)} of the {means.size} runs of {name} lie far from the others ({values};"
        f" median {np.median(means):.2f}): the mean says little about a single run, and the"
        " interval holds for runs that collapse"
    )
    return (told,)


def _student(level: float, units: int) -> float:
    # What ``scipy.stats.t.ppf`` calls after checks that take fifty times as long.
    return float(special.stdtrit(units - 1, (1.0 + level) / 2.0))


def _sum(parts: list[tuple[float, int]]) -> float:
    return sum(v for v, _ in parts)


def _table(values: Any, name: str) -> Array:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or x.size == 0:
        raise DataError(f"{name}: expected [runs, conditions], got shape {x.shape}")
    if not (np.isfinite(x).all() and x.min() >= 0 and x.max() <= 1):
        raise DataError(f"{name}: expected finite scores in [0, 1]")
    return x
