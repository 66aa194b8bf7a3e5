"""Reports how far a simulator may be trusted, from trials in reality and in simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.trust.causes.report import CausesReport
from eval.trust.estimates import real_estimate
from eval.trust.off_policy import Recorded, off_policy_row
from eval.trust.pairing import By, agreement, paired_tasks
from eval.trust.report import trust_report
from robolearn.errors import DataError
from robolearn.operations.compare import pooled
from robolearn.operations.trust.table import Trust
from robolearn.types import TrialRecord

# Words of the methods of ``robolearn rank``.
METHODS = {
    "expected": "fitted Q evaluation (FQE)",
    "distributional": "fitted likelihood estimation (FLE)",
    "action_error": "held-out action error (weaker still: no outcome is in it)",
}


def trust_of_trials(
    real: Sequence[Path],
    sim: Sequence[Path],
    *,
    real_world: str = "",
    sim_world: str = "",
    causes: Path | None = None,
    rankings: Sequence[Path] = (),
    by: By = "success",
    level: float = 0.95,
    seed: int = 0,
) -> Trust:
    """Judge a simulator by results folders of ``robolearn deploy`` (or of ``evaluate`` in a world
    that stands for reality) and of ``robolearn evaluate``; a task per suite.

    Trials pair up by policy and condition. Of a folder that holds several kinds of trials those of
    the last evaluation count. ``real_world``, ``sim_world``: whose trials count in folders of
    several worlds; ``causes``: a folder of ``robolearn explain``; ``rankings``: folders of
    ``robolearn rank`` over the same runs. Raises :class:`DataError`, with the reason, for what does
    not belong together.
    """
    in_reality, simulated = pooled(real), pooled(sim)
    real_trials = _of_world(in_reality.kept, real_world, "real")
    tasks = paired_tasks(real_trials, _of_world(simulated.kept, sim_world, "simulated"), by)
    explained: Mapping[str, CausesReport] = {}
    if causes is not None:
        # It replays trials in simulators, whose libraries take seconds to load.
        from robolearn.operations.trust.explain import explained_tasks

        explained = explained_tasks(real_trials, causes, by, seed)
    recorded = [_recorded(folder) for folder in rankings]
    # Options of execution follow the run's own hash.
    hashes = {r.policy: r.policy_hash.partition("+")[0] for r in real_trials}
    notes = [*in_reality.apart, *simulated.apart]
    notes += [n for t in tasks for n in t.notes]
    report = trust_report([t.table for t in tasks], level=level, seed=seed, notes=notes)
    judged = tuple(
        dataclasses.replace(
            judged,
            agreement=agreement(task),
            estimates=tuple(real_estimate(c, level=level, seed=seed) for c in task.conditions),
            causes=explained.get(judged.task),
            off_policy=tuple(off_policy_row(r, task.table, hashes, seed) for r in recorded),
        )
        for judged, task in zip(report.tasks, tasks, strict=True)
    )
    return Trust(dataclasses.replace(report, tasks=judged))


def _recorded(folder: Path) -> Recorded:
    # It runs policies, whose libraries take seconds to load.
    from robolearn.operations.ranking.rank import ranked_values

    method, values = ranked_values(folder)
    return Recorded(METHODS.get(method, method), folder.name, values)


def _of_world(trials: Sequence[TrialRecord], world: str, words: str) -> tuple[TrialRecord, ...]:
    worlds = list(dict.fromkeys(r.env for r in trials))
    if world and world not in worlds:
        raise DataError(f"no {words} trials in '{world}'; there are trials in {', '.join(worlds)}")
    if not world and len(worlds) > 1:
        option = "real" if words == "real" else "sim"
        raise DataError(
            f"the {words} trials are of several worlds: {', '.join(worlds)}; name one with"
            f" --{option}-world"
        )
    return tuple(r for r in trials if r.env == (world or worlds[0]))
