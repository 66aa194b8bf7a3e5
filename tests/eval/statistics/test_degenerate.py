"""What the statistics say where the usual ones break down: one trial, all equal, one run."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm, t

from eval.compare import compare_policies
from eval.rule import Rule
from eval.statistics.aggregate import aggregate, probability_of_improvement, spread_over_runs
from eval.statistics.clusters import corrected_rate, mean_two_way
from eval.statistics.intervals import (
    DIFFERENCE,
    OUTCOME,
    bounded_difference,
    clopper_pearson,
    mean_bootstrap,
    mean_of_equals,
    mean_t,
)
from eval.statistics.runs import difference_over_runs
from eval.summary import summarize
from eval.trials.instruments import NOT_FINITE, GuardedEnv
from robolearn.errors import DataError
from robolearn.pusht import BLOCK
from tests.eval.mocks import BuildEnv, conditions
from tests.eval.test_compare import trials


@pytest.mark.parametrize("n", [1, 2, 10, 50])
def test_equal_outcomes_at_the_ends_have_the_exact_interval(n):
    for k, value in ((0, 0.0), (n, 1.0)):
        exact, found = clopper_pearson(k, n), mean_of_equals(value, n, OUTCOME)
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high))


def test_equal_outcomes_never_give_an_interval_without_width():
    for estimate in (
        mean_t([0.4] * 9, bounds=OUTCOME),
        mean_t([0.4], bounds=OUTCOME),
        mean_bootstrap([0.4] * 9, bounds=OUTCOME),
        mean_bootstrap([0.0] * 9, bounds=DIFFERENCE),
        bounded_difference([1.0] * 9, [1.0] * 9),
        mean_two_way([1.0] * 6, list("aabbcc"), list("xyxyxy"), bounds=OUTCOME),
        summarize(trials("a", np.ones(20))).score,
    ):
        assert estimate.high - estimate.low > 0.1
    assert mean_bootstrap([0.4]).low == -math.inf
    with pytest.raises(DataError, match="expected outcomes in"):
        mean_of_equals(1.2, 3, OUTCOME)


def test_equal_outcomes_cover_the_mean():
    """The worst case for the bound: most often c, otherwise the far end."""
    rng = np.random.default_rng(0)
    for c, q in ((0.0, 0.05), (0.3, 0.1), (0.8, 0.2)):
        mean, missed = (1 - q) * c + q, 0
        for _ in range(400):
            x = np.where(rng.random(15) < q, 1.0, c)
            if np.ptp(x) == 0:
                missed += (
                    not mean_t(x, bounds=OUTCOME).low <= mean <= mean_t(x, bounds=OUTCOME).high
                )
        assert missed / 400 <= 0.05


def test_many_trials_take_little_memory_and_the_same_draws():
    x = np.random.default_rng(1).random(9_000)
    rows = np.random.default_rng(3).integers(0, x.size, (600, x.size))
    # Expanded percentiles: Student's t and the divisor n - 1 instead of n (Hesterberg 2015).
    tail = norm.cdf(-t.ppf(0.975, x.size - 1) * math.sqrt(x.size / (x.size - 1)))
    low, high = np.quantile(x[rows].mean(axis=1), [tail, 1.0 - tail])
    found = mean_bootstrap(x, resamples=600, seed=3)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_run_says_nothing_about_the_spread_of_runs():
    one = aggregate([[0.2, 0.8]])
    assert (one.low, one.high) == (-math.inf, math.inf)
    better = probability_of_improvement([[0.9]], [[0.1], [0.2]])
    assert (better.value, better.low, better.high) == (1.0, 0.0, 1.0)
    assert math.isnan(spread_over_runs([[0.1, 0.5, 0.3]]).share)


def test_the_value_of_a_corrected_rate_lies_in_its_interval():
    perfect = {"true_positives": 1000, "successes": 1000, "false_positives": 0, "failures": 1000}
    for k in (0, 5):
        e = corrected_rate(k, 5, **perfect)
        assert e.low <= e.value <= e.high


def test_certainty_from_two_runs_is_refused():
    """All of b succeed and none of a: with two runs that is no proof."""
    found = difference_over_runs(np.zeros((2, 4)), np.ones((2, 4)), names=("old", "new"))
    assert found.p == 1.0
    assert found.estimate.low <= 0.0
    assert "train three or more" in found.warnings[-1]
    assert difference_over_runs(np.ones((2, 4)), np.ones((2, 4))).p == 1.0
    alone = difference_over_runs(np.ones((1, 4)), np.ones((1, 4)), names=("old", "new"))
    assert (alone.estimate.low, alone.p) == (-1.0, 1.0)
    assert alone.warnings[0].startswith("old is one training run")
    with pytest.raises(DataError, match="same conditions"):
        difference_over_runs(np.ones((2, 4)), np.ones((2, 3)))


def test_the_sequential_rule_refuses_training_runs_and_one_run_is_named():
    rng = np.random.default_rng(7)
    records = [r for name in ("x-0", "x-1", "y") for r in trials(name, rng.random(20) < 0.5)]
    groups = {"x": ["x-0", "x-1"]}
    with pytest.raises(DataError, match="fixed rule"):
        compare_policies(records, Rule(kind="sequential", n_max=50), groups=groups)
    (world,) = compare_policies(records, Rule(), groups=groups).worlds
    assert any("'y' is one training run" in note for note in world.notes)


def test_progress_that_is_no_number_ends_the_episode_with_a_reason():
    env = GuardedEnv(BuildEnv()())
    env.reset(conditions(1)[0], np.random.default_rng(0))
    good = env.outcome()
    inner = env.env
    real = inner.outcome
    inner.outcome = lambda: dataclasses.replace(real(), progress=math.nan)
    bad = env.outcome()
    assert (bad.terminal, bad.reason, bad.progress) == (True, NOT_FINITE, good.progress)
    inner.outcome = real
    assert env.outcome().reason == NOT_FINITE  # It does not recover within an episode.


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_signal_that_is_no_number_is_named_and_ends_the_episode(
    number: float, caplog: pytest.LogCaptureFixture
):
    env = GuardedEnv(BuildEnv()())
    env.reset(conditions(1)[0], np.random.default_rng(0))
    inner, real = env.env, env.env.observe
    sound = env.observe()
    # Large is not infinite, although its square is.
    large = {
        **sound.samples,
        BLOCK: dataclasses.replace(sound.samples[BLOCK], value=np.full(3, 1e200)),
    }
    inner.observe = lambda: dataclasses.replace(real(), samples=large)
    assert env.observe().samples is large
    spoiled = np.array([0.1, number, 0.3])
    bad = {**sound.samples, BLOCK: dataclasses.replace(sound.samples[BLOCK], value=spoiled)}
    inner.observe = lambda: dataclasses.replace(real(), samples=bad)
    seen = env.observe()
    # Whoever shares a batch with it is asked by numbers.
    assert seen.value(BLOCK).tolist() == [0.1, 0.0, 0.3]
    assert f"signal '{BLOCK}' is not finite" in caplog.text
    inner.observe = real
    outcome = env.outcome()
    assert (outcome.terminal, outcome.reason, outcome.trouble) == (True, NOT_FINITE, BLOCK)
    env.reset(conditions(1)[0], np.random.default_rng(0))
    assert env.outcome().reason == ""
