"""Says where success is lost: by variant of the world, by reason of failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.statistics.exact_tests import mcnemar_exact
from eval.statistics.intervals import Estimate, bounded_difference, wilson
from eval.statistics.multiplicity import Direction, FamilyMember, IntervalAt, family
from eval.summary import own_trials
from robolearn.errors import DataError
from robolearn.types import TrialRecord

EXAMPLES = 2


@dataclass(frozen=True, slots=True)
class VariantEffect:
    """A policy in a variant of a world, against the world as it is, start by start.

    Differences are variant less nominal over the ``n`` starts that both have; ``p`` and
    ``direction``: McNemar's, Holm over the variants of this policy and world. The interval of
    success leaves out 0 exactly where there is a direction; that of the score is Bonferroni's.
    """

    policy: str
    world: str
    variant: str
    n: int
    successes: int
    success: Estimate
    success_difference: Estimate
    score_difference: Estimate
    p: float
    direction: Direction
    words: str


@dataclass(frozen=True, slots=True)
class Failure:
    """How often episodes of a policy in a world ended for a reason that is not success.

    ``score``: mean of the highest progress in these episodes; ``examples``: some conditions.
    """

    policy: str
    world: str
    reason: str
    count: int
    n: int
    share: Estimate
    score: float
    examples: tuple[str, ...]


def variant_effects(
    records: Sequence[TrialRecord], alpha: float = 0.05
) -> tuple[VariantEffect, ...]:
    """Every variant (``world~mass=1``, ``world~say=short``) whose nominal world was tried, too."""
    cells = _cells(records)
    found: list[VariantEffect] = []
    for policy, nominal in ((p, w) for p, w in cells if "~" not in w):
        variants = [w for p, w in cells if p == policy and w.partition("~")[0] == nominal != w]
        rows = [_pairs(cells[policy, nominal], cells[policy, w]) for w in variants]
        # A variant that shares no start with the nominal world is in no family.
        shared = [pairs for pairs in rows if pairs]
        members = iter(
            family(
                [mcnemar_exact(*_successes(pairs)) for pairs in shared],
                [_interval(pairs) for pairs in shared],
                alpha=alpha,
            )
        )
        for world, pairs in zip(variants, rows, strict=True):
            if pairs:
                level = 1.0 - alpha / len(shared)
                found.append(_effect(policy, nominal, world, pairs, next(members), level))
    return tuple(found)


def failures(records: Sequence[TrialRecord]) -> tuple[Failure, ...]:
    """Reasons by policy and world, most frequent first."""
    found: list[Failure] = []
    for (policy, world), trials in _cells(records).items():
        rows = list(trials.values())
        reasons = dict.fromkeys(r.reason for r in rows if not r.success)
        part = [_failure(policy, world, reason, rows) for reason in reasons]
        found += sorted(part, key=lambda f: -f.count)
    return tuple(found)


_Cell = dict[tuple[str, int], TrialRecord]


def _cells(records: Sequence[TrialRecord]) -> dict[tuple[str, str], _Cell]:
    suites = {r.suite for r in records}
    if len(suites) > 1:
        raise DataError(f"trials of different suites are not joined: {sorted(suites)}")
    kept, _ = own_trials(records)
    cells: dict[tuple[str, str], _Cell] = {}
    for r in kept:
        cells.setdefault((r.policy, r.env), {})[r.condition, r.seed] = r
    return cells


_Pairs = list[tuple[TrialRecord, TrialRecord]]


def _pairs(nominal: _Cell, variant: _Cell) -> _Pairs:
    return [(nominal[key], r) for key, r in variant.items() if key in nominal]


def _successes(pairs: _Pairs) -> tuple[list[bool], list[bool]]:
    return [a.success for a, _ in pairs], [b.success for _, b in pairs]


def _interval(pairs: _Pairs) -> IntervalAt:
    before, after = _successes(pairs)
    return lambda level: bounded_difference(before, after, level)


def _effect(
    policy: str, nominal: str, world: str, pairs: _Pairs, member: FamilyMember, level: float
) -> VariantEffect:
    _, after = _successes(pairs)
    score = bounded_difference([a.score for a, _ in pairs], [b.score for _, b in pairs], level)
    variant = world.removeprefix(nominal).removeprefix("~").replace("~", ", ")
    return VariantEffect(
        policy=policy,
        world=nominal,
        variant=variant,
        n=len(pairs),
        successes=sum(after),
        success=wilson(sum(after), len(pairs)),
        success_difference=member.difference,
        score_difference=score,
        p=member.p,
        direction=member.direction,
        words=_words(variant, member),
    )


def _words(variant: str, member: FamilyMember) -> str:
    difference = member.difference
    if member.direction != "undecided":
        change = "costs" if member.direction == "negative" else "adds"
        return f"{variant} {change} success ({difference.value:+.2f})"
    return (
        f"{variant}: no change can be concluded; anything between {difference.low:+.2f} and"
        f" {difference.high:+.2f} fits {difference.n} starts"
    )


def _failure(policy: str, world: str, reason: str, rows: Sequence[TrialRecord]) -> Failure:
    chosen = [r for r in rows if r.reason == reason and not r.success]
    return Failure(
        policy=policy,
        world=world,
        reason=reason or "not said",
        count=len(chosen),
        n=len(rows),
        share=wilson(len(chosen), len(rows)),
        score=sum(r.score for r in chosen) / len(chosen),
        examples=tuple(r.condition for r in chosen[:EXAMPLES]),
    )
