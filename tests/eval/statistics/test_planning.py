"""Sample sizes against exact powers, published bias of stopping rules."""

from __future__ import annotations

import numpy as np
import pytest

from eval.statistics.exact_tests import boschloo, mcnemar_exact
from eval.statistics.planning import (
    plan_paired,
    plan_precision,
    plan_two_rates,
    power_paired,
    power_two_rates,
    stopping_bias,
)
from robolearn.errors import DataError


def test_the_exact_power_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    n, runs = 40, 4000
    a, b = rng.binomial(n, 0.5, runs), rng.binomial(n, 0.8, runs)
    pooled = (a + b) / (2 * n)
    z = np.abs(a - b) / n / np.sqrt(pooled * (1 - pooled) * 2 / n)
    assert power_two_rates(0.5, 0.8, n) == pytest.approx((z > 1.959964).mean(), abs=0.025)


def test_the_planned_test_and_boschloos_decide_alike():
    n = 20
    different = 0
    for k1 in range(0, n + 1, 3):
        for k2 in range(0, n + 1, 3):
            pooled = (k1 + k2) / (2 * n)
            spread = np.sqrt(pooled * (1 - pooled) * 2 / n)
            score = bool(spread > 0 and abs(k1 - k2) / n > 1.959964 * spread)
            different += score != (boschloo(k1, n, k2, n) <= 0.05)
    assert different <= 3  # of 49


def test_the_plan_is_the_smallest_that_suffices():
    plan = plan_two_rates(0.7, 0.8)
    assert plan.trials == 292
    assert plan.power >= 0.8 > power_two_rates(0.7, 0.8, plan.trials - 5)


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
