"""Spearman's correlation, regret and successive halving, against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from eval.statistics.halving import halving_plan
from eval.statistics.ranking import rank_agreement, spearman
from robolearn.errors import ConfigError, DataError

NUMBERS = st.lists(
    st.tuples(st.integers(0, 6), st.floats(-1, 1, allow_subnormal=False)), min_size=4, max_size=15
)


@settings(max_examples=60, deadline=None)
@given(NUMBERS)
def test_spearman_is_scipys_with_ties(pairs: list[tuple[int, float]]) -> None:
    x, y = np.array(pairs, dtype=np.float64).T
    found = spearman(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(found.value)
        return
    assert found.value == pytest.approx(float(stats.spearmanr(x, y).statistic), abs=1e-9)
    assert -1.0 <= found.low <= found.value <= found.high <= 1.0
    assert spearman(y, x) == found
    turned = spearman(x, -y)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_the_interval_by_hand() -> None:
    # Ranks 1..8 with two swaps: sum d^2 = 4, r = 1 - 6 * 4 / (8 * 63).
    found = spearman(range(8), [1, 0, 2, 3, 5, 4, 6, 7])
    assert found.value == pytest.approx(1 - 24 / 504)
    half = 1.959964 * math.sqrt((1 + found.value**2 / 2) / 5)
    assert found.low == pytest.approx(math.tanh(math.atanh(found.value) - half), abs=1e-6)
    # Perfect, of few: not certain.
    perfect = spearman(range(5), range(5))
    assert perfect.value == perfect.high == 1.0
    assert perfect.low < 0.6
    assert (spearman([1, 2, 3], [1, 2, 3]).low, spearman([1, 2, 3], [1, 2, 3]).high) == (-1, 1)


def test_the_interval_covers() -> None:
    rng = np.random.default_rng(0)
    rho, covered, n = 0.6, 0, 400
    true = 6 / math.pi * math.asin(rho / 2)  # Spearman's of a normal pair.
    for _ in range(n):
        x = rng.normal(size=10)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=10)
        found = spearman(x, y)
        covered += found.low <= true <= found.high
    assert covered / n > 0.92


def test_regret_by_hand() -> None:
    said = {"a": 3.0, "b": 2.0, "c": 1.0, "untried": 9.0}
    found = rank_agreement(said, {"a": 0.5, "b": 0.8, "c": 0.1})
    assert (found.chosen, found.best) == ("a", "b")
    assert found.regret == pytest.approx(0.3)
    assert found.spearman.value == pytest.approx(0.5)
    assert rank_agreement(said, {"b": 0.8, "c": 0.1}).regret == 0.0
    with pytest.raises(DataError, match="an order takes two"):
        rank_agreement(said, {"a": 0.5})


def test_a_race_by_hand() -> None:
    order = ["a", "b", "c", "d", "e", "f", "g", "h"]
    # 24 trials for the better half of eight: two rounds, 24 / (4 * 2) = 3 each, then 24 / (2 * 2).
    plan = halving_plan(order, {}, 24)
    assert (plan.round, plan.rounds, plan.target) == (1, 2, 3)
    assert plan.more == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert plan.not_tried == ("e", "f", "g", "h")
    plan = halving_plan(order, {"a": [0.0, 1.0, 0.0], "b": [1.0]}, 24)
    assert plan.more == {"b": 2, "c": 3, "d": 3}
    assert plan.spent == 4
    first = {"a": [0.0, 1.0, 0.0], "b": [1.0, 0.0, 0.0], "c": [1.0, 1.0, 0.0], "d": [0.0, 0.0, 0.0]}
    plan = halving_plan(order, first, 24)
    # Of equal outcomes the order decides.
    assert (plan.round, plan.survivors, plan.target) == (2, ("c", "a"), 9)
    assert plan.more == {"c": 6, "a": 6}
    # What came later changes nothing of the first round.
    last = first | {"c": [1.0, 1.0, *[0.0] * 7], "a": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]}
    last["b"] = [1.0, 0.0, 0.0, *[1.0] * 6]
    plan = halving_plan(order, last, 24)
    assert plan.over
    assert plan.survivors == ("a",)
    assert not plan.more


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.integers(0, 60), st.integers(0, 2**20))
def test_a_race_ends_within_its_budget_with_one_policy(count: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = [f"p{i}" for i in range(count)]
    rounds = math.ceil(math.log2(count))
    budget = rounds * count + more
    tried: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds + 1):
        plan = halving_plan(order, tried, budget, first=count)
        for name, extra in plan.more.items():
            tried[name] += rng.random(extra).tolist()
        if plan.over:
            break
    assert plan.over
    assert plan.spent <= budget


def test_what_is_no_race_is_refused() -> None:
    with pytest.raises(ConfigError, match="two different policies"):
        halving_plan(["a"], {}, 10)
    with pytest.raises(ConfigError, match="too small: 4 policies in 2"):
        halving_plan(["a", "b", "c", "d"], {}, 7, first=4)
    with pytest.raises(ConfigError, match=r"first must be in 2\.\.3"):
        halving_plan(["a", "b", "c"], {}, 10, first=4)
    with pytest.raises(ConfigError, match="which is not ranked"):
        halving_plan(["a", "b"], {"x": [0.0]}, 10)
