"""Sums trials up: one policy in one world, and how far two worlds agree about a policy.

Trials that were lost for a technical reason (:data:`TECHNICAL`) stay in the count as not
successful, with the score they had reached, and are named wherever a result is shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eval.rule import ScoreInterval
from eval.statistics.intervals import (
    OUTCOME,
    Estimate,
    bounded_mean,
    mean_bootstrap,
    mean_t,
    pearson,
    phi_coefficient,
    wilson,
)
from eval.trials.identity import require_poolable
from eval.trials.instruments import FORBIDDEN, NOT_FINITE, PHYSICS_DIVERGED
from eval.trials.rollouts import WORKER_CRASHED
from eval.trials.table import SCORED
from robolearn.errors import DataError
from robolearn.types import TrialRecord

AgreementKind = Literal["world", "moved", "noise"]
TECHNICAL = (PHYSICS_DIVERGED, NOT_FINITE, WORKER_CRASHED)
# Metrics of trials that say more than the score, which ends at 1, and what people call them.
MEASURES: Mapping[str, str] = {"max_coverage": "maximum coverage"}
# Figures of trials that are told beside it.
FIGURES: Mapping[str, str] = {**MEASURES, FORBIDDEN: "share of ticks in the forbidden region"}
SCORE = "score"


@dataclass(frozen=True, slots=True)
class Result:
    """One policy in one world. ``changed``: chunks a critic re-ranked; None without a critic.

    ``measures``: means of those of :data:`FIGURES` that every trial has.
    """

    policy: str
    policy_hash: str
    world: str
    n: int
    successes: int
    success: Estimate
    score: Estimate
    score_bootstrap: Estimate
    measures: Mapping[str, Estimate]
    reasons: Mapping[str, int]
    technical: int
    chunks: int
    changed: int | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How alike two worlds judge one policy, condition by condition.

    ``points``: ``measure`` (:data:`MEASURES` or the score) in ``source`` and in ``world``, of which
    ``pearson`` is the correlation; ``phi``: that of success. For the kinds ``moved`` (same noise of
    the policy, start moved a little: the ceiling) and ``noise`` (same start, other noise) ``world``
    is ``source`` itself.
    """

    policy: str
    source: str
    world: str
    n: int
    measure: str
    pearson: Estimate
    phi: Estimate
    points: tuple[tuple[float, float], ...]
    kind: AgreementKind
    words: str


def mean_score(scores: Any, interval: ScoreInterval = "bounded_mean") -> Estimate:
    """Mean of outcomes in [0, 1]. Student's t, for those who ask for it, assumes that their mean is
    nearly normal: with few trials or rare failures it covers far too little.
    """
    return mean_t(scores, bounds=OUTCOME) if interval == "t" else bounded_mean(scores)


def summarize(records: Sequence[TrialRecord], interval: ScoreInterval = "bounded_mean") -> Result:
    """Figures of the trials of one policy in one world; aborted ones are failures, those that still
    run or were voided are none. ``interval``: that of mean scores.
    """
    records = [r for r in records if r.status in SCORED]
    if not records:
        raise DataError("no trials to summarize; run 'robolearn evaluate' first")
    first = records[0]
    if len(cells := {(r.policy, r.env) for r in records}) > 1:
        raise DataError(f"trials of several policies or worlds are no one result: {sorted(cells)}")
    require_poolable(records)
    double = [c for c, k in Counter((r.condition, r.seed) for r in records).items() if k > 1]
    if double and first.kind == "sim":
        raise DataError(f"trials appear twice: {double[:3]}")
    successes = sum(r.success for r in records)
    reasons = Counter(r.reason for r in records)
    scores = [r.score for r in records]
    changed = [r.metrics["changed"] for r in records if "changed" in r.metrics]
    return Result(
        policy=first.policy,
        policy_hash=first.policy_hash,
        world=first.env,
        n=len(records),
        successes=successes,
        success=wilson(successes, len(records)),
        score=mean_score(scores, interval),
        score_bootstrap=mean_bootstrap(scores, bounds=OUTCOME),
        measures={
            name: mean_score([r.metrics[name] for r in records], interval)
            for name in FIGURES
            if all(name in r.metrics for r in records)
        },
        reasons=dict(sorted(reasons.items())),
        technical=sum(reasons.get(r, 0) for r in TECHNICAL),
        chunks=round(sum(r.metrics.get("chunks", 0.0) for r in records)),
        changed=round(sum(changed)) if changed else None,
    )


