"""Aggregates against rliable's definitions, letters, Holm, ratings, clusters, plans."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval.statistics.aggregate import (
    aggregate,
    iqm,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    spread_over_runs,
)
from eval.statistics.clusters import corrected_rate, mean_clustered, mean_two_way
from eval.statistics.multiplicity import holm, letters
from eval.statistics.preferences import Preference, bradley_terry
from robolearn.errors import DataError


def test_point_values_follow_the_definitions():
    x = np.array([[0.0, 0.1, 0.9, 1.2], [0.2, 0.3, 0.8, 1.0]])
    flat = np.sort(x.ravel())
    assert iqm(x) == pytest.approx(flat[2:6].mean())
    assert optimality_gap(x) == pytest.approx(1 - np.minimum(x, 1).mean())
    assert mean(x) == pytest.approx(x.mean())
    assert median(x) == pytest.approx(np.median([0.1, 0.2, 0.85, 1.1]))
    y = x + np.array([0.05, -0.05, 0.0, 0.0])
    per_task = [stats.mannwhitneyu(x[:, t], y[:, t]).statistic / 4 for t in range(x.shape[1])]
    found = probability_of_improvement(x, y, resamples=50)
    assert found.value == pytest.approx(np.mean(per_task))
    profile = performance_profile(x, [0.0, 0.5, 1.0], resamples=50)
    assert profile.value.tolist() == [7 / 8, 4 / 8, 1 / 8]
    assert (profile.low <= profile.value).all()
    assert (profile.value <= profile.high).all()


def test_the_stratified_bootstrap_resamples_runs_within_tasks():
    # Tasks differ, runs do not: nothing can vary.
    constant = np.tile([0.1, 0.5, 0.9], (5, 1))
    found = aggregate(constant, mean, resamples=100)
    assert (found.low, found.high) == (pytest.approx(0.5), pytest.approx(0.5))
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(100):
        e = aggregate(rng.normal([0.2, 0.6], 0.1, (20, 2)), mean, resamples=200, seed=seed)
        covered += e.low <= 0.4 <= e.high
    assert covered >= 87  # Percentile intervals of 20 runs cover .93 to .95; 3 sigma below.


def test_scores_must_be_a_finite_matrix():
    with pytest.raises(DataError, match="runs, tasks"):
        aggregate([0.1, 0.2])
    with pytest.raises(DataError, match="not finite"):
        aggregate([[0.1, math.nan]])
    with pytest.raises(DataError, match="same tasks"):
        probability_of_improvement(np.zeros((2, 2)), np.zeros((2, 3)))


def test_the_spread_of_runs_is_told_from_that_of_episodes():
    rng = np.random.default_rng(0)
    runs = [rng.normal(m, 0.3, 2000) for m in rng.normal(0.5, 0.2, 60)]
    found = spread_over_runs(runs)
    assert found.between == pytest.approx(0.2, rel=0.25)
    assert found.within == pytest.approx(0.3, rel=0.05)
    assert found.mean.n == 60
    same = spread_over_runs([rng.normal(0.5, 0.3, 200) for _ in range(30)])
    assert same.between < 0.05
    assert same.share < 0.03


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_monotone_and_between_raw_and_bonferroni(p):
    adjusted = holm(p)
    for raw, value in zip(p, adjusted, strict=True):
        assert raw <= value <= min(1.0, raw * len(p)) + 1e-12
    order = np.argsort(p)
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))


@given(st.sets(st.sampled_from(list(itertools.combinations("abcde", 2)))))
def test_letters_say_exactly_which_pairs_are_separated(different):
    found = letters("abcde", different)
    for pair in itertools.combinations("abcde", 2):
        shares = bool(set(found[pair[0]]) & set(found[pair[1]]))
        assert shares == (pair not in different)


def test_letters_in_a_known_case():
    assert letters("abcd", [("a", "d"), ("a", "c"), ("b", "d")]) == {
        "a": "a", "b": "ab", "c": "bc", "d": "c",
    }  # fmt: skip
    assert letters("ab", []) == {"a": "a", "b": "a"}


def test_ratings_recover_strengths_and_ties():
    rng = np.random.default_rng(3)
    theta, nu = {"x": 0.8, "y": 0.0, "z": -0.8}, 0.6
    preferences: list[Preference] = []
    for _ in range(4000):
        a, b = (str(n) for n in rng.choice(list(theta), 2, replace=False))
        weights = np.array(
            [math.exp(theta[a]), nu * math.exp((theta[a] + theta[b]) / 2), math.exp(theta[b])]
        )
        score = float(rng.choice([1.0, 0.5, 0.0], p=weights / weights.sum()))
        preferences.append(Preference(a, b, score))
    found = bradley_terry(preferences)
    for name, value in theta.items():
        e = found.theta[name]
        assert e.low - 0.03 <= value <= e.high + 0.03
        assert e.high - e.low < 0.25
    assert found.nu == pytest.approx(nu, rel=0.15)
    assert found.identified
    assert found.note == ""
    assert found.rating("x") == round(200 * found.theta["x"].value + 1500)


def test_two_policies_without_ties_have_the_closed_form():
    # theta_x - theta_y = log(wins / losses).
    preferences = [Preference("x", "y", 1.0)] * 30 + [Preference("x", "y", 0.0)] * 10
    found = bradley_terry(preferences)
    difference = found.theta["x"].value - found.theta["y"].value
    assert difference == pytest.approx(math.log(3), abs=1e-4)
    assert found.nu == 0


def test_preferences_that_are_none_are_refused():
    with pytest.raises(DataError, match="at least one"):
        bradley_terry([])
    with pytest.raises(DataError, match=r"0, 0\.5 or 1"):
        bradley_terry([Preference("x", "y", 0.3)])


def test_cluster_robust_intervals_cover_where_naive_ones_do_not():
    rng = np.random.default_rng(10)
    robust = naive = 0
    runs = 300
    labels = np.repeat(np.arange(12), 20).tolist()
    for _ in range(runs):
        x = np.repeat(rng.normal(0, 0.3, 12), 20) + rng.normal(0, 0.3, 240)
        e = mean_clustered(x, labels)
        robust += e.low <= 0 <= e.high
        naive += abs(x.mean()) <= 1.97 * x.std(ddof=1) / math.sqrt(240)
    assert e.n == 12
    assert robust / runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)
    assert naive / runs < 0.7


def test_two_way_clusters_cover():
    rng = np.random.default_rng(12)
    seeds, conditions, runs, covered = 8, 15, 300, 0
    first = np.repeat(np.arange(seeds), conditions).tolist()
    second = np.tile(np.arange(conditions), seeds).tolist()
    for _ in range(runs):
        x = (
            rng.normal(0, 0.2, seeds)[:, None]
            + rng.normal(0, 0.2, conditions)
            + rng.normal(0, 0.3, (seeds, conditions))
        ).ravel()
        e = mean_two_way(x, first, second)
        covered += e.low <= 0 <= e.high
    assert covered / runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)


def test_one_cluster_says_nothing():
    e = mean_clustered([0.1, 0.2], ["s", "s"])
    assert (e.low, e.high, e.n) == (-math.inf, math.inf, 1)
    with pytest.raises(DataError, match="every value needs a cluster"):
        mean_clustered([0.1], ["a", "b"])


def test_the_classifiers_errors_are_taken_out_and_widen_the_interval():
    # 60 % verdicts with 90 % sensitivity and 20 % false alarms: (0.6 - 0.2) / 0.7.
    e = corrected_rate(60, 100, true_positives=90, successes=100, false_positives=20, failures=100)
    assert e.value == pytest.approx(0.4 / 0.7)
    perfect = corrected_rate(
        60, 100, true_positives=1000, successes=1000, false_positives=0, failures=1000
    )
    assert perfect.value == pytest.approx(0.6)
    assert e.high - e.low > perfect.high - perfect.low
    with pytest.raises(DataError, match="cannot tell them apart"):
        corrected_rate(6, 10, true_positives=5, successes=10, false_positives=5, failures=10)


def test_corrected_rates_cover():
    rng = np.random.default_rng(13)
    runs, covered = 300, 0
    for seed in range(runs):
        truth = rng.random(50) < 0.7
        verdict = np.where(truth, rng.random(50) < 0.9, rng.random(50) < 0.15)
        tp, fp = int(rng.binomial(60, 0.9)), int(rng.binomial(60, 0.15))
        e = corrected_rate(
            int(verdict.sum()), 50, true_positives=tp, successes=60, false_positives=fp,
            failures=60, draws=2000, seed=seed,
        )  # fmt: skip
        covered += e.low <= 0.7 <= e.high
    assert covered / runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)
