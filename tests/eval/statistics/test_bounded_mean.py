"""The interval of a bounded mean: exact where that is known, covering where it is not, no jumps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval.statistics.exact_tests import (
    bounded_difference_p,
    bounded_mean_p,
    mcnemar_exact,
    sign_flip,
)
from eval.statistics.intervals import (
    OUTCOME,
    bounded_difference,
    bounded_mean,
    clopper_pearson,
    mean_of_equals,
    mean_t,
)
from eval.statistics.random_weights import EXACT, probability_below, quantile
from robolearn.errors import DataError

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 7), (3, 10), (14, 50), (49, 50), (9, 9)])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_successes_have_the_exact_interval_of_clopper_and_pearson(k, n, level):
    exact, found = (
        clopper_pearson(k, n, level),
        bounded_mean([1.0] * k + [0.0] * (n - k), level=level),
    )
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-11)
    assert found.n == n


@given(st.floats(0, 1), st.integers(1, 30))
def test_equal_scores_have_the_interval_of_markovs_bound(value, n):
    exact, found = mean_of_equals(value, n, OUTCOME), bounded_mean([value] * n)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert found.high - found.low > 0.9 * (1.0 - 0.025 ** (1 / n))


@given(st.floats(0.001, 0.999), st.integers(2, 20), st.integers(0, 5))
def test_a_jitter_of_equal_scores_changes_nothing_that_matters(value, n, seed):
    jitter = 1e-6 * np.random.default_rng(seed).standard_normal(n)
    equal, close = bounded_mean([value] * n), bounded_mean(value + jitter)
    assert close.low == pytest.approx(equal.low, abs=1e-4)
    assert close.high == pytest.approx(equal.high, abs=1e-4)


@given(SCORES, st.randoms())
def test_the_order_of_the_trials_does_not_count(scores, random):
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert bounded_mean(shuffled) == bounded_mean(scores)


@given(SCORES, st.floats(-3, 3), st.floats(0.1, 5))
def test_the_interval_moves_with_the_scale(scores, shift, width):
    x = np.array(scores)
    plain, moved = bounded_mean(x), bounded_mean(shift + width * x, shift, shift + width)
    assert moved.low == pytest.approx(shift + width * plain.low, abs=1e-6 * (1 + width))
    mirrored = bounded_mean(1 - x)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - plain.high, 1 - plain.low), abs=1e-7)
    assert plain.low - 1e-12 <= plain.value <= plain.high + 1e-12


@given(SCORES, st.floats(0, 1))
def test_a_higher_score_never_lowers_an_end(scores, better):
    before = bounded_mean(scores)
    after = bounded_mean([*scores[1:], max(better, scores[0])])
    assert after.low >= before.low - 1e-9
    assert after.high >= before.high - 1e-9


@given(SCORES, st.floats(0.01, 0.99))
def test_the_interval_leaves_out_what_the_test_rejects(scores, null):
    found, p = bounded_mean(scores), bounded_mean_p(scores, null)
    if abs(p - 0.05) > 1e-6:
        assert (p <= 0.05) == (not found.low <= null <= found.high)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_on_paired_successes_it_is_mcnemars_exact_test(only_a, only_b, equal):
    a = np.repeat([1.0, 0.0, 1.0], [only_a, only_b, equal])
    b = np.repeat([0.0, 1.0, 1.0], [only_a, only_b, equal])
    assert bounded_difference_p(a, b) == pytest.approx(mcnemar_exact(a, b), rel=1e-9)


def _nasty(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.05, 0.0, np.clip(rng.normal(0.95, 0.005, n), 0, 1))


SHAPES = {
    "rare failures": (_nasty, 0.95 * 0.95),
    "near 0": (lambda rng, n: rng.beta(1, 8, n), 1 / 9),
    "two ends": (lambda rng, n: rng.beta(0.1, 0.1, n), 0.5),
    "rare successes": (lambda rng, n: (rng.random(n) < 0.03) * 1.0, 0.03),
    "a step and a rare zero": (lambda rng, n: np.where(rng.random(n) < 0.1, 0, 0.7), 0.63),
}


@pytest.mark.parametrize("n", [3, 10, 20])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_it_covers_where_students_t_does_not(shape, n):
    draw, mean = SHAPES[shape]
    rng = np.random.default_rng(n)
    runs = 300
    covered = sum(bounded_mean_p(draw(rng, n), mean) > 0.05 for _ in range(runs))
    assert covered / runs >= 0.93
    if shape == "rare failures":
        intervals = [mean_t(draw(rng, n), bounds=OUTCOME) for _ in range(runs)]
        assert sum(e.low <= mean <= e.high for e in intervals) / runs < 0.8


@pytest.mark.parametrize("n", [2, 5, 12])
def test_differences_of_paired_successes_are_covered_exactly(n):
    """Every outcome of ``n`` pairs, added up, over a grid of probabilities of (-1, 0, 1)."""
    tables = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    for worse, better in itertools.product([0.0, 0.02, 0.1, 0.3, 0.6, 0.9], repeat=2):
        if worse + better > 1:
            continue
        mean, covered = better - worse, 0.0
        rates = [worse, max(0.0, 1 - worse - better), better]
        for counts in tables:
            probability = stats.multinomial.pmf(counts, n, rates)
            if probability > 0:
                p = bounded_mean_p(np.repeat([-1.0, 0.0, 1.0], counts), mean, -1.0, 1.0)
                covered += probability * (p > 0.05)
        assert covered >= 0.95


@pytest.mark.parametrize("n", [10, 20])
def test_skewed_differences_with_mean_zero_are_not_called_a_difference(n):
    rng = np.random.default_rng(3)
    runs = {"bounded": 0, "flips": 0}
    for _ in range(300):
        # One policy is a little better, but loses everything in one of twenty trials.
        d = np.where(rng.random(n) < 0.05, -0.95, 0.05)
        runs["bounded"] += bounded_mean_p(d, 0.0, -1.0, 1.0) <= 0.05
        runs["flips"] += sign_flip(np.zeros(n), d, flips=2000) <= 0.05
    assert runs["bounded"] / 300 <= 0.05
    assert runs["flips"] / 300 > 0.25  # Why it is not the default.


def test_many_scores_have_the_normal_interval():
    x = np.random.default_rng(0).beta(2, 2, 4000)
    found, t = bounded_mean(x), mean_t(x)
    assert (found.low, found.high) == pytest.approx((t.low, t.high), abs=0.05 * (t.high - t.low))


def test_the_recursion_agrees_with_draws_and_with_the_saddlepoint():
    rng = np.random.default_rng(1)
    v = rng.random(8)
    means = rng.dirichlet(np.ones(8), 200_000) @ v
    for point in (0.3, 0.45, 0.6):
        assert probability_below(v, point) == pytest.approx((means <= point).mean(), abs=4e-3)
    # One value more changes the method, and hardly the answer.
    x = np.append(rng.beta(2, 5, EXACT - 1), 0.0)
    for p in (0.001, 0.025, 0.5, 0.975):
        assert quantile(np.append(x, x.mean()), p) == pytest.approx(quantile(x, p), abs=2e-4)
    # Relative accuracy of small probabilities: a sum of two exponentials has a closed form.
    assert probability_below(np.array([-1e-9, 1.0]), 0.0) == pytest.approx(1e-9, rel=1e-6)


def test_bounds_and_scores_must_agree():
    assert math.isnan(bounded_mean([]).value)
    assert (bounded_mean([]).low, bounded_mean([]).high) == (0.0, 1.0)
    with pytest.raises(DataError, match="give their bounds"):
        bounded_mean([0.5, 1.2])
    with pytest.raises(DataError, match="low first"):
        bounded_mean([0.5], 1.0, 0.0)
    with pytest.raises(DataError, match="not finite"):
        bounded_mean([0.5, math.nan])
    with pytest.raises(DataError, match="cannot be"):
        bounded_mean_p([0.5], 2.0)
    with pytest.raises(DataError, match="finite scores"):
        bounded_mean_p([], 0.5)
    assert bounded_difference([0.2, 0.4], [0.3, 0.5]).value == pytest.approx(0.1)
    assert bounded_difference_p([], []) == 1.0
