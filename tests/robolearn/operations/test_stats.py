"""The calculator as functions: what it returns, and what it refuses."""

from __future__ import annotations

import math

import pytest

from eval.statistics.exact_difference import exact_difference
from eval.statistics.exact_tests import bounded_difference_p, mcnemar_exact
from eval.statistics.intervals import bounded_difference, newcombe_paired
from robolearn.errors import ConfigError, DataError
from robolearn.operations.stats import (
    Counts,
    Interval,
    compare_pairs,
    compare_rates,
    intervals,
    plan_rates,
)


def test_counts_are_checked_when_they_are_made() -> None:
    assert [e.method for e in intervals(Counts(14, 50))][:2] == ["Clopper-Pearson", "Wilson"]
    for successes, trials in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ConfigError, match="at least one trial"):
            Counts(successes, trials)


def test_rates_are_compared_by_boschloos_test() -> None:
    found = compare_rates(Counts(14, 50), Counts(40, 50), level=0.9)
    assert found.p_value == found.p_values["Boschloo"] < 1e-6
    assert found.difference.value == pytest.approx(0.52)
    assert found.difference.level == 0.9
    assert found.probability_b_better > 0.999


def test_pairs_are_compared_by_what_compares_policies() -> None:
    a, b = [1.0] * 6 + [0.0] * 9, [1.0] * 5 + [0.0] + [1.0] * 9
    found = compare_pairs(a, b)
    assert found.p_value == mcnemar_exact(a, b)
    assert (found.only_a, found.only_b, found.decision) == (1, 9, "b")
    assert found.difference == bounded_difference(a, b)
    narrow = compare_pairs(a, b, interval="newcombe")
    assert narrow.difference == newcombe_paired(a, b)
    x, y = [0.2, 0.5, 0.1], [0.4, 0.7, 0.2]
    few = compare_pairs(x, y)
    assert (few.p_value, few.only_a) == (bounded_difference_p(x, y), None)
    # Resampled, three differences of like sign once seemed to exclude 0.
    assert few.difference.low < 0 < few.difference.high
    assert few.decision == ""
    many = compare_pairs([0.2] * 30, [0.5] * 30)
    assert (many.decision, many.difference.low > 0) == ("b", True)
    with pytest.raises(ConfigError, match="of successes"):
        compare_pairs([0.2], [0.4], interval="newcombe")
    for bad in ([], [math.nan], [1.2]):
        with pytest.raises(ConfigError, match=r"outcomes in \[0, 1\]"):
            compare_pairs(bad, bad)
    with pytest.raises(DataError, match="same conditions"):
        compare_pairs([0.0, 1.0], [1.0])


@pytest.mark.parametrize("rates", [(3, 10, 9, 10), (0, 5, 4, 5), (1, 20, 7, 20), (0, 4, 0, 4)])
@pytest.mark.parametrize("interval", ["exact", "newcombe"])
def test_the_interval_of_two_rates_and_the_test_never_contradict_each_other(
    rates: tuple[int, int, int, int], interval: Interval
) -> None:
    k1, n1, k2, n2 = rates
    found = compare_rates(Counts(k1, n1), Counts(k2, n2), interval=interval)
    low, high = found.difference.low, found.difference.high
    assert (found.decision == "b") == (low > 0) == (found.p_value <= 0.05)
    assert low <= found.difference.value <= high
    if interval == "exact":
        assert found.difference.method == "exact unconditional"
        alone = exact_difference(k2, n2, k1, n1)
        assert high == pytest.approx(alone.high)
        assert min(alone.low, 0.0) <= low <= max(alone.low, 1e-12)


def test_a_million_trials_are_compared_without_a_table_of_all_outcomes() -> None:
    found = compare_rates(Counts(500_000, 1_000_000), Counts(503_000, 1_000_000))
    assert (found.method, found.difference.method) == ("Fisher, two-sided", "Newcombe")
    assert found.decision == "b"
    assert "Boschloo" not in found.p_values


def test_plans_stay_among_rates() -> None:
    assert plan_rates(0.95, 0.1).other == 0.85
    assert plan_rates(0.7, 0.1).plan.trials == 299
    with pytest.raises(ConfigError, match="must be rates"):
        plan_rates(1.7, 0.1)
