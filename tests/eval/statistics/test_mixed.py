"""The mixed model of rollouts within conditions: closed forms, coverage, regimes that are nasty."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eval.statistics.exact_tests import bounded_difference_p
from eval.statistics.nested import mixed_model
from robolearn.errors import DataError
from tests.benchmarks.bench_statistics import ROLLOUTS, bounded_p, rollout_means


def laid_out(table):
    """``table [policies, conditions, rollouts]`` as the model takes it."""
    return {
        f"p{i}": {f"c{j}": cell.tolist() for j, cell in enumerate(row)}
        for i, row in enumerate(table)
    }


def balanced(rng, policies=3, conditions=12, rollouts=4):
    alike = rng.normal(0, 0.12, (1, conditions, 1))
    own = rng.normal(0, 0.06, (policies, conditions, 1))
    noise = rng.normal(0, 0.08, (policies, conditions, rollouts))
    return np.clip(0.5 + alike + own + noise, 0, 1)


def test_variances_are_those_of_the_analysis_of_variance():
    """Mean squares by hand, as every textbook writes them for a two-way layout with repetition."""
    x = balanced(np.random.default_rng(0))
    policies, conditions, rollouts = x.shape
    grand, cell = x.mean(), x.mean(axis=2)
    of_condition = (
        policies * rollouts * ((x.mean(axis=(0, 2)) - grand) ** 2).sum() / (conditions - 1)
    )
    rest = cell - cell.mean(axis=0) - cell.mean(axis=1)[:, None] + grand
    of_both = rollouts * (rest**2).sum() / ((policies - 1) * (conditions - 1))
    error = ((x - cell[:, :, None]) ** 2).sum() / (policies * conditions * (rollouts - 1))
    found = mixed_model(laid_out(x))
    assert found.of_rollouts == pytest.approx(error)
    assert found.of_policies_on_conditions == pytest.approx((of_both - error) / rollouts)
    assert found.of_conditions == pytest.approx((of_condition - of_both) / (policies * rollouts))
    assert found.conditions == conditions


def test_variances_are_found_again_also_with_unequal_numbers():
    rng = np.random.default_rng(1)
    found = []
    for _ in range(20):
        x = laid_out(balanced(rng, conditions=25, rollouts=6))
        for row in x.values():
            for name in row:
                row[name] = row[name][: rng.integers(2, 7)]
        m = mixed_model(x)
        found.append((m.of_conditions, m.of_policies_on_conditions, m.of_rollouts))
    of = np.sqrt(np.mean(found, axis=0))
    assert of == pytest.approx([0.12, 0.06, 0.08], rel=0.06)


def test_effects_are_means_over_conditions_and_intervals_agree_with_decisions():
    rng = np.random.default_rng(2)
    x = balanced(rng, conditions=40)
    x[2] = np.clip(x[2] + 0.35, 0, 1)
    found = mixed_model(laid_out(x))
    by_pair = {(e.a, e.b): e for e in found.effects}
    assert {e.better for e in (by_pair["p0", "p2"], by_pair["p1", "p2"])} == {"p2"}
    assert by_pair["p0", "p1"].better == ""
    for e in found.effects:
        low, high = e.difference.low, e.difference.high
        assert (e.better == e.b) == (low > 0)
        assert (e.better == e.a) == (high < 0)
        assert low <= e.difference.value <= high
    cell = x.mean(axis=2)
    assert by_pair["p0", "p2"].difference.value == pytest.approx(cell[2].mean() - cell[0].mean())
    # In balanced data restricted maximum likelihood gives this standard error (Student's, paired).
    alone = mixed_model(laid_out(x[[0, 2]]))
    mean_square = float((cell[2] - cell[0]).var(ddof=1)) / 2
    expected = alone.of_policies_on_conditions + alone.of_rollouts / x.shape[2]
    assert mean_square == pytest.approx(expected)


@pytest.mark.parametrize("regime", list(ROLLOUTS))
@pytest.mark.parametrize("conditions", [3, 10])
def test_means_are_covered_and_equal_policies_are_rarely_separated(regime, conditions):
    """Few conditions, rates near 0 and 1, conditions that decide all or nothing."""
    rng, runs = np.random.default_rng(conditions), 400
    a, b = rollout_means(rng, (runs, conditions), regime)
    mean = ROLLOUTS[regime][0]
    assert (bounded_p(a, mean, 0.0, 1.0) > 0.05).mean() >= 0.93
    p = bounded_p(b - a, 0.0, -1.0, 1.0)
    assert (p <= 0.05).mean() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)
    # What the model itself computes.
    for i in range(3):
        assert p[i] == pytest.approx(bounded_difference_p(a[i], b[i]), rel=1e-9)


def test_pooled_rollouts_promise_too_much():
    runs, rollouts = 400, 50
    a, b = rollout_means(np.random.default_rng(4), (runs, 10), "half, all or nothing")
    rates = a.mean(axis=1), b.mean(axis=1)
    spread = np.sqrt(sum(p * (1 - p) for p in rates) / rollouts)
    wrong = np.abs(rates[0] - rates[1]) > 1.96 * spread
    assert wrong.mean() > 0.2  # Why conditions are counted.


def test_what_cannot_be_told_is_not_told():
    one = mixed_model({"a": {"c": [0.5]}})
    assert one.effects == ()
    assert all(
        math.isnan(v) for v in (one.of_conditions, one.of_policies_on_conditions, one.of_rollouts)
    )
    flat = mixed_model({n: {c: [1.0, 1.0] for c in "xyz"} for n in "ab"})
    assert (flat.of_conditions, flat.of_policies_on_conditions, flat.of_rollouts) == (0, 0, 0)
    assert flat.effects[0].difference.high - flat.effects[0].difference.low > 0.9
    single = mixed_model({"a": {"x": [0.0], "y": [1.0]}, "b": {"x": [0.0], "y": [1.0]}})
    assert single.of_conditions == pytest.approx(0.5)
    assert math.isnan(single.of_policies_on_conditions)
    with pytest.raises(DataError, match="same conditions; 1 are not"):
        mixed_model({"a": {"x": [0.0]}, "b": {"x": [1.0], "y": [1.0]}})
    with pytest.raises(DataError, match="needs a policy"):
        mixed_model({"a": {}})
    for bad in (math.nan, 1.5, -0.1):
        with pytest.raises(DataError, match="outside or not numbers"):
            mixed_model({"a": {"x": [0.5, bad]}})
    with pytest.raises(DataError, match="at least one rollout"):
        mixed_model({"a": {"x": []}})
