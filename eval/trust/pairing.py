"""Pairs trials of two worlds by policy and condition, and refuses what does not belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eval.summary import own_trials
from eval.trials.identity import SLIGHT, require_poolable
from eval.trust.clock import check_clocks
from eval.trust.outcomes import Outcomes, starts_of
from eval.trust.repetition import Outcome
from eval.trust.tables import PolicyPair, TaskTable
from eval.words import count_of
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

    # Rates over the conditions that every policy was tried under in both worlds.
    table: TaskTable
    by: By
    conditions: tuple[PairedConditions, ...]
    # What was left out or differs, in words.
    notes: tuple[str, ...]


def paired_tasks(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By = "success"
) -> tuple[PairedTask, ...]:
    """One task per suite that was tried in both worlds.

    ``real``, ``sim``: trials of one world each in a task. Raises :class:`DataError`, with the
    reason, for suites that differ, worlds in several versions, policies that are called otherwise
    or stand there twice, trials that do not pair up, that ran at once on one arm, policies that
    share no condition, and for sides that are swapped.
    """
    return tuple(_task(paired) for paired in _paired(real, sim, by))


def require_paired(real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By) -> None:
    """Refuse what :func:`paired_tasks` refuses, but policies that share no condition."""
    _paired(real, sim, by)


@dataclass(frozen=True, slots=True)
class _Paired:
    """The trials of one suite that count, and how they pair up."""

    real: Sequence[TrialRecord]
    sim: Sequence[TrialRecord]
    by: By
    conditions: tuple[PairedConditions, ...]
    notes: tuple[str, ...]


def _paired(real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By) -> tuple[_Paired, ...]:
    _check_sides(real, sim)
    # One arm runs all suites.
    clocks = check_clocks(real)
    sides = [
        ([r for r in real if r.suite == s], [r for r in sim if r.suite == s])
        for s in _shared_suites(real, sim)
    ]
    for of_real, of_sim in sides:
        # Tasks may have a scene each.
        _check_sides(of_real, of_sim)
        _require_one_world(of_real, of_sim)
    return tuple(_pair_up(of_real, of_sim, by, clocks) for of_real, of_sim in sides)


def _check_sides(real: Sequence[TrialRecord], sim: Sequence[TrialRecord]) -> None:
    kinds = [{r.kind for r in side} for side in (real, sim)]
    if "sim" not in kinds[1]:
        words = " and ".join(sorted(kinds[1]))
        hint = "; the two sides are swapped" if kinds[0] == {"sim"} else ""
        raise DataError(f"the simulated trials are trials of a {words}{hint}")
    same = {(r.env_hash, r.engine, r.kind) for r in real} & {
        (r.env_hash, r.engine, r.kind) for r in sim
    }
    if same:
        hash_, engine, _ = min(same)
        world = next(r.env for r in real if (r.env_hash, r.engine) == (hash_, engine))
        raise DataError(
            f"both sides are trials of one world ('{world}', {engine}): a world says"
            " nothing about itself"
        )


def _require_one_world(real: Sequence[TrialRecord], sim: Sequence[TrialRecord]) -> None:
    for side, words in ((real, "real"), (sim, "simulated")):
        worlds = sorted({r.env for r in side})
        if len(worlds) > 1:
            raise DataError(
                f"the {words} trials are of several worlds ({', '.join(worlds)}); name one"
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


def _pair_up(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By, clocks: Sequence[str]
) -> _Paired:
    notes = list(clocks)
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
    judges = [sorted({r.judge or "the world" for r in side}) for side in (own_real, own_sim)]
    if judges[0] != judges[1]:
        notes.append(
            f"success was judged by {' and '.join(judges[0])} in reality, by"
            f" {' and '.join(judges[1])} in simulation"
        )
    if {r.kind for r in own_real} == {"sim"}:
        notes.append(f"reality is a simulated world here: '{own_real[0].env}'")
    return _Paired(own_real, own_sim, by, conditions, tuple(notes))


def _task(paired: _Paired) -> PairedTask:
    notes = list(paired.notes)
    rated = _rated(paired.conditions, notes)
    policies = {c.policy for c in paired.conditions}
    both = {(c.policy, name) for c in paired.conditions for name in c.real}
    counted = {(c.policy, name) for c in rated for name in c.real}
    for label, side in (("real", paired.real), ("simulated", paired.sim)):
        tried = [(r.policy, r.condition) for r in side if r.policy in policies]
        for words, n in (
            ("the other world lacks", sum(t not in both for t in tried)),
            ("another policy lacks", sum(t in both and t not in counted for t in tried)),
        ):
            if n:
                does = "does" if n == 1 else "do"
                notes.append(
                    f"{label}: {count_of(n, 'trial')} of conditions that {words} {does} not count"
                    " in the rates"
                )
    notes += _uneven(rated)
    task = paired.real[0].suite.partition("@")[0] or paired.real[0].env
    starts = starts_of([c.real for c in rated], [c.sim for c in rated])

    def outcomes(of: Mapping[str, Outcome]) -> Outcomes:
        return Outcomes.over_starts(of.values(), scored=paired.by == "score")

    pairs = tuple(
        PolicyPair(c.policy, (outcomes(c.real),), (outcomes(c.sim),), (own,))
        for c, own in zip(rated, starts, strict=True)
    )
    told = tuple(f"{task}: {n}" for n in dict.fromkeys(notes))
    return PairedTask(TaskTable(task, pairs), paired.by, paired.conditions, told)


def _rated(
    conditions: Sequence[PairedConditions], notes: list[str]
) -> tuple[PairedConditions, ...]:
    """What rates are taken over: the conditions of all policies. Policies that were tried from
    starts of their own would differ by how hard these are, alike in both worlds.
    """
    shared = set.intersection(*(set(c.real) for c in conditions))
    fewest = min(conditions, key=lambda c: len(c.real))
    if not shared:
        raise DataError(
            "no condition was tried by every policy in both worlds: their rates would differ by"
            f" how hard their starts are. Try them from the same ones ('{fewest.policy}' has the"
            f" fewest: {len(fewest.real)})"
        )
    if any(len(c.real) > len(shared) for c in conditions):
        notes.append(
            f"rates are taken over the {count_of(len(shared), 'condition')} that every policy was"
            f" tried under in both worlds ('{fewest.policy}' under {len(fewest.real)})"
        )
    return tuple(
        PairedConditions(
            c.policy,
            {name: v for name, v in c.real.items() if name in shared},
            {name: v for name, v in c.sim.items() if name in shared},
            c.only_simulated,
        )
        for c in conditions
    )


def _uneven(conditions: Sequence[PairedConditions]) -> list[str]:
    """Where starts were not tried equally often, in words."""
    found: list[str] = []
    sides = ("real", [c.real for c in conditions]), ("simulated", [c.sim for c in conditions])
    for words, side in sides:
        times = [[len(outcome) for outcome in starts.values()] for starts in side]
        uneven = [i for i, n in enumerate(times) if min(n) < max(n)]
        if uneven:
            n = times[uneven[0]]
            found.append(
                f"{words}: {len(uneven)} of {count_of(len(times), 'policy', 'policies')}"
                f" {'was' if len(uneven) == 1 else 'were'} tried more often from some starts than"
                f" from others ('{conditions[uneven[0]].policy}': {min(n)} to {max(n)} times); in"
                " the rates every start counts once"
            )
    return found


def _counted(side: Sequence[TrialRecord], words: str, notes: list[str]) -> list[TrialRecord]:
    """The trials of one side that count; notes say what does not, and what differs among them."""
    own, left_out = own_trials(side)
    notes += [f"{words}: {said}" for said in require_poolable(own, accept=SLIGHT)]
    if left_out:
        does = "does" if left_out == 1 else "do"
        notes.append(
            f"{words}: {count_of(left_out, 'trial')} of moved or repeated starts, voided or"
            f" running, {does} not count"
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
    for name in shared:
        same = [n for n in shared if hashes[0][n] == hashes[0][name]]
        if len(same) > 1:
            raise DataError(
                f"{' and '.join(repr(n) for n in same)} are one policy ({hashes[0][name]}), which"
                " would count more than once: leave the trials of all names but one out"
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
