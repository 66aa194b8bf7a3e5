"""Reports how far a simulator may be trusted, from trials in reality and in simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.trials.table import is_written
from eval.trust.agreement import ConditionAgreement, agreement
from eval.trust.causes.report import CausesReport
from eval.trust.closer import closer
from eval.trust.endings import endings
from eval.trust.estimates import RealEstimate, real_estimate
from eval.trust.off_policy import Recorded, off_policy_row
from eval.trust.pairing import By, PairedTask, paired_tasks
from eval.trust.report import trust_report
from eval.trust.trajectories import Replay, Trajectories, trajectories
from eval.trust.variants import variants
from robolearn.errors import ConfigError, DataError
from robolearn.operations.builders import run_hash_of
from robolearn.operations.compare import pooled
from robolearn.operations.trust.options import Beside
from robolearn.operations.trust.plans import require_planned
from robolearn.operations.trust.sides import require_sides
from robolearn.operations.trust.table import Trust
from robolearn.operations.trust.worlds import left_out, of_world
from robolearn.types import TrialRecord

# Words of the methods of ``robolearn rank``.
METHODS = {
    "expected": "fitted Q evaluation (FQE)",
    "distributional": "fitted likelihood estimation (FLE)",
    "action_error": "held-out action error (weaker still: no outcome is in it)",
}
# More recordings take minutes and hardly change a median.
_MOST_REPLAYED = 30


def trust_of_trials(
    real: Sequence[Path],
    sim: Sequence[Path],
    *,
    real_world: str | Sequence[str] = "",
    sim_world: str | Sequence[str] = "",
    beside: Beside = Beside(),  # noqa: B008 (frozen)
    by: By = "success",
    level: float = 0.95,
    seed: int = 0,
) -> Trust:
    """Judge a simulator by results folders of ``robolearn deploy`` (or of ``evaluate`` in a world
    that stands for reality) and of ``robolearn evaluate``; a task per suite.

    Trials pair up by policy and condition. Of a folder that holds several kinds of trials those of
    the last evaluation count. ``real_world``, ``sim_world``: whose trials count where there are
    several worlds of a task, one or one of each task. Raises :class:`DataError`, with the reason,
    for what does not belong together.
    """
    in_reality = pooled(real)
    # Both sides may be worlds of one evaluation, and reading thousands of trials takes a while.
    simulated = in_reality if list(sim) == list(real) else pooled(sim)
    real_trials = of_world(in_reality.kept, real_world, "real")
    sim_trials = of_world(simulated.kept, sim_world, "simulated")
    folders = in_reality.by_folder, simulated.by_folder
    tasks = paired_tasks(real_trials, sim_trials, by)
    sides = require_sides(real_trials, sim_trials, *folders)
    explained: Mapping[str, CausesReport] = {}
    if beside.causes is not None:
        # It replays trials in simulators, whose libraries take seconds to load.
        from robolearn.operations.trust.explain import explained_tasks

        explained = explained_tasks(real_trials, beside.causes, by, seed)
    recorded = [_recorded(folder) for folder in beside.rankings]
    changed = _changed(in_reality.kept, simulated.kept, real_trials, sim_trials, beside.changed)
    others = _others(real_trials, beside, by)
    motions = _motions(beside, list(dict.fromkeys(r.env for r in sim_trials)))
    planned = require_planned({**folders[0], **folders[1]})
    notes = [*dict.fromkeys((*in_reality.apart, *simulated.apart)), *planned, *sides]
    notes += _unfinished((*real, *sim))
    notes += left_out(real_trials, sim_trials, in_reality.kept, simulated.kept)
    notes += _not_compared([t.table.task for t in tasks], others) if beside.against else []
    notes += [n for t in tasks for n in t.notes]
    report = trust_report([t.table for t in tasks], level=level, seed=seed, notes=notes)
    agreed = [agreement(t, level=level, seed=seed) for t in tasks]
    judged = tuple(
        dataclasses.replace(
            judged,
            agreement=found,
            estimates=_estimates(task, found[-1], level, seed),
            causes=explained.get(judged.task),
            off_policy=tuple(
                off_policy_row(r, task.table, _hashes(real_trials, judged.task), seed)
                for r in recorded
            ),
            variants=variants(task, *(_of_task(side, judged.task) for side in changed)),
            trajectories=_of_scene(motions, sim_trials, judged.task),
            endings=endings(task, *_of_both(real_trials, sim_trials, judged.task)),
            closer=None
            if judged.task not in others
            else closer(others[judged.task], task, level=level, seed=seed),
        )
        for judged, task, found in zip(report.tasks, tasks, agreed, strict=True)
    )
    return Trust(dataclasses.replace(report, tasks=judged))


def _estimates(
    task: PairedTask, agreed: ConditionAgreement, level: float, seed: int
) -> tuple[RealEstimate, ...]:
    """Of every policy; ``agreed``: of all of them, beside whose ceiling savings are judged."""
    repeats = None if agreed.ceiling is None else agreed.ceiling.value
    return tuple(real_estimate(c, repeats=repeats, level=level, seed=seed) for c in task.conditions)


def _hashes(real: Sequence[TrialRecord], task: str) -> Mapping[str, str]:
    """Of the runs by their policies' names in one task."""
    mine = [r for r in real if (_suite(r) or r.env) == task]
    return {r.policy: run_hash_of(r.policy_hash) for r in mine}


