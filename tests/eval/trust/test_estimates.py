"""Real success with the help of simulation: coverage, width, and what is never claimed."""

from __future__ import annotations

import numpy as np
import pytest

from eval.trust.estimates import betting_interval, real_estimate
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
    assert useless.narrower < good.narrower - 0.1
    constant = real_estimate(paired(real, np.ones(20), np.ones(400)))
    assert constant.correlation is None
    assert constant.saved <= 1
    assert real_estimate(paired(real, sim[:20], sim[20:])) == good


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
    # Successes that were repeated in reality are means over conditions.
    repeated = PairedConditions("p", {"a": (1.0, 0.0), "b": (1.0, 1.0)}, {"a": (1.0,), "b": (1.0,)},
                                {})  # fmt: skip
    assert real_estimate(repeated).estimate.value == pytest.approx(0.75)


def test_bets_cover_nasty_scores() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(150):
        values = np.where(rng.random(15) < 0.1, 0.0, 0.95)
        low, high = betting_interval(values)
        held += low <= 0.855 <= high
    assert held / 150 >= 0.95
    assert betting_interval(np.zeros(0)) == (0.0, 1.0)
