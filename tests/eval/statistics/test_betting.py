"""Bets on paired differences: exact level at every correlation, intervals that hold at any stop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval.statistics.betting import (
    SHARES,
    log_capital,
    log_capital_of_counts,
    paired_sequence,
)
from eval.statistics.sequential import SequentialBarnard
from robolearn.errors import DataError

WALL = math.log(40.0)


def correlated(rng, n, p_a, p_b, phi):
    """Successes of two policies over the same conditions, correlated by ``phi``."""
    both = p_a * p_b + phi * math.sqrt(p_a * (1 - p_a) * p_b * (1 - p_b))
    ends = np.cumsum([both, p_a - both, p_b - both])
    assert (np.diff([0.0, *ends, 1.0]) > -1e-12).all()
    kind = np.searchsorted(ends, rng.random(n), side="right")
    return np.isin(kind, (0, 1)).astype(float), np.isin(kind, (0, 2)).astype(float)


def level_of_discordant(n, share=0.5):
    """Exact probability that ``n`` discordant pairs ever decide, for (a, b)."""
    alive, decided = np.ones(1), [0.0, 0.0]
    for k in range(1, n + 1):
        alive = np.convolve(alive, [1 - share, share])
        better = np.arange(k + 1)
        for side, (won, lost) in enumerate([(k - better, better), (better, k - better)]):
            gone = log_capital_of_counts(won, lost) >= WALL
            decided[side] += float(alive[gone].sum())
            alive = np.where(gone, 0.0, alive)
    return tuple(decided)


def test_the_level_is_exact_whatever_the_correlation():
    """Given that it differs, a pair is a fair coin under equality: phi does not enter."""
    for_a, for_b = level_of_discordant(400)
    assert for_a == pytest.approx(for_b)
    assert 0.025 < for_a + for_b <= 0.05


@pytest.mark.parametrize(
    ("p", "phi"),
    [(0.5, -1.0), (0.5, -0.5), (0.5, 0.0), (0.5, 0.6), (0.5, 0.9), (0.1, 0.0), (0.8, 0.0)],
)
def test_equal_policies_are_rarely_separated_at_any_correlation(p, phi):
    rng = np.random.default_rng(1)
    runs = 300
    wrong = barnard = 0
    test = SequentialBarnard(100)
    for _ in range(runs):
        a, b = correlated(rng, 100, p, p, phi)
        wrong += max(log_capital(b - a, 0.0).max(), log_capital(a - b, 0.0).max()) >= WALL
        barnard += test.run(a, b).decision != "undecided"
    assert wrong / runs <= 0.05
    if phi == -1.0:
        assert barnard / runs > 0.2  # Why that one is for independent trials.


def test_correlated_pairs_need_fewer_trials_than_independent_ones():
    rng = np.random.default_rng(5)
    u = rng.random(400)
    together = paired_sequence(u < 0.5, u < 0.65)
    apart = paired_sequence(rng.random(400) < 0.5, rng.random(400) < 0.65)
    assert together.decision == "b"
    assert together.trials < apart.trials


def test_partial_credit_counts():
    a = np.random.default_rng(6).random(300) * 0.8
    found = paired_sequence(a, np.minimum(1.0, a + 0.1))
    assert found.decision == "b"
    assert found.p_value <= 0.05


def test_correlated_pairs_decide_with_fewer_trials():
    rng = np.random.default_rng(2)
    barnard, found, other = SequentialBarnard(100), [], []
    for _ in range(150):
        a, b = correlated(rng, 100, 0.5, 0.7, 0.6)
        crossed = np.flatnonzero(log_capital(b - a, 0.0) >= WALL)
        found.append(crossed[0] + 1 if crossed.size else math.inf)
        result = barnard.run(a, b)
        other.append(result.trials if result.decision == "b" else math.inf)
    assert np.isfinite(found).mean() > 0.9 > 0.8 > np.isfinite(other).mean()
    assert np.minimum(found, 100).mean() < 0.75 * np.minimum(other, 100).mean()


@pytest.mark.parametrize(
    ("p_a", "p_b", "phi"), [(0.5, 0.5, -1.0), (0.9, 0.95, 0.3), (0.1, 0.4, 0.0)]
)
def test_the_interval_covers_at_the_trial_where_one_stopped(p_a, p_b, phi):
    rng = np.random.default_rng(3)
    runs, missed = 200, 0
    for _ in range(runs):
        a, b = correlated(rng, 120, p_a, p_b, phi)
        # The true difference is refuted at some trial: worse than at any one stop.
        up, down = log_capital(b - a, p_b - p_a), log_capital(a - b, p_a - p_b)
        missed += max(up.max(), down.max()) >= WALL
    assert missed / runs <= 0.05


@pytest.mark.parametrize("n", [20, 60])
def test_scores_with_skewed_differences_keep_the_level(n):
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(400):
        d = np.where(rng.random(n) < 0.05, -0.95, 0.05)
        wrong += max(log_capital(d, 0.0).max(), log_capital(-d, 0.0).max()) >= WALL
    assert wrong / 400 <= 0.05


@given(
    st.lists(st.sampled_from([(0, 0), (1, 1), (0, 1), (0.2, 0.9), (1, 0)]), min_size=1, max_size=40)
)
def test_decision_interval_and_mirror_agree(pairs):
    a, b = np.array(pairs, dtype=float).T
    found, mirrored = paired_sequence(a, b), paired_sequence(b, a)
    e, m = found.estimate, mirrored.estimate
    assert (e.low, e.high) == pytest.approx((-m.high, -m.low), abs=2e-6)
    assert {"a": "b", "b": "a"}.get(found.decision, "undecided") == mirrored.decision
    assert found.trials == mirrored.trials
    # In a short sequence nothing contradicts a decision, so that it is the sign of the interval.
    assert (found.decision == "b") == (e.low > 0)
    assert (found.decision == "a") == (e.high < 0)
    assert (found.p_value <= 0.05) == (found.decision != "undecided")
    assert found.differing == int((a != b).sum())


def test_ties_change_nothing_about_the_decision():
    a, b = np.zeros(12), np.ones(12)
    mixed = np.insert(a, range(12), 1.0), np.insert(b, range(12), 1.0)
    plain, diluted = paired_sequence(a, b), paired_sequence(*mixed)
    assert plain.decision == diluted.decision == "b"
    assert plain.p_value == pytest.approx(diluted.p_value)
    assert plain.method == "betting on discordant pairs"
    assert plain.estimate.value == pytest.approx(2 * diluted.estimate.value)


def test_a_decision_is_never_turned_by_what_comes_later():
    a, b = np.zeros(30), np.ones(30)
    found = paired_sequence(np.concatenate([a, *[b] * 3]), np.concatenate([b, *[a] * 3]))
    assert found.decision == "b"
    assert found.trials < 15
    assert found.estimate.value < 0
    # The policies changed on the way; what was left before the contradiction is told.
    assert found.estimate.low <= found.estimate.high


def test_counts_and_sequences_agree_and_capital_is_fair():
    d = np.array([1.0, -1.0, 1.0, 1.0, 0.0])
    assert log_capital(d, 0.0)[-1] == pytest.approx(float(log_capital_of_counts(3, 1)))
    # Hand-computed: after one win each bettor has 1 + share, 1.5 on average.
    assert math.exp(log_capital(np.ones(1), 0.0)[0]) == pytest.approx(1 + SHARES.mean())
    mean = -0.3
    outcomes, weights = np.array([-1.0, 0.0, 1.0]), np.array([0.5, 0.3, 0.2])
    grown = [math.exp(log_capital(np.array([v]), mean)[0]) for v in outcomes]
    assert float(weights @ grown) == pytest.approx(1.0)


def test_small_differences_of_many_scores_are_found():
    rng = np.random.default_rng(5)
    a = rng.beta(5, 2, 300)
    b = np.clip(a + 0.06 + rng.normal(0, 0.08, 300), 0, 1)
    found = paired_sequence(a, b)
    assert found.decision == "b"
    assert found.method == "betting on differences"
    half = float(stats.t.ppf(0.975, 299)) * (b - a).std(ddof=1) / math.sqrt(300)
    assert found.estimate.high - found.estimate.low < 8 * half


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="at least one trial"):
        paired_sequence([], [])
    with pytest.raises(DataError, match="outcomes lie"):
        paired_sequence([0.5], [1.5])
    with pytest.raises(DataError, match="alpha"):
        paired_sequence([0.5], [0.5], alpha=1.0)
    with pytest.raises(DataError, match="same conditions"):
        paired_sequence([0.5], [0.5, 0.5])
