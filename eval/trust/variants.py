"""Asks whether the simulator knows which change hurts: the same changes made in both worlds.

Each change (a heavier block, another friction: worlds that are called ``NAME~mass=1``) is compared
with the world as it is, policy by policy and start by start, on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.statistics.intervals import Estimate, mean_t, pearson
from eval.summary import own_trials
from eval.trust.measures import MEASURES
from eval.trust.pairing import By, PairedTask
from robolearn.errors import DataError
from robolearn.types import TrialRecord

AGGREGATED = ("pearson", "spearman", "mmrv")
# Outcomes by policy and start.
Cells = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """What one change does to the outcome: changed less unchanged, mean over ``policies``, with the
    interval over the starts that were tried both ways in both worlds.
    """

    name: str
    policies: tuple[str, ...]
    real: Estimate
    sim: Estimate

    @property
    def clear(self) -> bool:
        """Whether reality shows that it hurts, or helps."""
        return self.real.low > 0.0 or self.real.high < 0.0


@dataclass(frozen=True, slots=True)
class Variants:
    """What the simulator says of changes. ``correlation``: of the effects on every policy under
    every change (None: fewer than three of these, or all alike). ``same_way``: how many of the
    ``clear`` changes it moves the same way.
    """

    changes: tuple[ChangeEffect, ...]
    correlation: Estimate | None
    clear: int
    same_way: int
    # Which change hurts most.
    worst_real: str
    worst_sim: str
    # Variant aggregation (SIMPLER): measures of the rates averaged over the simulated worlds, all
    # changes and none, against the real ones without a change; None: not defined.
    aggregated: Mapping[str, float | None]
    # Over how many simulated worlds, which have all policies, and how many starts, which all
    # policies share in all of these and in reality: other starts are easier, or harder.
    aggregated_worlds: int
    aggregated_starts: int


def variants(
    task: PairedTask,
    real: Mapping[str, Sequence[TrialRecord]],
    sim: Mapping[str, Sequence[TrialRecord]],
) -> Variants | None:
    """What changes do; None where no change was tried on both sides.

    ``real``, ``sim``: trials by the name of the change, ``""`` without one. Raises
    :class:`DataError` where a policy's name stands for another one in a changed world.
    """
    names = [n for n in real if n and n in sim]
    policies = [c.policy for c in task.conditions]
    _require_same(policies, real, sim)
    sides = [{n: _cells(found, task.by) for n, found in side.items()} for side in (real, sim)]
    effects = [{n: _effects(side[n], side[""], policies) for n in names} for side in sides]
    changes: list[ChangeEffect] = []
    pairs: list[tuple[float, float]] = []
    for name in names:
        per_side = [side[name] for side in effects]
        shared = {
            p: [s for s in per_side[0].get(p, {}) if s in per_side[1].get(p, {})] for p in policies
        }
        both = [p for p in policies if shared[p]]
        if not both:
            continue
        of_real, of_sim = (
            {p: {s: side[name][p][s] for s in shared[p]} for p in both} for side in effects
        )
        changes.append(ChangeEffect(name, tuple(both), _over_starts(of_real), _over_starts(of_sim)))
        pairs += [(_mean(of_real[p]), _mean(of_sim[p])) for p in both]
    if not changes:
        return None
    clear = [c for c in changes if c.clear]
    return Variants(
        tuple(changes),
        _correlation(pairs),
        len(clear),
        sum((c.real.value > 0.0) == (c.sim.value > 0.0) for c in clear),
        min(changes, key=lambda c: c.real.value).name,
        min(changes, key=lambda c: c.sim.value).name,
        *_aggregated(sides[0][""], sides[1], policies),
    )


def _require_same(policies: Sequence[str], *sides: Mapping[str, Sequence[TrialRecord]]) -> None:
    known: dict[str, str] = {}
    every = [(name, r) for side in sides for name, found in side.items() for r in found]
    for name, r in every:
        if r.policy in policies and known.setdefault(r.policy, r.policy_hash) != r.policy_hash:
            raise DataError(
                f"the policy '{r.policy}' is another one under the change '{name}'"
                f" ({r.policy_hash}; elsewhere {known[r.policy]}): try the same one in all"
                " worlds"
            )


def _cells(found: Sequence[TrialRecord], by: By) -> Cells:
    """Mean outcome of every policy under every start."""
    values: dict[tuple[str, str], list[float]] = {}
    for r in own_trials(found)[0]:
        value = float(r.success) if by == "success" else float(r.score)
        values.setdefault((r.policy, r.condition), []).append(value)
    return {key: float(np.mean(v)) for key, v in values.items()}


def _effects(
    changed: Cells, unchanged: Cells, policies: Sequence[str]
) -> dict[str, dict[str, float]]:
    """By policy and start; policies without a start that was tried both ways are left out."""
    found: dict[str, dict[str, float]] = {}
    for (policy, start), value in changed.items():
        before = unchanged.get((policy, start))
        if policy in policies and before is not None:
            found.setdefault(policy, {})[start] = value - before
    return found


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))


def _over_starts(effects: Mapping[str, Mapping[str, float]]) -> Estimate:
    starts: dict[str, list[float]] = {}
    for by_start in effects.values():
        for start, value in by_start.items():
            starts.setdefault(start, []).append(value)
    return mean_t(np.array([np.mean(v) for v in starts.values()]), bounds=(-1.0, 1.0))


def _correlation(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    if len(pairs) < 3:
        return None
    real, sim = np.array(pairs).T
    if np.ptp(real) == 0.0 or np.ptp(sim) == 0.0:
        return None
    return pearson(real, sim)


def _aggregated(
    real: Cells, sim: Mapping[str, Cells], policies: Sequence[str]
) -> tuple[dict[str, float | None], int, int]:
    """The measures, and over how many worlds and starts."""
    worlds = [c for c in sim.values() if set(policies) <= {p for p, _ in c}]
    starts = sorted(
        s
        for s in {start for _, start in real}
        if all((p, s) in cells for p in policies for cells in (real, *worlds))
    )
    found: dict[str, float | None] = dict.fromkeys(AGGREGATED)
    if not starts:
        return found, len(worlds), 0
    told = [
        np.array([[[cells[p, s] for s in starts] for p in policies] for cells in side]).mean((0, 2))
        for side in (worlds, [real])
    ]
    for name in AGGREGATED:
        if len(policies) > 2 or (name == "mmrv" and len(policies) > 1):
            value = float(MEASURES[name].of(sim=told[0][None], real=told[1][None])[0])
            found[name] = value if np.isfinite(value) else None
    return found, len(worlds), len(starts)
