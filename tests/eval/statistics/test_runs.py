"""Methods over their training runs: few, unequal in number, collapsed now and then."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from eval.statistics.runs import collapsed_runs, difference_over_runs, mean_over_runs
from robolearn.errors import DataError


def scores(rng, runs, conditions=20, *, luck=0.1, collapse=0.0, shared=None, level=0.5):
    """``[runs, conditions]``; means of runs are bells, some runs fail altogether."""
    shared = np.zeros(conditions) if shared is None else shared
    of_run = np.clip(rng.normal(0, luck, (runs, 1)), -0.36, 0.36)
    m = level + of_run + shared + rng.uniform(-0.1, 0.1, (runs, conditions))
    return np.clip(np.where(rng.random((runs, 1)) < collapse, 0.02, m), 0, 1)


REGIMES = [
    # Runs of a and b, luck of a and b, share of collapsed runs.
    (3, 3, 0.1, 0.1, 0.0),
    (3, 8, 0.12, 0.03, 0.0),
    (8, 3, 0.12, 0.03, 0.0),
    (5, 20, 0.02, 0.02, 0.2),
    (3, 10, 0.02, 0.02, 0.2),
]


@pytest.mark.parametrize(("runs_a", "runs_b", "luck_a", "luck_b", "collapse"), REGIMES)
def test_equal_methods_are_rarely_separated(runs_a, runs_b, luck_a, luck_b, collapse):
    rng = np.random.default_rng(7)
    n, wrong, covered = 100, 0, 0
    for _ in range(n):
        shared = rng.uniform(-0.1, 0.1, 20)
        a = scores(rng, runs_a, luck=luck_a, collapse=collapse, shared=shared)
        b = scores(rng, runs_b, luck=luck_b, collapse=collapse, shared=shared)
        found = difference_over_runs(a, b)
        wrong += found.p <= 0.05
        covered += found.estimate.low <= 0 <= found.estimate.high
    slack = 2 * math.sqrt(0.05 * 0.95 / n)
    assert wrong / n <= 0.05 + slack
    assert covered / n >= 0.95 - slack


def test_clear_differences_of_methods_are_found():
    rng = np.random.default_rng(8)
    pairs = [(scores(rng, 5, luck=0.03), scores(rng, 4, luck=0.03, level=0.8)) for _ in range(40)]
    assert np.mean([difference_over_runs(a, b).p <= 0.05 for a, b in pairs]) > 0.95


@pytest.mark.parametrize("runs", [3, 10])
def test_the_mean_of_runs_that_collapse_is_covered(runs):
    rng = np.random.default_rng(9)
    n, mean, bounded, student = 120, 0.8 * 0.8 + 0.2 * 0.02, 0, 0
    for _ in range(n):
        found = mean_over_runs(scores(rng, runs, luck=0.02, collapse=0.2, level=0.8))
        bounded += found.estimate.low <= mean <= found.estimate.high
        student += found.student.low <= mean <= found.student.high
    assert bounded / n >= 0.93
    assert student / n < 0.9  # Why it is not the estimate.


def test_a_collapsed_run_is_named_and_widens_the_interval():
    rng = np.random.default_rng(10)
    good = scores(rng, 5, luck=0.02, level=0.8)
    some = good.copy()
    some[3] = 0.01
    found = mean_over_runs(some)
    assert found.collapsed == (3,)
    assert "1 of the 5 runs" in found.warnings[0]
    assert "0.01" in found.warnings[0]
    assert mean_over_runs(good).warnings == ()
    plain, warned = difference_over_runs(good, good[:4] * 0.5), difference_over_runs(some, good[:4])
    assert plain.warnings == ()
    assert plain.estimate.method == "runs and conditions, Cochran's t"
    assert (warned.collapsed_a, warned.collapsed_b) == ((3,), ())
    assert warned.estimate.high - warned.estimate.low > 0.8
    assert warned.p > 0.05


def test_too_few_runs_are_refused_with_the_reason():
    rng = np.random.default_rng(11)
    a, b = scores(rng, 2, luck=0.0), scores(rng, 6, luck=0.0, level=0.9)
    found = difference_over_runs(a, b)
    assert found.p == 1.0
    assert found.estimate.low <= 0 <= found.estimate.high
    assert "train three or more" in found.warnings[0]
    alone = difference_over_runs(a[:1], b)
    assert alone.p < 0.01
    assert "one training run" in alone.warnings[0]
    neither = difference_over_runs(a[:1], b[:1])
    assert (neither.p, neither.estimate.low, neither.estimate.high) == (1.0, -1.0, 1.0)
    with pytest.raises(DataError, match="same conditions"):
        difference_over_runs(a, b[:, :5])
    with pytest.raises(DataError, match=r"runs, conditions"):
        mean_over_runs([0.5, 0.7])


def test_one_part_of_variance_gives_welchs_conservative_test():
    """By hand: conditions that vary nothing, equal runs and spreads: Student with runs - 1."""
    a, b = np.array([[0.2], [0.4], [0.6]]), np.array([[0.5], [0.7], [0.9]])
    found = difference_over_runs(np.tile(a, 4), np.tile(b, 4))
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 * 0.04 / 3)
    assert found.estimate.high == pytest.approx(min(1.0, 0.3 + half))
    assert found.p == pytest.approx(2 * stats.t.sf(0.3 / math.sqrt(2 * 0.04 / 3), 2))
    equal = difference_over_runs(np.full((3, 4), 0.5), np.full((3, 4), 0.5))
    assert equal.p == 1.0
    assert equal.estimate.high - equal.estimate.low > 0.5


def test_far_runs():
    assert collapsed_runs(np.array([0.9, 0.88, 0.05])) == (2,)
    assert collapsed_runs(np.array([0.9, 0.05])) == ()
    assert collapsed_runs(np.array([0.5, 0.6, 0.4, 0.55, 0.3])) == ()
