"""What an attacker feeds statistics with: no crash, no interval without width, no nonsense."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eval.statistics.aggregate import (
    aggregate,
    performance_profile,
    probability_of_improvement,
    spread_over_runs,
)
from eval.statistics.betting import log_capital, paired_sequence
from eval.statistics.clusters import corrected_rate, mean_clustered, mean_two_way
from eval.statistics.exact_difference import exact_difference
from eval.statistics.exact_tests import bounded_mean_p, mcnemar_exact, sign_flip
from eval.statistics.group_sequential import GroupSequential
from eval.statistics.intervals import (
    DIFFERENCE,
    OUTCOME,
    bounded_difference,
    bounded_mean,
    clopper_pearson,
    jeffreys,
    mean_bootstrap,
    mean_of_equals,
    mean_t,
    newcombe,
    newcombe_paired,
    pearson,
    phi_coefficient,
    wilson,
)
from eval.statistics.nested import mean_of_rollouts
from eval.statistics.planning import (
    plan_paired,
    plan_sequence,
    power_paired,
    power_two_rates,
    stopping_bias,
)
from eval.statistics.preferences import Preference, bradley_terry
from eval.statistics.runs import difference_over_runs, mean_over_runs
from eval.statistics.sequential import SequentialBarnard, betting_sequence
from robolearn.errors import DataError

TINY = 5e-324
RUNS = [[0.1, 0.2], [0.3, 0.4], [0.3, 0.3]]
JUDGE = {"true_positives": 18, "successes": 20, "false_positives": 3, "failures": 20}
AT_LEVEL = {
    "Clopper-Pearson": lambda level: clopper_pearson(3, 10, level),
    "Wilson": lambda level: wilson(3, 10, level),
    "Jeffreys": lambda level: jeffreys(3, 10, level),
    "Newcombe": lambda level: newcombe(3, 10, 2, 9, level),
    "exact difference": lambda level: exact_difference(1, 3, 2, 3, level),
    "t": lambda level: mean_t([0.1, 0.5], level),
    "bootstrap": lambda level: mean_bootstrap([0.1, 0.5], level),
    "bounded mean": lambda level: bounded_mean([0.1, 0.5], level=level),
    "equals": lambda level: mean_of_equals(0.5, 3, OUTCOME, level),
    "sequence": lambda level: betting_sequence([0.1, 0.5], level),
    "bets": lambda level: paired_sequence([0.1], [0.5], 1.0 - level),
    "one run": lambda level: mean_over_runs(RUNS, level),
    "runs": lambda level: difference_over_runs(RUNS, RUNS, level),
    "clusters": lambda level: mean_clustered([0.1, 0.2, 0.3], "aab", level),
    "two ways": lambda level: mean_two_way([0.1, 0.2, 0.3, 0.4], "aabb", "xyxy", level),
    "classifier": lambda level: corrected_rate(3, 9, **JUDGE, level=level, draws=50),
    "bootstrap of runs": lambda level: aggregate(RUNS, level=level, resamples=20),
    "improvement": lambda level: probability_of_improvement(RUNS, RUNS, level, resamples=20),
    "profile": lambda level: performance_profile(RUNS, [0.2], level, resamples=20),
    "ratings": lambda level: bradley_terry([Preference("a", "b", 1.0)], level),
    "Pearson": lambda level: pearson([1, 2, 3, 4, 5], [1, 2, 4, 3, 5], level),
}


@pytest.mark.parametrize("name", list(AT_LEVEL))
@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_a_level_that_is_none_is_refused(name, level):
    with pytest.raises(DataError, match="between 0 and 1"):
        AT_LEVEL[name](level)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, TINY, 1 - 1e-16])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_equal_scores_never_have_an_interval_without_width(value, n):
    x = [value] * n
    for e in (
        bounded_mean(x),
        mean_t(x, bounds=OUTCOME),
        mean_t([*x, TINY], bounds=OUTCOME) if value == 0 else mean_t(x, bounds=OUTCOME),
        mean_bootstrap(x, bounds=OUTCOME),
        mean_clustered(x, range(n), bounds=OUTCOME),
        mean_over_runs([x, x]).estimate,
        spread_over_runs([x, x], bounds=OUTCOME).mean,
        mean_of_rollouts([x, x]).estimate,
        bounded_difference(x, x),
        paired_sequence(x, x).estimate,
        betting_sequence(x).last,
    ):
        assert e.low <= e.value + 1e-9
        assert e.value <= e.high + 1e-9
        assert e.high - e.low > 0.05
    assert aggregate([x]).high == math.inf
    profile = performance_profile([x], [0.5], resamples=20)
    assert (profile.low.tolist(), profile.high.tolist()) == ([0.0], [1.0])


def test_pairs_that_all_agree_prove_no_perfect_correlation():
    few, many = [0, 1, 1], [0, 1, 1] * 60
    small, large = phi_coefficient(few, few), phi_coefficient(many, many)
    assert (small.value, small.high) == (pytest.approx(1.0), 1.0)
    assert small.low < -0.5
    assert 0.9 < large.low < large.high == 1.0
    opposite = phi_coefficient(many, [1 - v for v in many])
    assert (opposite.low, opposite.high) == (-1.0, -large.low)
    assert math.isnan(pearson([TINY, 0.0, TINY], [0.1, 0.2, 0.3]).value)


def test_scores_are_no_successes_and_numbers_are_finite():
    x, y = [0.2, 0.9, 0.5], [0.3, 1.0, 0.4]
    for test in (mcnemar_exact, newcombe_paired, phi_coefficient, SequentialBarnard(5).run):
        with pytest.raises(DataError, match="successes are 0 or 1"):
            test(x, y)
    for bad in (math.nan, math.inf):
        v = np.array([bad, 0.5])
        for test in (
            lambda v: sign_flip(v, np.ones(2)),
            lambda v: mcnemar_exact(v, v),
            mean_t,
            lambda v: bounded_mean_p(v, 0.5),
            betting_sequence,
            lambda v: paired_sequence(v, v),
            lambda v: mean_over_runs([v, v]),
            lambda v: difference_over_runs([v, v], [v, v]),
            lambda v: aggregate([v, v]),
            lambda v: mean_clustered(v, "ab"),
            lambda v: spread_over_runs([v]),
            lambda v: mean_of_rollouts([v]),
            lambda v: performance_profile([[0.1], [0.2]], v.tolist()),
        ):
            with pytest.raises(DataError):
                test(v)
    for mean in (mean_t, mean_bootstrap):
        with pytest.raises(DataError, match=r"expected values in \[0, 1\]"):
            mean([0.2, 1.5], bounds=OUTCOME)
    with pytest.raises(DataError, match="same conditions"):
        mcnemar_exact([0.0], [0.0, 1.0])


@pytest.mark.parametrize(
    "ask",
    [
        lambda: wilson(5, 4),
        lambda: jeffreys(10**20, 10**20),
        lambda: plan_paired(0.5, 0.6, math.nan),
        lambda: plan_sequence(0.5, 0.6, 2.0),
        lambda: power_two_rates(0.5, 0.6, -1),
        lambda: power_paired(0.1, 0.2, -1),
        lambda: power_paired(0.1, 0.2, 9, math.nan),
        lambda: stopping_bias(1.5, width=0.1),
        lambda: stopping_bias(0.5, width=0.1, batch=0),
        lambda: mean_of_rollouts([[0.1, 0.2], [0.4]]).half_width_ratio(0),
        lambda: betting_sequence([0.5], grid=0),
        lambda: bounded_mean([0.5], -math.inf, math.inf),
        lambda: bounded_mean([0.0, 1e308], -1e308, 1e308),
        lambda: bounded_mean_p([0.5], 0.5, 1.0, 0.0),
        lambda: GroupSequential("ab", 1, permutations=100).add(np.zeros((2, 0))),
        lambda: GroupSequential("ab", 1, alpha=math.nan),
        lambda: paired_sequence([0.5, 0.5], [0.5]),
    ],
)
def test_nonsense_is_refused_with_words(ask):
    with pytest.raises(DataError, match=r"got|do not|need|expected|lie"):
        ask()


def test_differences_too_small_to_square_decide_nothing():
    for d in (TINY, 1e-300, 1e-17):
        a, b = np.zeros(30), np.full(30, d)
        assert bounded_difference(a, b).low < -0.1
        assert paired_sequence(a, b).decision == "undecided"
        assert bounded_mean(b, *DIFFERENCE).high > 0.1


def test_sequences_in_parts_are_those_at_once(monkeypatch):
    """Parts keep a million trials out of memory; not a bit of the result may depend on them."""
    rng = np.random.default_rng(0)
    a, b = rng.random(97), rng.random(97)
    whole = betting_sequence(a), log_capital(b - a, 0.1), paired_sequence(a, b)
    for module in ("betting", "sequential"):
        monkeypatch.setattr(f"eval.statistics.{module}._PART", 10)
    parts = betting_sequence(a), log_capital(b - a, 0.1), paired_sequence(a, b)
    np.testing.assert_array_equal(whole[0].low, parts[0].low)
    np.testing.assert_array_equal(whole[0].high, parts[0].high)
    np.testing.assert_array_equal(whole[1], parts[1])
    assert whole[2] == parts[2]


def test_a_hundred_thousand_trials_are_no_matter():
    rng = np.random.default_rng(1)
    x = rng.random(100_000)
    e = bounded_mean(x)
    half = 1.96 * x.std() / math.sqrt(x.size)
    assert (e.low, e.high) == pytest.approx((e.value - half, e.value + half), abs=1e-4)
    won = (x < 0.5) * 1.0
    exact = clopper_pearson(int(won.sum()), won.size)
    assert bounded_mean(won).low == pytest.approx(exact.low, abs=1e-5)
    assert mcnemar_exact(won, 1.0 - won) > 0
