"""Intervals of what policies truly are, how often they hold it, and tables at the limit."""

import random

import numpy as np
import pytest

from eval.trust.measures import MEASURES, values
from eval.trust.outcomes import Outcomes
from eval.trust.report import trust_in, verdict_of
from eval.trust.resampling import as_violated, over_trials
from eval.trust.tables import PolicyPair, TaskTable, pooled
from eval.trust.true_rates import true_rates
from eval.trust.verdict import REACHED, SCREENS

# Real and simulated trials.
N, M = 10, 50
# A table whose MMRV noise reaches in 4.99 of 100 repetitions (300,000 draws), of 20 and 50 trials.
AT_THE_LIMIT = (
    (0, 1, 1, 3, 9, 13, 10, 8, 14, 17, 18, 19),
    (0, 11, 10, 10, 22, 22, 17, 35, 35, 33, 45, 47),
)


def counted(real, sim, n=N, m=M, names=None) -> TaskTable:
    names = names or [f"p{i:02}" for i in range(len(real))]
    return TaskTable(
        "t",
        tuple(
            PolicyPair(name, (Outcomes.of_counts(int(a), n),), (Outcomes.of_counts(int(b), m),))
            for name, a, b in zip(names, real, sim, strict=True)
        ),
    )


@pytest.mark.parametrize("off", [0.0, 0.05, 0.5])
def test_intervals_hold_what_is_true(off) -> None:
    """Percentiles of trials done again held Pearson's correlation in .0 to .4 of such tables, the
    mean difference in .0 to .1 where the simulator is good.
    """
    rng = np.random.default_rng(0)
    kept: dict[str, list[bool]] = {name: [] for name in MEASURES}
    for seed in range(40):
        real = rng.uniform(0.1, 0.95, 8)
        sim = np.clip(real + rng.normal(0.0, off, 8), 0.02, 0.98)
        table = counted(rng.binomial(N, real), rng.binomial(M, sim))
        found = over_trials(table, 0.95, seed)
        true = values(sim=sim[None], real=real[None])
        for name, (low, high) in found.items():
            kept[name].append(low - 1e-9 <= float(true[name][0]) <= high + 1e-9)
    # 95 of 100 are promised; with 40 tables 33 or fewer hold it in one of 100 cases.
    for name, held in kept.items():
        assert np.mean(held) >= 0.825, name


def test_rates_that_all_ended_alike_are_not_known_without_noise() -> None:
    table = counted([10] * 3 + [0] * 3, [50] * 3 + [0] * 3)
    found = over_trials(table, 0.95, 0)
    assert found["pearson"][0] < 0.999
    for name in ("mae", "ccc", "bias", "mmrv"):
        assert found[name][1] - found[name][0] > 0.01, name
    # Nothing is drawn of them, so that nothing is known of the line's noise.
    assert "slope" not in found


def test_a_rate_without_trials_is_known() -> None:
    table = TaskTable(
        "t",
        tuple(
            PolicyPair(f"p{i}", (Outcomes(i / 9),), (Outcomes.of_counts(i, 9),)) for i in range(10)
        ),
    )
    sim, real = true_rates(table, 300, np.random.default_rng(0))
    assert real == pytest.approx(np.broadcast_to(table.real, real.shape))
    assert sim.std(axis=0).min() > 0.005
    low, high = over_trials(table, 0.95, 0)["slope"]
    assert low < 1.0 < high


def test_scores_that_differ_little_have_little_noise() -> None:
    rng = np.random.default_rng(0)

    def scored(width: float) -> TaskTable:
        made = [np.clip(c + rng.uniform(-width, width, 40), 0, 1) for c in np.linspace(0.2, 0.8, 6)]
        sides = [(Outcomes(float(s.mean()), s.size, s),) for s in made]
        return TaskTable("t", tuple(PolicyPair(f"p{i}", s, s) for i, s in enumerate(sides)))

    narrow, wide = (true_rates(scored(w), 400, rng)[1].std(axis=0).mean() for w in (0.02, 0.2))
    # Not in proportion: what is rare may not be among so few.
    assert narrow < 0.6 * wide
    # A mean over two tasks is known better than one of them.
    one = scored(0.2)
    both = pooled([one, TaskTable("u", scored(0.2).pairs)])
    assert true_rates(both, 400, rng)[1].std(axis=0).mean() < 0.85 * wide


def test_what_is_said_does_not_depend_on_the_order_of_lines() -> None:
    rng = np.random.default_rng(3)
    real = np.linspace(0.1, 0.9, 9)
    table = counted(rng.binomial(N, real), rng.binomial(M, real))
    first = trust_in(table)
    for seed in range(3):
        pairs = list(table.pairs)
        random.Random(seed).shuffle(pairs)
        again = trust_in(TaskTable("t", tuple(pairs)))
        assert again.judgement == first.judgement
        for name, m in first.measures.items():
            n = again.measures[name]
            assert n.over_trials == pytest.approx(m.over_trials, abs=1e-12), name
            assert n.over_policies == pytest.approx(m.over_policies, abs=1e-12), name
            assert n.chance == m.chance, name


def test_at_the_limit_the_weaker_verdict_holds_with_every_seed() -> None:
    table = counted(*AT_THE_LIMIT, n=20)
    share = as_violated(table, 0, REACHED)
    assert share is not None
    assert share.draws > 10_000
    assert not share.told(REACHED)
    assert {verdict_of(table, seed=seed) for seed in range(4)} == {SCREENS}
    judged = trust_in(table).judgement
    assert "too near to the limit of 0.05" in judged.why
    assert "a few more trials decide it" in judged.more
