"""What the trials of one evaluation say: rates with intervals, pairs of policies, worlds agreeing.

Trials that were lost for a technical reason (:data:`TECHNICAL`) stay in the
count as not successful, with the score they had reached, and are named wherever a result is shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from eval.statistics.intervals import (
    DIFFERENCE,
    OUTCOME,
    Estimate,
    mcnemar_exact,
    mean_bootstrap,
    mean_t,
    newcombe_paired,
    paired_difference,
    pearson,
    phi_coefficient,
    wilson,
)
from eval.trials.instruments import NOT_FINITE, PHYSICS_DIVERGED
from eval.trials.rollouts import WORKER_CRASHED
from eval.trials.table import SCORED
from robolearn.errors import DataError
from robolearn.types import TrialRecord

AgreementKind = Literal["world", "moved", "noise"]
TECHNICAL = (PHYSICS_DIVERGED, NOT_FINITE, WORKER_CRASHED)
COVERAGE = "max_coverage"


@dataclass(frozen=True, slots=True)
class Result:
    """One policy in one world. ``changed``: chunks a critic re-ranked; None without a critic."""

    policy: str
    policy_hash: str
    world: str
    n: int
    successes: int
    success: Estimate
    score: Estimate
    score_bootstrap: Estimate
    coverage: Estimate
    reasons: Mapping[str, int]
    technical: int
    chunks: int
    changed: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies ``a`` and ``b`` over the same conditions; differences are ``b - a``."""

    world: str
    a: str
    b: str
    n: int
    score: Estimate
    success: Estimate
    mcnemar_p: float
    only_a: int
    only_b: int
    words: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """How alike two worlds judge one policy, condition by condition.

    ``points``: maximum coverage in ``source`` and in ``world``. For the kinds ``moved`` (same noise
    of the policy, start moved a little: the ceiling) and ``noise`` (same start, other noise)
    ``world`` is ``source`` itself.
    """

    policy: str
    source: str
    world: str
    n: int
    pearson: Estimate
    phi: Estimate
    points: tuple[tuple[float, float], ...]
    kind: AgreementKind
    words: str


def summarize(records: Sequence[TrialRecord]) -> Result:
    """Figures of the trials of one policy in one world; aborted ones are failures, those that still
    run or were voided are none.
    """
    records = [r for r in records if r.status in SCORED]
    if not records:
        raise DataError("no trials to summarize; run 'robolearn evaluate' first")
    first = records[0]
    identity = {
        (r.policy_hash, r.env_hash, r.suite, r.judge, r.code, r.batch, r.kind) for r in records
    }
    if len(identity) > 1:
        raise DataError(
            f"trials of different policies, worlds, suites or code cannot be joined: {identity}"
        )
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
        score=mean_t(scores, bounds=OUTCOME),
        score_bootstrap=mean_bootstrap(scores, bounds=OUTCOME),
        coverage=mean_t(coverages(records), bounds=OUTCOME),
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
    seen: set[tuple[str, str, str, str, int]] = set()
    for r in records:
        key = (r.policy, r.env, r.condition, r.variant, r.seed)
        if key in seen and r.kind == "sim":
            raise DataError(
                f"{r.policy} in {r.env}: the trial of condition '{r.condition}', seed {r.seed},"
                " appears twice"
            )
        seen.add(key)
        if not r.variant and r.status in SCORED:
            kept.append(r)
    return kept, len(records) - len(kept)


def coverages(records: Sequence[TrialRecord]) -> list[float]:
    """Maximum coverage of each trial (its score for tasks without coverage)."""
    return [float(r.metrics.get(COVERAGE, r.score)) for r in records]


def compare(a: Sequence[TrialRecord], b: Sequence[TrialRecord]) -> Comparison:
    """Two policies in one world, paired by condition and seed."""
    x, y = _pair(a, b)
    if x[0].env_hash != y[0].env_hash or x[0].suite != y[0].suite:
        raise DataError(
            f"policies are compared in one world and suite; got {x[0].env} / {x[0].suite}"
            f" and {y[0].env} / {y[0].suite}"
        )
    wins_a, wins_b = [r.success for r in x], [r.success for r in y]
    score = paired_difference([r.score for r in x], [r.score for r in y], bounds=DIFFERENCE)
    return Comparison(
        world=x[0].env,
        a=x[0].policy,
        b=y[0].policy,
        n=len(x),
        score=score,
        success=newcombe_paired(wins_a, wins_b),
        mcnemar_p=mcnemar_exact(wins_a, wins_b),
        only_a=sum(p and not q for p, q in zip(wins_a, wins_b, strict=True)),
        only_b=sum(q and not p for p, q in zip(wins_a, wins_b, strict=True)),
        words=_difference_words(x[0].policy, y[0].policy, score),
    )


