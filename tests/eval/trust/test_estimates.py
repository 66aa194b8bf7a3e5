"""Real success with the help of simulation: coverage, width, and what is never claimed."""

from __future__ import annotations

import numpy as np
import pytest

from eval.trust.estimates import (
    betting_interval,
    possible_saving,
    real_estimate,
    repetitions,
)
from eval.trust.pairing import PairedConditions
from tests.benchmarks.bench_trust import covered


def paired(real, sim, more=()) -> PairedConditions:
    def side(values, name: str) -> dict[str, tuple[float, ...]]:
        return {f"{name}{i}": (float(v),) for i, v in enumerate(values)}

    return PairedConditions("p", side(real, "c"), side(sim, "c"), side(more, "x"))


@pytest.mark.parametrize("n", [10, 20, 50])
def test_covers_and_is_narrower_where_simulation_helps_and_no_wider_where_not(n: int) -> None:
    rates = (0.1, 0.3, 0.5, 0.8)
    found = {c: covered(n, c, rates, 800) for c in (0.0, 0.5, 0.75)}
    for repeated in found.values():
        assert np.mean([r.coverage for r in repeated]) >= 0.94
    useful = [r.width / r.width_alone for r in found[0.75]]
    assert np.mean(useful) <= 0.8
    assert max(r.width / r.width_alone for r in found[0.0]) <= 1.05


@pytest.mark.parametrize("n", [10, 20, 50])
@pytest.mark.parametrize("rate", [0.02, 0.05, 0.95, 0.98])
def test_rare_outcomes_are_covered_as_by_real_trials_alone(n: int, rate: float) -> None:
    """By what simulation tells of them the interval covered .83 where Wilson's covers .98."""
    for correlation in (0.0, 0.25):
        for found in covered(n, correlation, (rate,), 3_000):
            assert found.coverage >= min(0.94, found.coverage_alone) - 0.035
            assert found.width <= 1.02 * found.width_alone


@pytest.mark.parametrize("rare", [0, 1, 2])
@pytest.mark.parametrize("n", [10, 20, 50])
def test_of_few_successes_or_failures_no_saving_is_claimed(n: int, rare: int) -> None:
    real = np.arange(n) < rare
    for outcomes in (real, ~real):
        more = [float(i % 5 == 0) for i in range(500)]
        for simulated in (outcomes, np.roll(outcomes, 3)):
            found = real_estimate(paired(outcomes, simulated, more))
            assert found.saved == 0
            helps = rare > 0 and simulated is outcomes
            assert (found.estimate != found.alone) == helps


def test_a_good_simulator_saves_trials_and_a_useless_one_none() -> None:
    rng = np.random.default_rng(0)
    sim = (rng.random(420) < 0.6).astype(float)
    real = np.where(rng.random(20) < 0.92, sim[:20], 1 - sim[:20])
    good = real_estimate(paired(real, sim[:20], sim[20:]))
    assert good.correlation is not None
    assert good.correlation > 0.6
    assert good.saved >= 3
    assert good.estimate.high - good.estimate.low < good.alone.high - good.alone.low
    assert good.coverage is not None
    assert good.coverage >= 0.94
    assert (good.estimate.n, good.simulated) == (20, 420)
    useless = real_estimate(paired(real, rng.permutation(sim[:20]), sim[20:]))
    assert useless.narrower is not None
    assert good.narrower is not None
    assert useless.narrower < good.narrower - 0.1
    constant = real_estimate(paired(real, np.ones(20), np.ones(400)))
    assert constant.correlation is None
    assert constant.saved == 0
    assert real_estimate(paired(real, sim[:20], sim[20:])) == good


def test_a_simulator_that_knows_nothing_saves_trials_by_chance_alone() -> None:
    rng = np.random.default_rng(3)
    claims = 0
    for seed in range(60):
        sim = (rng.random(450) < 0.2).astype(float)
        real = (rng.random(50) < 0.2).astype(float)
        claims += real_estimate(paired(real, sim[:50], sim[50:]), seed=seed).saved > 0
    # Most of them claimed one before (the intervals were right: nothing was saved).
    assert claims <= 6


@pytest.mark.parametrize("real", [[1.0] * 10, [0.0] * 10, [1.0], [0.0, 1.0]])
def test_edges(real) -> None:
    found = real_estimate(paired(real, real, [1.0, 0.0] * 50))
    assert 0.0 <= found.estimate.low <= found.estimate.value <= found.estimate.high <= 1.0
    assert found.saved >= 0


