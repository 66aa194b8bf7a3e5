"""Sample sizes against exact powers, published bias of stopping rules."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from eval.statistics.betting import paired_sequence
from eval.statistics.exact_tests import boschloo, bounded_mean_p, mcnemar_exact
from eval.statistics.planning import (
    plan_paired,
    plan_precision,
    plan_scores,
    plan_sequence,
    plan_two_rates,
    power_paired,
    power_two_rates,
    stopping_bias,
)
from robolearn.errors import DataError


def rejected_by_boschloo(n, alpha):
    return {
        (k1, k2) for k1 in range(n + 1) for k2 in range(n + 1) if boschloo(k1, n, k2, n) <= alpha
    }


@pytest.mark.parametrize(("n", "alpha"), [(5, 0.05), (8, 0.05), (8, 0.3)])
def test_the_exact_power_is_that_of_boschloos_test_table_by_table(n, alpha):
    k = np.arange(n + 1)
    mass = binom.pmf(k, n, 0.15)[:, None] * binom.pmf(k, n, 0.8)[None]
    by_hand = sum(mass[table] for table in rejected_by_boschloo(n, alpha))
    assert power_two_rates(0.15, 0.8, n, alpha) == pytest.approx(by_hand, rel=1e-9)


def test_the_plan_is_the_smallest_that_suffices():
    plan = plan_two_rates(0.7, 0.8)
    # The score test would promise as much with 292, where Boschloo's has .79.
    assert plan.trials == 299
    assert plan.method == "Boschloo, exact power"
    assert plan.power >= 0.8 > power_two_rates(0.7, 0.8, plan.trials - 5)


def test_the_power_of_the_bets_is_that_of_a_simulation():
    plan = plan_sequence(0.5, 0.8, 0.4)
    rng = np.random.default_rng(3)
    both = 0.4 + 0.4 * 0.5 * 0.4
    decided, trials = [], []
    for _ in range(250):
        u = rng.random(plan.n_max)
        found = paired_sequence(u < 0.5, (u < both) | ((u >= 0.5) & (u < 1.3 - both)))
        decided.append(found.decision == "b")
        trials.append(found.trials)
    assert plan.power == pytest.approx(np.mean(decided), abs=0.08)
    assert plan.expected == pytest.approx(np.mean(trials), abs=3)
    assert 0.8 <= plan.power < 0.85
    swapped = plan_sequence(0.8, 0.5, 0.4)
    assert (swapped.n_max, swapped.power) == (plan.n_max, pytest.approx(plan.power))


def test_scores_are_planned_by_the_test_that_decides_them():
    rng = np.random.default_rng(4)
    pilot = np.clip(rng.normal(0.3, 0.3, 30), -1, 1)
    plan = plan_scores(pilot, draws=120)
    assert plan == plan_scores(pilot, draws=120)
    found = np.mean(
        [bounded_mean_p(rng.choice(pilot, plan.trials), 0.0, -1.0, 1.0) <= 0.05 for _ in range(200)]
    )
    assert plan.power == pytest.approx(found, abs=0.12)
    with pytest.raises(DataError, match="ten or more"):
        plan_scores([0.1] * 3)
    with pytest.raises(DataError, match="mean difference is 0"):
        plan_scores([0.0] * 12)


def test_pairing_saves_trials_when_successes_correlate():
    paired = plan_paired(0.7, 0.8, 0.6)
    apart = plan_paired(0.7, 0.8, 0.0)
    assert paired.trials < 0.6 * apart.trials
    assert paired.power >= 0.8


def test_the_paired_power_is_that_of_mcnemars_test():
    rng = np.random.default_rng(1)
    runs, n = 1500, 40
    found = 0
    for _ in range(runs):
        u = rng.random(n)
        found += mcnemar_exact(u < 0.25, (u > 0.2) & (u < 0.65)) <= 0.05
    # only a: [0, .2], only b: [.25, .65].
    assert power_paired(0.2, 0.4, n) == pytest.approx(found / runs, abs=0.04)


def test_precision():
    plan = plan_precision(0.8, 0.1)
    assert 55 <= plan.trials <= 70


@pytest.mark.parametrize(
    ("p", "width", "batch", "bias"),
    [(0.9, 0.14, 10, 0.010), (0.9, 0.14, 1, 0.014), (0.85, 0.27, 1, 0.027)],
)
def test_stopping_when_the_interval_is_narrow_is_biased_by_the_published_amount(
    p, width, batch, bias
):
    found, trials = stopping_bias(p, width=width, batch=batch)
    assert round(found, 3) == bias
    assert trials < 200


def test_a_fixed_number_of_trials_is_unbiased():
    bias, trials = stopping_bias(0.9, width=0.0, n_max=50)
    assert bias == pytest.approx(0.0, abs=1e-12)
    assert trials == pytest.approx(50)


def test_impossible_plans_are_refused():
    with pytest.raises(DataError, match="two different rates"):
        plan_two_rates(0.5, 0.5)
    with pytest.raises(DataError, match="plan for a larger"):
        plan_two_rates(0.5, 0.505)
    with pytest.raises(DataError, match="cannot correlate"):
        plan_paired(0.9, 0.1, 0.9)
    with pytest.raises(DataError, match="power lies"):
        plan_two_rates(0.5, 0.7, power=1.2)