def agree(
    source: Sequence[TrialRecord], other: Sequence[TrialRecord], kind: AgreementKind = "world"
) -> Agreement:
    """One policy over the same conditions in two worlds, or twice in one (see ``kind``)."""
    by_id = {r.condition: r for r in source}
    pairs = [(by_id[r.condition], r) for r in other if r.condition in by_id]
    if not pairs or pairs[0][0].policy_hash != pairs[0][1].policy_hash:
        raise DataError("agreement needs one policy and at least one condition in both worlds")
    first = pairs[0]
    x = coverages([p for p, _ in pairs])
    y = coverages([q for _, q in pairs])
    r = pearson(x, y)
    phi = phi_coefficient([p.success for p, _ in pairs], [q.success for _, q in pairs])
    return Agreement(
        policy=first[0].policy,
        source=first[0].env,
        world=first[1].env,
        n=len(pairs),
        pearson=r,
        phi=phi,
        points=tuple(zip(x, y, strict=True)),
        kind=kind,
        words=_agreement_words(first[0].env, first[1].env, len(pairs), r, phi, kind),
    )


def estimate_json(e: Estimate) -> dict[str, Any]:
    """An estimate as JSON values; what is not defined becomes null."""
    return {
        "value": _number(e.value),
        "low": _number(e.low),
        "high": _number(e.high),
        "n": e.n,
        "method": e.method,
        "level": e.level,
    }


def result_json(r: Result) -> dict[str, Any]:
    """A result as JSON values."""
    return {
        "policy": r.policy,
        "policy_hash": r.policy_hash,
        "world": r.world,
        "n": r.n,
        "successes": r.successes,
        "success": estimate_json(r.success),
        "score": {"mean": _number(r.score.value), **estimate_json(r.score)},
        "score_bootstrap": estimate_json(r.score_bootstrap),
        "coverage": estimate_json(r.coverage),
        "reasons": dict(r.reasons),
        "technical": r.technical,
        "chunks": r.chunks,
        "changed": r.changed,
    }


def comparison_json(c: Comparison) -> dict[str, Any]:
    """A comparison as JSON values."""
    return {
        "world": c.world,
        "a": c.a,
        "b": c.b,
        "n": c.n,
        "score_difference": estimate_json(c.score),
        "success_difference": estimate_json(c.success),
        "mcnemar_p": c.mcnemar_p,
        "only_a": c.only_a,
        "only_b": c.only_b,
        "words": c.words,
    }


def agreement_json(a: Agreement) -> dict[str, Any]:
    """An agreement as JSON values."""
    return {
        "policy": a.policy,
        "source": a.source,
        "world": a.world,
        "n": a.n,
        "pearson": estimate_json(a.pearson),
        "phi": estimate_json(a.phi),
        "points": [[round(p, 5), round(q, 5)] for p, q in a.points],
        "kind": a.kind,
        "words": a.words,
    }


def _pair(
    a: Sequence[TrialRecord], b: Sequence[TrialRecord]
) -> tuple[list[TrialRecord], list[TrialRecord]]:
    left = {(r.condition, r.seed): r for r in a}
    right = {(r.condition, r.seed): r for r in b}
    if set(left) != set(right) or not left:
        only = sorted(set(left) ^ set(right))[:3]
        raise DataError(
            f"a paired comparison needs the same conditions and seeds on both sides;"
            f" {len(left)} and {len(right)} given, for instance not in both: {only}"
        )
    keys = list(left)
    return [left[k] for k in keys], [right[k] for k in keys]


def _difference_words(a: str, b: str, score: Estimate) -> str:
    if math.isnan(score.value):
        return "nothing can be said without trials"
    if score.low > 0:
        return f"{b} scores higher than {a}"
    if score.high < 0:
        return f"{b} scores lower than {a}"
    if score.method.startswith("all equal"):
        return (
            f"{a} and {b} scored the same under every one of the {score.n} conditions; a true"
            f" difference between {score.low:+.3f} and {score.high:+.3f} fits that"
        )
    return (
        f"no difference can be concluded: with {score.n} pairs anything between"
        f" {score.low:+.3f} and {score.high:+.3f} fits the trials"
    )


def _agreement_words(
    source: str, world: str, n: int, r: Estimate, phi: Estimate, kind: AgreementKind
) -> str:
    coverage = "not defined" if math.isnan(r.value) else f"{r.value:.2f}"
    success = "not defined" if math.isnan(phi.value) else f"{phi.value:.2f}"
    figures = f"(Pearson of maximum coverage {coverage}, phi of success {success}, n = {n})"
    if kind == "moved":
        return (
            f"{source} against itself with every start moved by 0.3 mm and 0.1 degrees, same noise"
            f" of the policy {figures}: about what any other world can reach"
        )
    if kind == "noise":
        return f"{source} against itself from the same starts, other noise of the policy {figures}"
    return f"{world} against {source}, start by start, same noise of the policy {figures}"


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
