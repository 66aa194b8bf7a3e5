"""Floors take trials of one start together, as the world does that made them."""

from __future__ import annotations

import numpy as np
import pytest

from eval.trust.measures import mmrv
from eval.trust.outcomes import Outcomes, Repeats, Starts, from_starts, starts_of
from eval.trust.resampling import noise_floor, order_floor, over_trials
from eval.trust.tables import PolicyPair, TaskTable, pooled
from eval.trust.verdict import share_recognised
from robolearn.shapes import FloatRows, Floats

RATES = np.linspace(0.1, 0.9, 8)
STARTS, REAL, SIM = 20, 1, 5


def happened(rng: np.random.Generator, *, known: bool, alike: bool) -> list[np.ndarray]:
    """Successes [policies, starts] in reality and in simulation, of policies of ``RATES``: every
    start is solved always or never by a policy. A simulator that is perfect, or (not ``known``)
    has the rates, but other starts; ``alike``: the same starts are hard for all policies.
    """
    shape = (1 if alike else len(RATES), STARTS)
    hard = rng.random(shape), rng.random(shape)
    sides = (hard[0], hard[0] if known else hard[1])
    return [
        np.broadcast_to((h < RATES[:, None]) * n, (len(RATES), STARTS))
        for h, n in zip(sides, (REAL, SIM), strict=True)
    ]


def table_of(real: np.ndarray, sim: np.ndarray, *, starts: bool = True) -> TaskTable:
    sides = [
        [
            {f"s{i}": (1.0,) * int(c) + (0.0,) * (n - int(c)) for i, c in enumerate(row)}
            for row in rows
        ]
        for rows, n in ((real, REAL), (sim, SIM))
    ]
    own = starts_of(*sides)
    pairs = [
        PolicyPair(
            f"p{k}",
            (Outcomes.of_counts(int(real[k].sum()), real[k].size * REAL),),
            (Outcomes.of_counts(int(sim[k].sum()), sim[k].size * SIM),),
            (own[k],) if starts else (),
        )
        for k in range(len(RATES))
    ]
    return TaskTable("t", tuple(pairs))


def violations(known: bool, alike: bool, worlds: int = 1_500) -> Floats:
    rng = np.random.default_rng(1)
    drawn = [happened(rng, known=known, alike=alike) for _ in range(worlds)]
    real, sim = (np.array([d[i].mean(axis=1) for d in drawn]) for i in (0, 1))
    return mmrv(sim=sim / SIM, real=real / REAL)


@pytest.mark.parametrize("alike", [False, True], ids=["starts of their own", "the same hard ones"])
def test_the_floor_of_order_is_that_of_the_world(alike: bool) -> None:
    """Five rollouts of a start that all end alike are one. Taken for five, a perfect order was
    found wrong in about half of the worlds instead of one in twenty.
    """
    truth = float(np.percentile(violations(False, alike), 95))
    rng = np.random.default_rng(2)
    made = [happened(rng, known=False, alike=alike) for _ in range(8)]
    found, before = (
        np.mean([order_floor(table_of(*m, starts=s), 0)["mmrv"].p95 for m in made])
        for s in (True, False)
    )
    assert abs(found - truth) < 0.35 * abs(before - truth), (truth, found, before)


def test_the_floor_of_a_perfect_simulator_knows_that_starts_are_shared() -> None:
    """What a start does to both worlds is no noise between them: here there is none at all."""
    assert violations(True, False).max() == 0.0
    made = happened(np.random.default_rng(3), known=True, alike=False)
    floor = noise_floor(table_of(*made), 0)
    assert floor["mmrv"].p95 == floor["mae"].p95 == 0.0
    assert floor["pearson"].p5 == pytest.approx(1.0)
    before = noise_floor(table_of(*made, starts=False), 0)
    assert before["mmrv"].p95 > 0.1


def test_what_starts_explain_is_found_in_trials() -> None:
    rng = np.random.default_rng(4)
    real, sim = [{}, {}], [{}, {}]
    for i in range(6_000):
        # A start is decided in both worlds (3 of 10), in simulation alone (2), or in neither; how,
        # is the same for both policies in half of them.
        decided, common = rng.random(), rng.random() < 0.5
        ways = rng.random(2) < 0.4
        for k in range(2):
            way = bool(ways[0] if common else rng.random() < 0.4)
            own = bool(ways[1] if common else rng.random() < 0.4)
            in_real = [way] * 3 if decided < 0.3 else rng.random(3) < 0.4
            in_sim = (
                [way] * 4 if decided < 0.3 else [own] * 4 if decided < 0.5 else rng.random(4) < 0.4
            )
            real[k][f"s{i}"] = tuple(float(v) for v in in_real)
            sim[k][f"s{i}"] = tuple(float(v) for v in in_sim)
    found = starts_of(real, sim)[0].repeats
    assert found.real == pytest.approx(0.3, abs=0.03)
    assert found.sim == pytest.approx(0.5, abs=0.03)
    assert found.joint == pytest.approx(0.3, abs=0.03)
    assert found.policies == pytest.approx(0.5, abs=0.06)
    # Reality was not repeated: simulated trials stand for the repetition.
    once = starts_of([{n: v[:1] for n, v in side.items()} for side in real], sim)[0].repeats
    assert once.real == pytest.approx(0.3, abs=0.04)
    assert once.perfect == Repeats(once.real, once.real, once.real, once.policies)
    # What is the same everywhere says nothing.
    same = starts_of([{"a": (1.0,), "b": (1.0,)}], [{"a": (1.0,), "b": (1.0,)}])[0]
    assert same.repeats == Repeats(0.0, 0.0, 0.0, 0.0)
    assert len(same) == 2


