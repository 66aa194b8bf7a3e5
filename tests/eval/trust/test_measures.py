"""Measures of agreement: published figures, definitions by brute force, symmetry and ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from eval.trust.measures import MEASURES, fisher_z, mmrv, values
from tests.eval.trust.simpler import RATES


def one(name: str, sim, real) -> float:
    s, r = (np.array([v], dtype=np.float64) for v in (sim, real))
    return float(MEASURES[name].of(sim=s, real=r)[0])


def simplers(sim, real) -> float:
    """SIMPLER's own loop."""
    total = 0.0
    for i in range(len(sim)):
        total += max(
            [0.0]
            + [
                abs(real[i] - real[j])
                for j in range(len(sim))
                if (sim[i] > sim[j]) != (real[i] > real[j])
            ]
        )
    return total / len(sim)


@pytest.mark.parametrize(
    ("task", "violation", "swapped", "correlation"),
    [
        ("coke", 0.031, None, 0.975),
        ("move near", 0.1110, 0.0027, 0.856),
        ("open drawer", 0.000, 0.000, 0.983),
        ("close drawer", 0.123, None, 0.771),
        ("apple", 0.0000, 0.0108, 0.969),
    ],
)
def test_simplers_table_to_the_printed_digit(task, violation, swapped, correlation) -> None:
    _, real, sim = RATES[task]
    assert one("mmrv", sim, real) == pytest.approx(violation, abs=5e-4)
    assert one("pearson", sim, real) == pytest.approx(correlation, abs=5e-4)
    if swapped is not None:
        # What comes out of the documented call, which has the arguments the wrong way round.
        assert one("mmrv", real, sim) == pytest.approx(swapped, abs=5e-5)


def test_the_papers_averages_are_of_other_columns() -> None:
    """Table I prints .056 and .924; three ways to average the published columns give other ones."""
    columns = {task: (sim, real) for task, (_, real, sim) in RATES.items()}
    both = [
        tuple(np.mean([columns[f"{way} drawer"][side] for way in ("open", "close")], axis=0))
        for side in (0, 1)
    ]
    three = [columns["coke"], columns["move near"], both]
    for pairs, violation, correlation in (
        (list(columns.values()), 0.0531, 0.9110),
        ([*three, columns["apple"]], 0.0495, 0.9292),
        (three, 0.0659, 0.9158),
    ):
        mean = [np.mean([one(n, s, r) for s, r in pairs]) for n in ("mmrv", "pearson")]
        assert mean == pytest.approx([violation, correlation], abs=5e-5)
        assert mean != pytest.approx([0.056, 0.924], abs=5e-4)


def test_what_cannot_be_swapped_by_position() -> None:
    with pytest.raises(TypeError):
        mmrv(np.zeros((1, 3)), np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("task", "low", "high"),
    [("coke", 0.79, 0.997), ("move near", 0.15, 0.98), ("close drawer", -0.11, 0.97)],
)
def test_fisher_intervals_of_single_columns(task, low, high) -> None:
    _, real, sim = RATES[task]
    found = fisher_z("pearson", sim=np.array(sim), real=np.array(real), level=0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-3)


def test_regret_of_simplers_choices() -> None:
    lost = {task: one("top1_regret", sim, real) for task, (_, real, sim) in RATES.items()}
    assert lost == pytest.approx(
        {"coke": 0.067, "move near": 0, "open drawer": 0, "close drawer": 0.185, "apple": 0},
        abs=5e-4,
    )


RATE = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(RATE, RATE), min_size=2, max_size=9))
def test_definitions_with_ties(pairs) -> None:
    sim, real = np.array(pairs, dtype=np.float64).T
    assert one("mmrv", sim, real) == pytest.approx(simplers(sim, real), abs=1e-12)
    k = len(sim)
    loss = 0.0
    for i in range(k):
        for j in range(i):
            a, b = np.sign(sim[i] - sim[j]), np.sign(real[i] - real[j])
            loss += 1.0 if a * b < 0 else 0.5 * ((a == 0) != (b == 0))
    assert one("pairwise_rank_loss", sim, real) == pytest.approx(loss / (k * (k - 1) / 2))
    if np.ptp(sim) == 0 or np.ptp(real) == 0:
        for name in ("pearson", "spearman", "kendall"):
            assert np.isnan(one(name, sim, real))
        return
    assert one("kendall", sim, real) == pytest.approx(stats.kendalltau(sim, real).statistic)
    assert one("spearman", sim, real) == pytest.approx(stats.spearmanr(sim, real).statistic)
    assert one("pearson", sim, real) == pytest.approx(stats.pearsonr(sim, real).statistic)
    line = stats.linregress(sim, real)
    assert one("slope", sim, real) == pytest.approx(line.slope, abs=1e-9)
    assert one("intercept", sim, real) == pytest.approx(line.intercept, abs=1e-9)


def test_concordance_by_hand() -> None:
    sim, real = [0.1, 0.5, 0.9], [0.2, 0.6, 1.0]
    spread = 2 * 0.32 / 3
    assert one("ccc", sim, real) == pytest.approx(spread / (spread + 0.01))
    assert one("bias", sim, real) == pytest.approx(-0.1)
    assert one("mae", sim, real) == pytest.approx(0.1)
    assert np.isnan(one("ccc", [0.5] * 3, [0.5] * 3))
    assert one("ccc", [0.5] * 3, real) == 0.0
    # Of several that the simulator likes best the mean counts.
    assert one("top1_regret", [0.9, 0.9, 0.1], [0.2, 0.6, 1.0]) == pytest.approx(0.6)


@pytest.mark.parametrize("k", [2, 12, 64, 200])
def test_together_measures_are_what_each_is_alone(k: int) -> None:
    rng = np.random.default_rng(k)
    sim, real = (rng.binomial(20, rng.random(k), (30, k)) / 20 for _ in range(2))
    sim[0], real[1] = 0.5, 0.5
    together = values(sim=sim, real=real)
    for name, measure in MEASURES.items():
        assert np.array_equal(together[name], measure.of(sim=sim, real=real), equal_nan=True)
    if k >= 3:
        drawn = slice(2, 8)
        pairs = zip(sim[drawn], real[drawn], strict=True)
        tau = [stats.kendalltau(a, b).statistic for a, b in pairs]
        assert together["kendall"][drawn] == pytest.approx(tau)


def test_no_measure_leaves_its_range_by_rounding() -> None:
    """Of sums: a regret of -1e-16, a concordance of 1 + 2e-16."""
    rng = np.random.default_rng(0)
    real = rng.binomial(20, 0.5, (4_000, 8)) / 20
    sim = np.repeat(rng.integers(0, 2, (4_000, 4)), 2, axis=1).astype(np.float64)
    found = values(sim=sim, real=real)
    for name in ("top1_regret", "mmrv", "mae", "pairwise_rank_loss"):
        assert found[name].min() >= 0
    same = values(sim=sim, real=sim.copy())
    for name in ("pearson", "spearman", "kendall", "ccc"):
        assert np.nanmax(np.abs(same[name])) <= 1
