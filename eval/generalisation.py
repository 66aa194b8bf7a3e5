"""Measures how much of a policy's success is lost on starts that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.evaluation import Evaluation, PolicyIdentity
from eval.statistics.nested import GeneralisationGap, generalisation_gap
from robolearn.types import TrialRecord


@dataclass(frozen=True, slots=True)
class Generalisation:
    """One policy in one world: starts that it was trained on, others, and seen less unseen."""

    policy: str
    world: str
    success: GeneralisationGap
    score: GeneralisationGap


def generalisation(
    asked: Evaluation, cells: Mapping[tuple[str, str], Sequence[TrialRecord]]
) -> tuple[tuple[Generalisation, ...], tuple[str, ...]]:
    """Those of ``cells`` ((world, policy) -> trials) that have both kinds of starts, and which
    policies have none because the marks of the suite are not about what they were trained on.
    """
    known = {p.name for p in asked.policies if p.trained_on and p.trained_on in asked.trained_on}
    found: list[Generalisation] = []
    for (world, policy), trials in cells.items():
        seen = [r for r in trials if asked.seen.get(r.condition) is True]
        unseen = [r for r in trials if asked.seen.get(r.condition) is False]
        if policy in known and seen and unseen:
            success = generalisation_gap(
                [[float(r.success)] for r in seen], [[float(r.success)] for r in unseen]
            )
            score = generalisation_gap([[r.score] for r in seen], [[r.score] for r in unseen])
            found.append(Generalisation(policy, world, success, score))
    if not asked.seen:
        return (), ()
    return tuple(found), tuple(_why(p) for p in asked.policies if p.name not in known)


def _why(policy: PolicyIdentity) -> str:
    if policy.trained_on:
        what = "it was trained on other starts than the suite was drawn for"
    else:
        what = "what it was trained on is not known"
    return f"which starts '{policy.name}' has seen cannot be said: {what}"