def spread_of(repeats: Repeats, scores: np.ndarray | None) -> tuple[FloatRows, FloatRows]:
    outcome = Outcomes(0.4 if scores is None else float(scores.mean()), 60, scores)
    starts = Starts(np.full(20, 3, np.float32), np.full(20, 5, np.float32), repeats)
    both = [outcome] * 2
    return from_starts(both, both, [starts] * 2, repeats, 8_000, np.random.default_rng(5))


@pytest.mark.parametrize("scores", [None, np.array([0.1, 0.2, 0.2, 0.9])], ids=["won", "scores"])
def test_draws_vary_and_go_together_as_told(scores: np.ndarray | None) -> None:
    told = Repeats(real=0.6, sim=0.5, joint=0.3, policies=0.49)
    sim, real = spread_of(told, scores)
    single = 0.24 if scores is None else float(scores.var())
    for drawn, share, n in ((real, told.real, 3), (sim, told.sim, 5)):
        assert drawn.var() == pytest.approx(single * (share + (1 - share) / n) / 20, rel=0.05)
        across = float(np.cov(drawn.T)[0, 1])
        assert across == pytest.approx(single * told.policies * share / 20, rel=0.12)
    joint = float(np.cov(sim[:, 0], real[:, 0])[0, 1])
    assert joint == pytest.approx(single * told.joint / 20, rel=0.1)
    # Nothing that starts explain: independent trials.
    sim, real = spread_of(Repeats(0.0, 0.0, 0.0, 0.0), scores)
    assert sim.var() == pytest.approx(single / 100, rel=0.05)
    assert abs(float(np.corrcoef(sim[:, 0], real[:, 0])[0, 1])) < 0.03


@pytest.mark.parametrize("scored", [False, True], ids=["won", "scores"])
def test_draws_vary_as_told_where_starts_are_tried_unequally_often(scored: bool) -> None:
    told = Repeats(real=0.4, sim=0.4, joint=0.2, policies=0.0)
    counts = np.repeat([1, 7], 10)
    tried: list[tuple[float, ...]] = [(0.1,)] * 4 + [(1.0,)] * 6 + [(0.2,) * 7] * 10
    tried = tried if scored else [tuple(float(v > 0.5) for v in o) for o in tried]
    outcome = Outcomes.over_starts(tried, scored=scored)
    starts = Starts(counts.astype(np.float32), np.full(20, 8, np.float32), told)
    rng = np.random.default_rng(7)
    sim, real = from_starts([outcome], [outcome], [starts], told, 20_000, rng)
    each = (
        np.array([0.1] * 4 + [1.0] * 6 + [0.2] * 10) if scored else np.array([1.0] * 6 + [0.0] * 14)
    )
    assert outcome.rate == pytest.approx(each.mean())
    for drawn, n in ((real, counts), (sim, np.full(20, 8))):
        assert drawn.mean() == pytest.approx(each.mean(), abs=0.005)
        want = each.var() * (0.4 + 0.6 / n).sum() / 20**2
        assert drawn.var() == pytest.approx(want, rel=0.05)
    assert starts.worth("real") == pytest.approx(each.var() / real.var(), rel=0.05)


def test_starts_are_kept_wherever_tables_are_made_of_tables() -> None:
    made = happened(np.random.default_rng(6), known=False, alike=False)
    table, loose = (table_of(*made, starts=s) for s in (True, False))
    low, high = over_trials(table, 0.95, 0)["bias"]
    narrow = over_trials(loose, 0.95, 0)["bias"]
    assert high - low > 1.1 * (narrow[1] - narrow[0])
    # A task of which starts are known beside one of which they are not.
    for tables in ((table, table), (table, loose)):
        drawn = pooled(tables).perfect(200, np.random.default_rng(0))
        assert [side.shape for side in drawn] == [(200, len(RATES))] * 2
    # More trials are trials from more starts.
    assert share_recognised(table, 0, 8.0) > share_recognised(table, 0)
