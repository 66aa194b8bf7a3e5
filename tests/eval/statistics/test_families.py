"""One family of comparisons, margins, rollouts within conditions: promises as simulations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from eval.statistics.equivalence import equivalence, non_inferiority
from eval.statistics.exact_tests import bounded_difference_p, bounded_mean_p, mcnemar_exact
from eval.statistics.intervals import (
    DIFFERENCE,
    OUTCOME,
    Estimate,
    bounded_difference,
    bounded_mean,
    mean_t,
    newcombe,
    newcombe_paired,
    square_and_add,
    wilson,
)
from eval.statistics.multiplicity import family, holm
from eval.statistics.nested import generalisation_gap, mean_of_rollouts
from robolearn.errors import DataError
from tests.benchmarks.bench_statistics import bounded_p


def compared(a, b):
    """P value and interval of one comparison."""
    return bounded_difference_p(a, b), lambda level: bounded_difference(a, b, level)


@given(
    st.lists(
        st.lists(st.sampled_from([-1.0, -0.2, 0.0, 0.3, 1.0]), min_size=5, max_size=25),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["holm", "bonferroni"]),
)
def test_an_interval_leaves_out_zero_exactly_when_its_comparison_is_decided(differences, procedure):
    pairs = [compared(np.maximum(0, -np.array(d)), np.maximum(0, d)) for d in differences]
    p_values, intervals = zip(*pairs, strict=True)
    members = family(p_values, intervals, procedure=procedure)
    for member, corrected in zip(members, holm(p_values), strict=True):
        low, high = member.difference.low, member.difference.high
        assert (member.direction == "positive") == (low > 0)
        assert (member.direction == "negative") == (high < 0)
        assert (member.direction != "undecided") == (member.p <= 0.05)
        assert low <= member.difference.value <= high
        if procedure == "holm":
            assert member.p == corrected


def test_an_interval_that_contradicts_its_exact_test_gives_way():
    a, b = np.repeat([0.0, 1.0], [20, 30]), np.repeat([0.0, 1.0], [15, 35])
    p, apart = mcnemar_exact(a, b), newcombe_paired(a, b)
    assert p > 0.05
    assert apart.low > 0
    (member,) = family([p], [lambda level: newcombe_paired(a, b, level)])
    assert (member.direction, member.difference.low) == ("undecided", 0.0)


def test_what_only_holms_later_steps_decide_begins_at_zero():
    a = np.zeros(40)
    clear, faint = np.ones(40), np.repeat([1.0, 0.0], [6, 34])
    members = family(*zip(compared(a, clear), compared(a, faint), strict=True))
    assert [m.direction for m in members] == ["positive", "positive"]
    assert members[0].difference.low > 0.75
    assert 0 < members[1].difference.low < 1e-9
    single = family(
        *zip(compared(a, clear), compared(a, faint), strict=True), procedure="bonferroni"
    )
    assert [m.direction for m in single] == ["positive", "undecided"]


def test_four_equal_policies_in_three_worlds_are_rarely_called_different():
    """The family has 18 comparisons; uncorrected ones separate a pair in every third page."""
    rng = np.random.default_rng(0)
    runs, decided, missed, alone = 150, 0, 0, 0
    for _ in range(runs):
        a, b = [], []
        for _ in range(3):
            scores = np.clip(rng.beta(5, 1.2, (1, 30)) + rng.normal(0, 0.3, (4, 30)), 0, 1)
            for first, second in itertools.combinations(scores, 2):
                a.append(first)
                b.append(second)
        x, y = np.array(a), np.array(b)
        p_values = bounded_p(y - x, 0.0, -1.0, 1.0).tolist()
        assert p_values[0] == pytest.approx(bounded_difference_p(x[0], y[0]), rel=1e-9)
        separated = ttest_rel(x, y, axis=1).pvalue.min() <= 0.05
        decided += min(holm(p_values)) <= 0.05
        # Of equal policies the interval misses exactly when the unadjusted p is at most alpha / m.
        missed += min(p_values) <= 0.05 / 18
        alone += separated
    assert max(decided, missed) / runs <= 0.05
    assert alone / runs > 0.25


def test_the_words_of_a_margin_follow_the_interval():
    def difference(low, high):
        return Estimate((low + high) / 2, low, high, 40, "given", 0.9)

    inside, across, outside = (
        difference(-0.02, 0.04),
        difference(-0.08, 0.02),
        difference(0.06, 0.2),
    )
    assert [equivalence(e, 0.05).answer for e in (inside, across, outside)] == [
        "shown",
        "not shown",
        "refuted",
    ]
    assert [non_inferiority(e, 0.05).answer for e in (inside, across, outside)] == [
        "shown",
        "not shown",
        "shown",
    ]
    worse = non_inferiority(difference(-0.3, -0.1), 0.05, ("old", "new"))
    assert worse.answer == "refuted"
    assert worse.words.startswith("new is worse than old by 0.05 or more: with n = 40")
    assert worse.alpha == pytest.approx(0.05)
    with pytest.raises(DataError, match="positive difference"):
        equivalence(inside, 0.0)
    with pytest.raises(DataError, match="no trials"):
        equivalence(mean_t([]), 0.1)
    assert equivalence(bounded_difference([], []), 0.1).answer == "not shown"


@pytest.mark.parametrize("n", [20, 60])
def test_policies_that_differ_by_the_margin_are_rarely_called_equivalent(n):
    rng = np.random.default_rng(1)
    runs, margin, shown = 150, 0.25, {"exact": 0, "t": 0}
    for _ in range(runs):
        # The difference is the margin, but comes from rare disasters.
        d = np.where(rng.random(n) < margin / 1.0, -1.0, 0.0)
        shown["exact"] += equivalence(bounded_mean(d, -1.0, 1.0, 0.9), margin).answer == "shown"
        shown["t"] += equivalence(mean_t(d, 0.9, bounds=DIFFERENCE), margin).answer == "shown"
    assert shown["exact"] / runs <= 0.05
    assert n > 20 or shown["t"] > shown["exact"]


def _rollouts(rng, conditions, each, spread=0.4):
    """Successes; the condition decides most of them."""
    a = (1 / spread - 1) / 2
    return rng.random((conditions, each)) < rng.beta(a, a, conditions)[:, None]


def test_rollouts_of_one_condition_do_not_count_as_conditions():
    rng = np.random.default_rng(2)
    runs, covered, pooled = 300, 0, 0
    for _ in range(runs):
        x = _rollouts(rng, 12, 10)
        covered += bounded_mean_p(x.mean(axis=1), 0.5) > 0.05
        e = wilson(int(x.sum()), x.size)
        pooled += e.low <= 0.5 <= e.high
    assert covered / runs >= 0.93
    assert pooled / runs < 0.75
    found = mean_of_rollouts(list(x))
    assert (found.estimate.n, found.trials, found.rollouts) == (12, 120, 10.0)


def test_components_of_variance_are_found():
    rng = np.random.default_rng(3)
    shares = []
    for _ in range(100):
        sizes = rng.integers(2, 9, 25)
        level = rng.normal(0.5, 0.12, 25)
        found = mean_of_rollouts(
            [np.clip(rng.normal(m, 0.06, k), 0, 1) for m, k in zip(level, sizes, strict=True)]
        )
        shares.append(found.share)
    assert np.mean(shares) == pytest.approx(0.8, abs=0.02)
    # By hand: means 0 and 1, no noise within.
    clear = mean_of_rollouts([[0.0, 0.0], [1.0, 1.0]])
    assert (clear.between_conditions, clear.within_condition, clear.share) == (0.5, 0.0, 1.0)
    assert clear.half_width_ratio(100) == 1.0
    assert math.isnan(mean_of_rollouts([[0.1], [0.4]]).share)
    with pytest.raises(DataError, match="at least one rollout"):
        mean_of_rollouts([[0.1], []])


def test_the_generalisation_gap_counts_variants():
    rng = np.random.default_rng(4)
    runs, covered = 150, 0
    for _ in range(runs):
        seen, unseen = rng.beta(12, 2, 8), rng.beta(3, 3, 8)
        found = generalisation_gap(
            [rng.random(20) < p for p in seen], [rng.random(20) < p for p in unseen]
        )
        covered += found.gap.low <= 12 / 14 - 0.5 <= found.gap.high
    assert covered / runs >= 0.93
    assert (found.seen.n, found.unseen.n, found.gap.n) == (8, 8, 16)
    assert found.gap.value == pytest.approx(found.seen.value - found.unseen.value)


def test_square_and_add_is_newcombes_interval():
    first, second = wilson(15, 20), wilson(9, 30)
    assert square_and_add(first, second, "Newcombe") == newcombe(15, 20, 9, 30)
    assert square_and_add(bounded_mean([1.0] * 5), bounded_mean([0.0] * 5), "").high == 1.0
    assert bounded_mean([0.5] * 3).low >= OUTCOME[0]
