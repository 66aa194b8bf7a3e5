"""Levels and coverage under peeking: exact where possible, else simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.statistics.sequential import SequentialBarnard, betting_sequence, score_statistic
from robolearn.errors import DataError


def rejection_probability(test: SequentialBarnard, p_a: float, p_b: float) -> tuple[float, float]:
    """Exact probabilities of ever declaring (a, b), by following all counts."""
    alive, declared = np.ones((1, 1)), [0.0, 0.0]
    for t in range(1, test.n_max + 1):
        grown = np.zeros((t + 1, t + 1))
        grown[:-1, :-1] = alive * (1 - p_a) * (1 - p_b)
        grown[1:, :-1] += alive * p_a * (1 - p_b)
        grown[:-1, 1:] += alive * (1 - p_a) * p_b
        grown[1:, 1:] += alive * p_a * p_b
        counts = np.arange(t + 1)
        z = score_statistic(counts[:, None], counts[None], t)
        for side, sign in enumerate((-1, 1)):
            declared[side] += float(grown[sign * z >= test.boundary[t - 1]].sum())
        alive = np.where(np.abs(z) >= test.boundary[t - 1], 0.0, grown)
    return declared[0], declared[1]


@pytest.mark.parametrize("n_max", [5, 20, 60])
def test_the_sequential_test_keeps_its_level_at_every_common_rate(n_max):
    test = SequentialBarnard(n_max)
    levels = [sum(rejection_probability(test, p, p)) for p in np.linspace(0.004, 0.996, 83)]
    assert max(levels) <= 0.05
    if n_max >= 20:
        assert max(levels) > 0.045  # Not only valid, but not wasteful either.


def test_declaring_the_worse_policy_is_rarer_still():
    test = SequentialBarnard(30)
    for p_a, p_b in ((0.5, 0.4), (0.9, 0.7), (0.3, 0.25)):
        assert rejection_probability(test, p_a, p_b)[1] <= 0.025


def test_a_clear_difference_is_found_early_and_a_fixed_sample_test_hardly_beats_it():
    test = SequentialBarnard(50)
    assert rejection_probability(test, 0.28, 0.80)[1] > 0.999
    # Two-sided level .05 with 50 fixed trials of each has power .876 for these rates (score test).
    assert rejection_probability(test, 0.5, 0.8)[1] > 0.75


def test_the_verdict_is_antisymmetric_and_follows_the_order_of_trials():
    rng = np.random.default_rng(4)
    a, b = rng.random(40) < 0.2, rng.random(40) < 0.9
    test = SequentialBarnard(40)
    first, second = test.run(a, b), test.run(b, a)
    assert (first.decision, second.decision) == ("b", "a")
    assert first.trials == second.trials < 15
    assert test.run(a[:3], b[:3]).decision == "undecided"
    assert test.decide(40, 20, 20) == "undecided"


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.95])
def test_the_confidence_sequence_covers_at_all_times_at_once(p):
    rng = np.random.default_rng(7)
    runs = 300
    missed = 0
    for _ in range(runs):
        found = betting_sequence(rng.random(60) < p, grid=400)
        missed += not bool(((found.low <= p) & (p <= found.high)).all())
    assert missed / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_the_confidence_sequence_narrows_and_uses_the_variance():
    rng = np.random.default_rng(8)
    coarse = betting_sequence(rng.random(300) < 0.5)
    fine = betting_sequence(rng.normal(0.5, 0.02, 300).clip(0, 1))
    assert np.all(np.diff(coarse.low) >= 0)
    assert np.all(np.diff(coarse.high) <= 0)
    assert coarse.high[-1] - coarse.low[-1] < 0.25
    assert fine.high[-1] - fine.low[-1] < 0.3 * (coarse.high[-1] - coarse.low[-1])
    assert fine.last.n == 300


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=1, max_size=30))
def test_the_confidence_sequence_mirrors(values):
    x = np.array(values)
    direct, mirrored = betting_sequence(x, grid=100), betting_sequence(1 - x, grid=100)
    np.testing.assert_allclose(direct.low, 1 - mirrored.high, atol=1e-9)


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="at least one trial"):
        betting_sequence([])
    with pytest.raises(DataError, match="lie in"):
        betting_sequence([0.5, math.nan])
    with pytest.raises(DataError, match="n_max"):
        SequentialBarnard(0)
    with pytest.raises(DataError, match="counts up to t"):
        SequentialBarnard(5).decide(3, 4, 0)
    with pytest.raises(DataError, match="both sides"):
        SequentialBarnard(5).run([1, 0], [1])
    with pytest.raises(DataError, match="alpha"):
        SequentialBarnard(5, 0.0)
