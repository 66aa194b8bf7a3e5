"""Start by start: intervals over starts, how far a repetition agrees, what is judged by that."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from eval.report.trust.lines import agreement_words
from eval.statistics.variance import components
from eval.trust.agreement import ConditionAgreement, agreement, over_starts, reach
from eval.trust.outcomes import Outcomes
from eval.trust.pairing import PairedConditions, PairedTask
from eval.trust.repetition import Outcome, repetition
from eval.trust.report import TaskTrust, trust_in
from eval.trust.tables import PolicyPair, TaskTable


def task(parts: list[PairedConditions]) -> PairedTask:
    pairs = tuple(
        PolicyPair(c.policy, *((Outcomes.of_counts(0, 1),) for _ in range(2))) for c in parts
    )
    return PairedTask(TaskTable("t", pairs), "success", tuple(parts), ())


def world(
    rng: np.random.Generator,
    *,
    policies: int = 3,
    starts: int = 40,
    repeated: int = 20,
    rollouts: int = 1,
    known: float = 1.0,
) -> PairedTask:
    """Starts are as hard for all policies; of that the simulator knows the share ``known``."""
    hard = 1.2 * rng.normal(size=starts)
    other = known * hard + 1.2 * math.sqrt(1.0 - known**2) * rng.normal(size=starts)

    def tried(level: float, count: int) -> Outcome:
        return tuple(float(level + rng.normal() > 0) for _ in range(count))

    parts = [
        PairedConditions(
            f"p{k}",
            {f"c{i}": tried(hard[i], 2 if i < repeated else 1) for i in range(starts)},
            {f"c{i}": tried(other[i], rollouts) for i in range(starts)},
            {},
        )
        for k in range(policies)
    ]
    return task(parts)


def test_pairs_that_share_their_start_are_not_independent() -> None:
    """Simulators that know nothing of starts: the interval holds 0 as often as it says."""
    rng, held, as_pairs = np.random.default_rng(0), 0, 0
    for number in range(60):
        made = world(rng, policies=10, starts=20, known=0.0)
        found = over_starts(made.conditions, 0.95, number)
        held += found.low <= 0.0 <= found.high
        assert found.n == 20
        reach_of_pairs = 1.96 / math.sqrt(200 - 3)
        as_pairs += abs(math.atanh(found.value)) <= reach_of_pairs
    assert held >= 54
    # Fisher's z of the 200 pairs would hold it far too seldom.
    assert as_pairs < 50


@pytest.mark.parametrize("rollouts", [1, 5])
def test_a_perfect_simulator_reaches_what_it_can(rollouts: int) -> None:
    rng, reached, found = np.random.default_rng(1), [], []
    for _ in range(12):
        all_together = agreement(world(rng, rollouts=rollouts))[-1]
        assert all_together.judged == "within"
        assert all_together.reachable is not None
        reached.append(all_together.reachable.value)
        found.append(all_together.correlation.value)
    assert np.mean(found) == pytest.approx(np.mean(reached), abs=0.06)


def test_one_that_knows_nothing_is_below_what_can_be_reached() -> None:
    rng = np.random.default_rng(2)
    found = agreement(world(rng, starts=80, repeated=60, rollouts=5, known=0.0))[-1]
    assert found.judged == "below"
    # The very same trials on both sides: above every repetition.
    (same,) = agreement(task([_same(world(rng, policies=1, starts=80, repeated=60))]))
    assert same.judged == "above"


def _same(made: PairedTask) -> PairedConditions:
    (c,) = made.conditions
    return PairedConditions(c.policy, c.real, c.real, {})


def test_repetitions_by_the_analysis_of_variance() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        side = {f"c{i}": tuple(rng.random(int(rng.integers(2, 5)))) for i in range(15)}
        by_hand = components([np.array(v) for v in side.values()])
        # Policies without repetitions, of which nearly all fail, say nothing of the others'.
        found = repetition([side, {f"c{i}": (float(i == 0),) for i in range(40)}])
        assert found is not None
        share = by_hand.between / (by_hand.between + by_hand.within)
        assert found.value == pytest.approx(share, abs=1e-12)
        assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    # How good policies are is no repetition of starts: each is taken less its own mean.
    level = {f"c{i}": (0.0, 1.0) for i in range(10)}
    apart = repetition([level, dict.fromkeys(level, (10.0, 11.0))])
    assert apart is not None
    assert apart.value == 0.0


def test_reach_by_hand() -> None:
    assert reach(0.36, 1.0, 1.0) == pytest.approx(0.36)
    assert reach(0.36, 1.0, 1e12) == pytest.approx(0.6)
    assert (reach(0.0, 1.0, 5.0), reach(1.0, 2.0, 3.0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("real", "low", "high"),
    [
        # Two repetitions that agree say nothing yet; twenty leave some doubt.
        ({f"c{i}": (float(i % 2),) * (2 if i < 2 else 1) for i in range(8)}, 0.0, 1.0),
        ({f"c{i}": (float(i % 2),) * 2 for i in range(20)}, 0.6, 1.0),
    ],
)
def test_repetitions_that_all_agree(real, low: float, high: float) -> None:
    found = repetition([real])
    assert found is not None
    assert found.value == pytest.approx(1.0)
    assert low <= found.low < 0.9
    assert found.high == high


def test_what_says_nothing_is_told_so() -> None:
    once = {f"c{i}": (float(i % 2),) for i in range(6)}
    assert repetition([once]) is None
    assert repetition([dict.fromkeys(once, (1.0, 1.0))]) is None
    flat = PairedConditions("p", once, dict.fromkeys(once, (1.0,)), {})
    both = agreement(task([flat, PairedConditions("q", once, once, {})]))
    assert [math.isnan(a.correlation.value) for a in both] == [True, False, False]
    assert all(a.judged == "not known" for a in both)
    few = {n: once[n] for n in list(once)[:3]}
    alike = [PairedConditions(p, few, few, {}) for p in "pq"]
    assert agreement(task(alike))[-1].correlation.low == -1.0
    # All pairs agree, over twelve starts.
    more = {f"c{i}": (float(i % 2),) for i in range(12)}
    found = agreement(task([PairedConditions(p, more, more, {}) for p in "pq"]))[-1]
    assert found.correlation.value == pytest.approx(1.0)
    assert found.correlation.low < 0.7


def test_it_is_said_in_words() -> None:
    rng = np.random.default_rng(4)
    made = world(rng)
    found = agreement(made)

    def words(agreed: tuple[ConditionAgreement, ...]) -> str:
        told: TaskTrust = trust_in(made.table)
        (line,) = agreement_words(_with(told, agreed))
        return line

    assert "(60 repeated), the ceiling, so a perfect simulator reaches" in words(found)
    assert words(found).endswith("this one is not told from it")
    assert "what a perfect simulator reaches is not known" in words(
        agreement(world(rng, repeated=0))
    )


def _with(told: TaskTrust, agreed: tuple[ConditionAgreement, ...]) -> TaskTrust:
    return dataclasses.replace(told, agreement=agreed)
