"""The calculator as functions: what it returns, and what it refuses."""

from __future__ import annotations

import pytest

from eval.statistics.exact_tests import mcnemar_exact
from robolearn.errors import ConfigError
from robolearn.operations.stats import (
    Counts,
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


def test_pairs_of_successes_have_a_test_and_pairs_of_progress_have_none() -> None:
    a, b = [1.0] * 6 + [0.0] * 9, [1.0] * 5 + [0.0] + [1.0] * 9
    found = compare_pairs(a, b)
    assert found.p_value == mcnemar_exact(a, b)
    assert (found.only_a, found.only_b) == (1, 9)
    partial = compare_pairs([0.2, 0.5, 0.1], [0.4, 0.7, 0.2])
    assert (partial.p_value, partial.only_a) == (None, None)
    assert partial.difference.low > 0


def test_plans_stay_among_rates() -> None:
    assert plan_rates(0.95, 0.1).other == 0.85
    assert plan_rates(0.7, 0.1).plan.trials == 299
    with pytest.raises(ConfigError, match="must be rates"):
        plan_rates(1.7, 0.1)