def test_scores_are_bet_on_and_nothing_is_claimed() -> None:
    rng = np.random.default_rng(1)
    quality = rng.random(330)
    real = np.clip(quality[:30] + rng.normal(0, 0.1, 30), 0, 1)
    found = real_estimate(paired(real, quality[:30], quality[30:]))
    assert found.estimate.method == "rectified simulation, betting"
    assert found.estimate.low <= real.mean() <= found.estimate.high
    assert (found.saved, found.coverage) == (0, None)


def test_repetitions_count_once_and_say_what_could_be_saved() -> None:
    rng = np.random.default_rng(3)
    sim = (rng.random(520) < 0.5).astype(float)
    real = np.where(rng.random(20) < 0.9, sim[:20], 1 - sim[:20])
    once = paired(real, sim[:20], sim[20:])
    # Repetitions of some starts change nothing but what is known of the ceiling.
    twice = PairedConditions(
        "p",
        {n: v * 2 if i < 6 else v for i, (n, v) in enumerate(once.real.items())},
        once.sim,
        once.only_simulated,
    )
    assert real_estimate(twice) == real_estimate(once)
    assert real_estimate(once).possible is None
    none, some, much = (real_estimate(twice, repeats=share).possible for share in (0.0, 0.5, 0.9))
    assert none is not None
    assert some is not None
    assert much is not None
    assert none <= 2 < some < much


def test_what_a_perfect_simulator_saves_is_predicted() -> None:
    """From the ceiling alone, against simulators that are perfect in that very world."""
    rng = np.random.default_rng(4)
    # Chances of Beta(a, a): the condition explains 1 / (2 a + 1) of a single outcome.
    share, n, more = 0.6, 40, 400
    a = (1.0 - share) / share / 2.0
    saved: list[int] = []
    for _ in range(40):
        chance = rng.beta(a, a, n + more)
        real, sim = (rng.random(n + more) < chance for _ in range(2))
        saved.append(real_estimate(paired(real[:n], sim[:n], sim[n:])).saved)
    predicted = possible_saving(0.5, n, more, share)
    assert predicted == pytest.approx(np.mean(saved), rel=0.25)


def test_bets_cover_nasty_scores() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(150):
        values = np.where(rng.random(15) < 0.1, 0.0, 0.95)
        low, high = betting_interval(values)
        held += low <= 0.855 <= high
    assert held / 150 >= 0.95
    assert betting_interval(np.zeros(0)) == (0.0, 1.0)


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize("n", [1, 3, 20, 60])
def test_halving_finds_the_ends_of_the_whole_grid(n: int, level: float) -> None:
    rng = np.random.default_rng(n)
    for values in (rng.random(n), rng.beta(0.3, 0.2, n), np.ones(n), np.arange(n) % 2.0):
        assert betting_interval(values, level) == whole_grid(values, level)


def whole_grid(values: np.ndarray, level: float) -> tuple[float, float]:
    """The definition: every mean of a grid at which neither bet has won enough."""
    n, wall = values.size, np.log(2 / (1.0 - level))
    counts = np.arange(1, n + 1)
    centres = (0.5 + np.cumsum(values)) / (counts + 1)
    variances = (0.25 + np.cumsum((values - centres) ** 2)) / (counts + 1)
    bet = np.sqrt(2 * wall / (n * np.concatenate([[0.25], variances[:-1]])))[:, None]
    m = np.linspace(0, 1, 2_001)
    with np.errstate(divide="ignore"):
        up = np.log1p(np.minimum(bet, 0.5 / m) * (values[:, None] - m)).sum(axis=0)
        down = np.log1p(-np.minimum(bet, 0.5 / (1 - m)) * (values[:, None] - m)).sum(axis=0)
    kept = m[np.maximum(up, down) < wall]
    return max(0.0, kept[0] - 1 / 2_000), min(1.0, kept[-1] + 1 / 2_000)


def test_repetitions_are_the_same_numbers_as_ever() -> None:
    """Tables that are drawn several times are judged once; of many trials all are."""
    few = repetitions(np.array([6.0, 2.0, 1.0, 11.0]), 30, np.random.default_rng(0))
    assert (few.coverage, few.coverage_alone) == (0.954, 0.962)
    assert (few.width, few.width_alone) == pytest.approx((0.33845958796207243, 0.3786921822830716))
    many = repetitions(np.array([120.0, 40.0, 20.0, 220.0]), 0, np.random.default_rng(0))
    assert (many.coverage, many.coverage_alone) == (0.94325, 0.94325)
    assert many.width == pytest.approx(0.09305022801667952)