Changed = Mapping[str, Sequence[TrialRecord]]


def _changed(
    in_reality: Sequence[TrialRecord],
    simulated: Sequence[TrialRecord],
    real: Sequence[TrialRecord],
    sim: Sequence[TrialRecord],
    told: Sequence[str],
) -> tuple[Changed, Changed]:
    """Trials of both sides by the change of their world; ``""``: as it is."""
    sides: tuple[dict[str, Sequence[TrialRecord]], ...] = ({"": real}, {"": sim})
    every = (in_reality, simulated)
    for side, trials in zip(sides, every, strict=True):
        bases = {_suite(r): f"{r.env}~" for r in side[""]}
        by_change: dict[str, list[TrialRecord]] = {}
        for r in trials:
            base = bases.get(_suite(r))
            if base is not None and r.env.startswith(base):
                by_change.setdefault(r.env.removeprefix(base), []).append(r)
        side.update(by_change)
    for pair in told:
        names = [n for n in pair.split("=>") if n]
        if len(names) != 2:
            raise ConfigError(f"changed: expected 'REAL=>SIM', two names of worlds, got '{pair}'")
        for side, trials, name in zip(sides, every, names, strict=True):
            found = tuple(r for r in trials if r.env == name)
            if not found:
                there = ", ".join(dict.fromkeys(r.env for r in trials))
                raise DataError(f"changed: no trials in '{name}'; there are trials in {there}")
            change, tasks = names[1].partition("~")[2] or names[0], {_suite(r) for r in found}
            others = [r for r in side.get(change, ()) if _suite(r) not in tasks]
            side[change] = (*others, *found)
    return sides[0], sides[1]


def _suite(record: TrialRecord) -> str:
    return record.suite.partition("@")[0]


def _of_task(side: Changed, task: str) -> Changed:
    """Of one suite, by the name that its table has."""
    return {
        name: tuple(r for r in found if (_suite(r) or r.env) == task)
        for name, found in side.items()
    }


def _of_both(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], task: str
) -> list[tuple[TrialRecord, ...]]:
    """The trials of one suite that both sides have, in the same version."""
    both = {r.suite for r in real} & {r.suite for r in sim}
    suites = {r.suite for r in real if (_suite(r) or r.env) == task} & both
    return [tuple(r for r in side if r.suite in suites) for side in (real, sim)]


def _others(real: Sequence[TrialRecord], beside: Beside, by: By) -> Mapping[str, PairedTask]:
    """The other simulator, by task."""
    if not beside.against:
        return {}
    other = of_world(pooled(beside.against).kept, beside.against_world, "against")
    return {t.table.task: t for t in paired_tasks(real, other, by)}


def _unfinished(folders: Sequence[Path]) -> list[str]:
    return [
        f"trials are being written into '{folder}': these are the ones until now"
        for folder in dict.fromkeys(folders)
        if is_written(folder)
    ]


def _not_compared(tasks: Sequence[str], others: Mapping[str, PairedTask]) -> list[str]:
    """Which tasks are on one side of the comparison of two simulators alone."""
    lacking = [f"{t}: the other simulator has no trials of it" for t in tasks if t not in others]
    more = [t for t in others if t not in tasks]
    return lacking + [f"the other simulator's trials of {t} are left out: no others" for t in more]


def _motions(beside: Beside, worlds: Sequence[str]) -> Trajectories | None:
    """``worlds``: of the simulated trials."""
    store, world = beside.trajectories, beside.trajectories_world or worlds[0]
    if store is None:
        return None
    if not beside.trajectories_world and len(worlds) > 1:
        raise ConfigError(
            f"trajectories: say in which of {', '.join(worlds)} they are replayed"
            " (trajectories_world)"
        )
    # Simulators take seconds to load.
    from robolearn.operations.replay import replay

    told = replay(store, world, episodes=_MOST_REPLAYED)
    replays = [Replay(e.rate_hz, e.position_m, e.rotation_rad) for e in told.errors]
    return trajectories(replays, store.name, world, len(told.diverged))


def _of_scene(
    motions: Trajectories | None, sim: Sequence[TrialRecord], task: str
) -> Trajectories | None:
    """Beside the tasks of the world that was replayed in; a scene's folder says no task."""
    worlds = {r.env for r in sim}
    mine = {r.env for r in sim if (_suite(r) or r.env) == task}
    return motions if motions is None or motions.world not in worlds - mine else None


def _recorded(folder: Path) -> Recorded:
    # It runs policies, whose libraries take seconds to load.
    from robolearn.operations.ranking.rank import ranked_values

    method, values = ranked_values(folder)
    return Recorded(METHODS.get(method, method), folder.name, values)
