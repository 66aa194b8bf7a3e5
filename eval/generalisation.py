"""Measures what a policy loses on starts and in variants that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eval.evaluation import Evaluation, PolicyIdentity
from eval.statistics.nested import GeneralisationGap, generalisation_gap
from eval.trials.suites import SAID
from robolearn.types import TrialRecord

Over = Literal["starts", "variants"]
Cells = Mapping[tuple[str, str], Sequence[TrialRecord]]
# One variant of a kind says nothing about others.
LEAST_VARIANTS = 2


@dataclass(frozen=True, slots=True)
class Generalisation:
    """One policy: what it was trained on, other things, and seen less unseen.

    ``over`` starts of ``world``, or variants of it (``world~mass=1``), each of which counts once.
    """

    policy: str
    world: str
    over: Over
    success: GeneralisationGap
    score: GeneralisationGap


def generalisation(
    asked: Evaluation, cells: Cells
) -> tuple[tuple[Generalisation, ...], tuple[str, ...]]:
    """Those of ``cells`` ((world, policy) -> trials) that have both kinds of starts or variants,
    and which policies have none because the marks of the suite are not about what they were trained
    on.
    """
    if not asked.seen:
        return tuple(_over_variants(asked, cells)), ()
    known = {p.name for p in asked.policies if p.trained_on and p.trained_on in asked.trained_on}
    found: list[Generalisation] = []
    for (world, policy), trials in cells.items():
        seen = [[r] for r in trials if asked.seen.get(r.condition) is True]
        unseen = [[r] for r in trials if asked.seen.get(r.condition) is False]
        if policy in known and seen and unseen:
            found.append(_gap(policy, world, "starts", seen, unseen))
    without = tuple(_why(p) for p in asked.policies if p.name not in known)
    return (*found, *_over_variants(asked, cells)), without


def _over_variants(asked: Evaluation, cells: Cells) -> list[Generalisation]:
    """Policies that were trained in several variants of a world and tried in several others."""
    found: list[Generalisation] = []
    bases = dict.fromkeys(world.partition("~")[0] for world, _ in cells)
    for policy in asked.policies:
        for base in bases:
            mine = {
                world: trials
                for (world, name), trials in cells.items()
                if name == policy.name and world.partition("~")[0] == base and SAID not in world
            }
            seen = [t for w, t in mine.items() if policy.worlds_seen.get(w) is True]
            unseen = [t for w, t in mine.items() if policy.worlds_seen.get(w) is False]
            if min(len(seen), len(unseen)) >= LEAST_VARIANTS:
                found.append(_gap(policy.name, base, "variants", seen, unseen))
    return found


def _gap(
    policy: str,
    world: str,
    over: Over,
    seen: Sequence[Sequence[TrialRecord]],
    unseen: Sequence[Sequence[TrialRecord]],
) -> Generalisation:
    success = generalisation_gap(
        [[float(r.success) for r in group] for group in seen],
        [[float(r.success) for r in group] for group in unseen],
    )
    score = generalisation_gap(
        [[r.score for r in group] for group in seen],
        [[r.score for r in group] for group in unseen],
    )
    return Generalisation(policy, world, over, success, score)


def _why(policy: PolicyIdentity) -> str:
    if policy.trained_on:
        what = "it was trained on other starts than the suite was drawn for"
    else:
        what = "what it was trained on is not known"
    return f"which starts '{policy.name}' has seen cannot be said: {what}"
