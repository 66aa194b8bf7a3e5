"""Aggregates over runs and tasks, in the definitions of rliable.

Source: Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice".
Scores of one method: ``scores [runs, tasks]``, one number per training run and task (for success:
the *rate* of that run on that task; on single successes the interquartile mean is 0 or 1).
Intervals resample runs within each task (stratified bootstrap, percentiles).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import (
    BOOTSTRAP_SEED,
    RESAMPLES,
    Bounds,
    Estimate,
    check_level,
    mean_t,
)
from eval.statistics.variance import components
from robolearn.errors import DataError
from robolearn.shapes import AnyFloats, Floats

Array = NDArray[np.float64]
Statistic = Callable[[AnyFloats], float]


def iqm(scores: AnyFloats) -> float:
    """Interquartile mean over all runs and tasks: the mean of the middle half."""
    return float(stats.trim_mean(scores.ravel(), 0.25))


def optimality_gap(scores: AnyFloats, gamma: float = 1.0) -> float:
    """How far the scores fall short of ``gamma`` on average; what exceeds it does not count."""
    return float(gamma - np.minimum(scores, gamma).mean())


def mean(scores: AnyFloats) -> float:
    """Mean over tasks of the mean over runs."""
    return float(scores.mean())


def median(scores: AnyFloats) -> float:
    """Median over tasks of the mean over runs."""
    return float(np.median(scores.mean(axis=0)))


def aggregate(
    scores: Any,
    statistic: Statistic = iqm,
    level: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Estimate:
    """A statistic of ``scores [runs, tasks]`` with its stratified bootstrap interval.

    With one run the interval is unbounded: nothing is known about the spread over runs.
    """
    check_level(level)
    x = _matrix(scores)
    name = f"{statistic.__name__}, stratified bootstrap"
    if x.shape[0] == 1:
        # Resampling one run gives that run again: its interval would have no width.
        return Estimate(statistic(x), -math.inf, math.inf, 1, name, level)
    draws = np.array([statistic(sample) for sample in _stratified(x, resamples, seed)])
    low, high = np.percentile(draws, [50 * (1 - level), 50 * (1 + level)])
    return Estimate(statistic(x), float(low), float(high), int(x.shape[0]), name, level)


def probability_of_improvement(
    x: Any,
    y: Any,
    level: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Estimate:
    """P(a run of ``x`` scores more than a run of ``y``), ties half, mean over tasks."""
    check_level(level)
    a, b = _matrix(x), _matrix(y)
    if a.shape[1] != b.shape[1]:
        raise DataError(f"both need the same tasks, got {a.shape[1]} and {b.shape[1]}")
    rng_a, rng_b = (_stratified(v, resamples, seed + i) for i, v in enumerate((a, b)))
    draws = np.array([_mann_whitney(p, q) for p, q in zip(rng_a, rng_b, strict=True)])
    low, high = np.percentile(draws, [50 * (1 - level), 50 * (1 + level)])
    if min(a.shape[0], b.shape[0]) == 1:
        low, high = 0.0, 1.0  # One run says nothing about the spread over runs.
    n = int(a.shape[0] + b.shape[0])
    method = "probability of improvement, stratified bootstrap"
    return Estimate(_mann_whitney(a, b), float(low), float(high), n, method, level)


@dataclass(frozen=True, slots=True)
class Profile:
    """Share of runs with a score above ``tau [k]``: ``value``, ``low``, ``high [k]``."""

    tau: Floats
    value: Floats
    low: Floats
    high: Floats
    level: float


def performance_profile(
    scores: Any,
    tau: Sequence[float],
    level: float = 0.95,
    *,
    resamples: int = 2000,
    seed: int = BOOTSTRAP_SEED,
) -> Profile:
    """Score distribution ``tau -> mean of [score > tau]`` with pointwise intervals.

    With one run they are [0, 1]: nothing is known about the spread over runs.
    """
    check_level(level)
    x, at = _matrix(scores), np.asarray(tau, dtype=np.float64)
    if not np.isfinite(at).all():
        raise DataError(f"thresholds are finite numbers, got {at.tolist()}")

    def above(sample: Array) -> Array:
        return (sample[None] > at[:, None, None]).mean(axis=(1, 2))

    if x.shape[0] == 1:
        return Profile(at, above(x), np.zeros(at.shape), np.ones(at.shape), level)
    draws = np.stack([above(sample) for sample in _stratified(x, resamples, seed)])
    low, high = np.percentile(draws, [50 * (1 - level), 50 * (1 + level)], axis=0)
    return Profile(at, above(x), low, high, level)


def _mann_whitney(a: Array, b: Array) -> float:
    wins = (a[:, None] > b[None]).mean(axis=(0, 1))
    ties = (a[:, None] == b[None]).mean(axis=(0, 1))
    return float((wins + 0.5 * ties).mean())


def _stratified(x: Array, resamples: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    runs, tasks = x.shape
    columns = np.arange(tasks)
    for _ in range(resamples):
        yield x[rng.integers(0, runs, (runs, tasks)), columns]


def _matrix(scores: Any) -> Array:
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or x.size == 0:
        raise DataError(f"scores are [runs, tasks] with at least one of each, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise DataError(f"{int((~np.isfinite(x)).sum())} of {x.size} scores are not finite")
    return x


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of scores over training runs apart from that over episodes.

    ``between``: standard deviation of the runs' true means (0 when the runs differ no more than
    their episodes explain); ``within``: standard deviation of episodes of one run; ``share``:
    intraclass correlation, the share of the variance that is due to the run; ``mean``: over runs,
    with Student's interval over the runs' means (n = runs, not episodes).
    """

    mean: Estimate
    between: float
    within: float
    share: float
    runs: int
    episodes: int


def spread_over_runs(
    values: Sequence[Any], level: float = 0.95, *, bounds: Bounds | None = None
) -> Spread:
    """One-way random-effects analysis of variance; ``values[run]`` are that run's episodes, which
    cannot exceed ``bounds``.
    """
    groups = [np.asarray(v, dtype=np.float64).reshape(-1) for v in values]
    if not groups or any(g.size == 0 or not np.isfinite(g).all() for g in groups):
        raise DataError("every run needs at least one finite episode score")
    found = components(groups)
    variance = found.between + found.within
    return Spread(
        mean=mean_t([g.mean() for g in groups], level, bounds=bounds),
        between=math.sqrt(found.between),
        within=math.sqrt(found.within),
        # Not a number with one run.
        share=found.between / variance if variance != 0 else 0.0,
        runs=len(groups),
        episodes=sum(g.size for g in groups),
    )