def own_trials(records: Sequence[TrialRecord]) -> tuple[list[TrialRecord], int]:
    """The suite's own trials that count, one per policy, world and condition (on a robot as many as
    were run); and how many are left out.

    Moved starts and repeats with another seed answer other questions; counted here they would
    pass for independent conditions. Trials that still run or were voided are no results. Raises
    :class:`DataError` for a simulated trial that appears twice.
    """
    kept: list[TrialRecord] = []
    seen: set[tuple[str, str, str, str, str, int]] = set()
    for r in records:
        key = (r.policy, r.env, r.suite, r.condition, r.variant, r.seed)
        if key in seen and r.kind == "sim":
            raise DataError(
                f"{r.policy} in {r.env}: the trial of condition '{r.condition}', seed {r.seed},"
                " appears twice"
            )
        seen.add(key)
        if not r.variant and r.status in SCORED:
            kept.append(r)
    return kept, len(records) - len(kept)


def start_of(record: TrialRecord) -> tuple[str, int]:
    """What makes a start another one: its condition; in simulation with the seed of the trial, as
    all policies then have the same noise.
    """
    return record.condition, record.seed if record.kind == "sim" else 0


def starts(records: Sequence[TrialRecord]) -> int:
    """How many different starts there are among trials of one policy in one world."""
    return len({start_of(r) for r in records})


def first_of_each_start(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """One trial per policy, world and start, the one that began first, in the order of ``records``.

    A robot may try a start several times. These trials tell how far one predicts the next; a test
    or an interval that took them for further starts would find differences that are not there.
    """
    found: dict[tuple[str, str, tuple[str, int]], TrialRecord] = {}
    for r in records:
        key = (r.policy, r.env, start_of(r))
        # In its place, so that an earlier one that stands later changes no order of starts.
        if key not in found or r.started < found[key].started:
            found[key] = r
    return list(found.values())


def again_words(count: int) -> str:
    """What is said of ``count`` trials that repeat a start."""
    return (
        f"{count} trials repeat a start that their policy had tried before and are left out: the"
        " first trial of each start counts"
    )


def progress(records: Sequence[TrialRecord]) -> tuple[str, list[float]]:
    """How far each trial came, by the finest measure that all of them have, and its name."""
    for name, words in MEASURES.items():
        if all(name in r.metrics for r in records):
            return words, [float(r.metrics[name]) for r in records]
    return SCORE, [float(r.score) for r in records]


def agree(
    source: Sequence[TrialRecord], other: Sequence[TrialRecord], kind: AgreementKind = "world"
) -> Agreement:
    """One policy over the same conditions in two worlds, or twice in one (see ``kind``)."""
    by_id = {r.condition: r for r in source}
    pairs = [(by_id[r.condition], r) for r in other if r.condition in by_id]
    if not pairs or pairs[0][0].policy_hash != pairs[0][1].policy_hash:
        raise DataError("agreement needs one policy and at least one condition in both worlds")
    first = pairs[0]
    measure, values = progress([r for pair in pairs for r in pair])
    x, y = values[::2], values[1::2]
    r = pearson(x, y)
    phi = phi_coefficient([p.success for p, _ in pairs], [q.success for _, q in pairs])
    return Agreement(
        policy=first[0].policy,
        source=first[0].env,
        world=first[1].env,
        n=len(pairs),
        measure=measure,
        pearson=r,
        phi=phi,
        points=tuple(zip(x, y, strict=True)),
        kind=kind,
        words=_words(first[0].env, first[1].env, measure, r, phi, kind),
    )


def _words(
    source: str, world: str, measure: str, r: Estimate, phi: Estimate, kind: AgreementKind
) -> str:
    correlation = "not defined" if math.isnan(r.value) else f"{r.value:.2f}"
    success = "not defined" if math.isnan(phi.value) else f"{phi.value:.2f}"
    figures = f"(Pearson of {measure} {correlation}, phi of success {success}, n = {r.n})"
    if kind == "moved":
        return (
            f"{source} against itself with every start moved by 0.3 mm and 0.1 degrees, same noise"
            f" of the policy {figures}: about what any other world can reach"
        )
    if kind == "noise":
        return f"{source} against itself from the same starts, other noise of the policy {figures}"
    return f"{world} against {source}, start by start, same noise of the policy {figures}"
