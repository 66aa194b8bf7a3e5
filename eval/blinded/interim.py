"""Shows decisions while blinded trials run, if and only if their plan says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.blinded.plan import TrialPlan
from eval.blinded.queue import Standing, counted
from eval.compare import compare_policies
from robolearn.types import TrialRecord


@dataclass(frozen=True, slots=True)
class Interim:
    """What is decided by now, in words and by aliases; ``decided``: every pair is."""

    lines: tuple[str, ...]
    decided: bool


def interim(plan: TrialPlan, now: Standing, rows: Sequence[TrialRecord]) -> Interim | None:
    """Decisions of a sequential plan over the conditions that all policies have tried; None for
    every other plan, and while there are no such conditions on some cell.
    """
    if plan.rule.kind != "sequential" or plan.pairs:
        return None
    tried = counted(now, rows)
    by_policy = [
        {(r.env, r.condition) for r in tried if r.policy == alias} for alias in plan.aliases
    ]
    shared = set.intersection(*by_policy)
    if {cell for cell, _ in shared} != set(plan.cells):
        return None
    kept = [r for r in tried if (r.env, r.condition) in shared]
    compared = compare_policies(kept, plan.rule, common=True)
    effects = [(w.world, e) for w in compared.worlds for e in w.effects]
    lines = tuple(f"{e.decision} is better ({e.words})" for _, e in effects if e.decision)
    open_pairs = sum(not e.decision for _, e in effects)
    told = f"{len(shared)} conditions by all policies; {open_pairs} of {len(effects)} pairs open"
    return Interim((told, *lines), open_pairs == 0)
