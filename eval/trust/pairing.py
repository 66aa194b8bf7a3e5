"""Pairs trials of two worlds by policy and condition, and refuses what does not belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval.summary import own_trials
from eval.trials.identity import SLIGHT, require_poolable
from eval.trust.clock import check_clocks
from eval.trust.outcomes import Outcomes, starts_of
from eval.trust.repetition import Outcome
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.errors import DataError
from robolearn.types import TrialRecord

By = Literal["success", "score"]


@dataclass(frozen=True, slots=True)
class PairedConditions:
    """Outcomes of one policy, condition by condition, in both worlds."""

    policy: str
    # Of conditions that were tried in both.
    real: Mapping[str, Outcome]
    sim: Mapping[str, Outcome]
    # Of conditions that were only simulated.
    only_simulated: Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class PairedTask:
    """One suite in both worlds."""

    table: TaskTable
    by: By
    conditions: tuple[PairedConditions, ...]
    # What was left out or differs, in words.
    notes: tuple[str, ...]


def paired_tasks(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By = "success"
) -> tuple[PairedTask, ...]:
    """One task per suite that was tried in both worlds.

    ``real``, ``sim``: trials of one world each. Raises :class:`DataError`, with the reason, for
    suites that differ, worlds in several versions, policies that are called otherwise, trials that
    do not pair up, that ran at once on one arm, and for sides that are swapped.
    """
    _check_sides(real, sim)
    suites = _shared_suites(real, sim)
    return tuple(
        _task([r for r in real if r.suite == s], [r for r in sim if r.suite == s], by)
        for s in suites
    )


def _check_sides(real: Sequence[TrialRecord], sim: Sequence[TrialRecord]) -> None:
    kinds = [{r.kind for r in side} for side in (real, sim)]
    if "sim" not in kinds[1]:
        words = " and ".join(sorted(kinds[1]))
        hint = "; the two sides are swapped" if kinds[0] == {"sim"} else ""
        raise DataError(f"the simulated trials are trials of a {words}{hint}")
    for side, words in ((real, "real"), (sim, "simulated")):
        worlds = sorted({r.env for r in side})
        if len(worlds) > 1:
            raise DataError(
                f"the {words} trials are of several worlds ({', '.join(worlds)}); name one"
            )
    same = {(r.env_hash, r.engine, r.kind) for r in real} & {
        (r.env_hash, r.engine, r.kind) for r in sim
    }
    if same:
        raise DataError(
            f"both sides are trials of one world ('{real[0].env}', {real[0].engine}): a world says"
            " nothing about itself"
        )


def _shared_suites(real: Sequence[TrialRecord], sim: Sequence[TrialRecord]) -> list[str]:
    of_real, of_sim = (list(dict.fromkeys(r.suite for r in side)) for side in (real, sim))
    shared = [s for s in of_real if s in of_sim]
    if shared:
        return shared
    names = {s.partition("@")[0] for s in of_real} & {s.partition("@")[0] for s in of_sim}
    which = f"'{min(names)}' in different versions" if names else "different suites"
    raise DataError(
        f"the trials are of {which} (real: {', '.join(of_real)}; simulated: {', '.join(of_sim)}):"
        " their conditions do not pair up; evaluate with the same suite"
    )


def _task(real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By) -> PairedTask:
    notes = list(check_clocks(real))
    own_real = _counted(real, "real", notes)
    own_sim = _counted(sim, "simulated", notes)
    if not (own_real and own_sim):
        raise DataError("no trials that count on one side: all run still, were voided or moved")
    policies = _shared_policies(own_real, own_sim, notes)
    sides = [_outcomes_of(side, by) for side in (own_real, own_sim)]
    conditions = tuple(_conditions(name, *(side[name] for side in sides)) for name in policies)
    unpaired = [c.policy for c in conditions if not c.real]
    if unpaired:
        raise DataError(
            f"'{unpaired[0]}' was tried under no condition in both worlds; evaluate it with the"
            " conditions of the real trials"
        )
    for label, side in (("real", own_real), ("simulated", own_sim)):
        paired = {(c.policy, name) for c in conditions for name in c.real}
        alone = sum(r.policy in policies and (r.policy, r.condition) not in paired for r in side)
        if alone:
            notes.append(f"{label}: {alone} trials of conditions that the other world lacks do not"
                         " count in the rates")  # fmt: skip
    judges = [sorted({r.judge or "the world" for r in side}) for side in (own_real, own_sim)]
    if judges[0] != judges[1]:
        notes.append(
            f"success was judged by {' and '.join(judges[0])} in reality, by"
            f" {' and '.join(judges[1])} in simulation"
        )
    if {r.kind for r in own_real} == {"sim"}:
        notes.append(f"reality is a simulated world here: '{own_real[0].env}'")
    task = own_real[0].suite.partition("@")[0] or own_real[0].env
    starts = starts_of([c.real for c in conditions], [c.sim for c in conditions])
    pairs = tuple(
        PolicyPair(c.policy, (_outcomes(c.real, by),), (_outcomes(c.sim, by),), (own,))
        for c, own in zip(conditions, starts, strict=True)
    )
    return PairedTask(
        TaskTable(task, pairs), by, conditions, tuple(f"{task}: {n}" for n in dict.fromkeys(notes))
    )


def _counted(side: Sequence[TrialRecord], words: str, notes: list[str]) -> list[TrialRecord]:
    """The trials of one side that count; notes say what does not, and what differs among them."""
    own, left_out = own_trials(side)
    notes += [f"{words}: {said}" for said in require_poolable(own, accept=SLIGHT)]
    if left_out:
        notes.append(
            f"{words}: {left_out} trials of moved or repeated starts, voided or running, do not"
            " count"
        )
    return own


def _shared_policies(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], notes: list[str]
) -> list[str]:
    """Names on both sides that stand for the same policy; notes name those on one side alone."""
    hashes = [{r.policy: r.policy_hash for r in side} for side in (real, sim)]
    for name, value in hashes[0].items():
        other = hashes[1].get(name)
        if other is not None and other != value:
            raise DataError(
                f"two different policies are called '{name}' ({value} in reality, {other} in"
                " simulation): try the same one in both worlds"
            )
        called = [n for n, h in hashes[1].items() if h == value and n != name]
        if called and other is None:
            raise DataError(
                f"the policy '{name}' of the real trials is called '{called[0]}' in simulation"
                f" ({value}); give it one name"
            )
    shared = [name for name in hashes[0] if name in hashes[1]]
    if not shared:
        raise DataError(
            f"no policy was tried in both worlds: {', '.join(hashes[0])} in reality,"
            f" {', '.join(hashes[1])} in simulation"
        )
    for words, mine in (("real", hashes[0]), ("simulated", hashes[1])):
        alone = [name for name in mine if name not in shared]
        if alone:
            notes.append(f"only {words}, and not judged: {', '.join(alone)}")
    return shared


def _outcomes_of(side: Sequence[TrialRecord], by: By) -> dict[str, dict[str, Outcome]]:
    """By policy and condition, in the order of the trials."""
    found: dict[str, dict[str, list[float]]] = {}
    for r in side:
        value = float(r.success) if by == "success" else float(r.score)
        found.setdefault(r.policy, {}).setdefault(r.condition, []).append(value)
    return {
        policy: {name: tuple(values) for name, values in conditions.items()}
        for policy, conditions in found.items()
    }


def _conditions(
    policy: str, of_real: Mapping[str, Outcome], of_sim: Mapping[str, Outcome]
) -> PairedConditions:
    return PairedConditions(
        policy,
        {name: v for name, v in of_real.items() if name in of_sim},
        {name: of_sim[name] for name in of_real if name in of_sim},
        {name: v for name, v in of_sim.items() if name not in of_real},
    )


def _outcomes(conditions: Mapping[str, Outcome], by: By) -> Outcomes:
    values = np.array([v for outcome in conditions.values() for v in outcome], dtype=np.float64)
    if by == "success":
        return Outcomes.of_counts(int(values.sum()), int(values.size))
    return Outcomes(float(values.mean()), int(values.size), values)
