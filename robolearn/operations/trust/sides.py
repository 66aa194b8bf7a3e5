"""Tells which of two simulated worlds stands for reality, as far as anything says so.

Of a cell's trials the rows say that they are real. Where both sides are simulated worlds, the one
that is called ``reality/...`` is one, and trials of ``evaluate --like`` are like those of reality:
``like.json`` says where these began, and seeds which trials are simulated (a repetition in the
reality has others).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.plain import read_mapping
from robolearn.config import from_dict
from robolearn.errors import DataError
from robolearn.operations.trial.begun import FILE_NAME, Begun
from robolearn.seeding import child_seed
from robolearn.types import TrialRecord

_REALITY = "reality/"

ByFolder = Mapping[Path, Sequence[TrialRecord]]


def require_sides(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], of_real: ByFolder, of_sim: ByFolder
) -> tuple[str, ...]:
    """Refuse sides that are swapped (:class:`DataError`); ``real``, ``sim``: trials of one world
    each in a task, and what the folders hold that they are from.

    Returned in words: that nothing says which of two simulated worlds is the reality.
    """
    tasks = [s for s in dict.fromkeys(r.suite for r in real) if any(r.suite == s for r in sim)]
    found = [
        _said([r for r in real if r.suite == s], [r for r in sim if r.suite == s], of_real, of_sim)
        for s in tasks
    ]
    return tuple(dict.fromkeys(said for said in found if said))


def _said(
    real: Sequence[TrialRecord], sim: Sequence[TrialRecord], of_real: ByFolder, of_sim: ByFolder
) -> str:
    if {r.kind for r in (*real, *sim)} != {"sim"}:
        return ""
    here, there = real[0].env, sim[0].env
    is_reality = [name.startswith(_REALITY) for name in (here, there)]
    if is_reality == [False, True]:
        raise _swapped(f"'{there}', whose trials are the simulated ones, is a reality")
    folder = _made_like(of_real, here, sim)
    if folder is not None:
        raise _swapped(
            f"the trials in '{folder}', which are given as real, were simulated from where the"
            f" simulated ones in '{there}' began"
        )
    if is_reality == [True, False] or _made_like(of_sim, there, real) is not None:
        return ""
    return (
        f"nothing in the trials says which of both worlds is the reality: that '{here}' is, and"
        f" that '{there}' is judged by it, is the choice of who asked for this report"
    )


def _swapped(why: str) -> DataError:
    return DataError(
        f"the two sides are swapped: {why}; give the trials of the reality as real ones, and those"
        " of the simulator that is judged as simulated ones"
    )


def _made_like(of: ByFolder, world: str, original: Sequence[TrialRecord]) -> Path | None:
    """The folder whose trials in ``world`` were simulated like the ``original`` ones."""
    for folder, trials in of.items():
        if not (folder / FILE_NAME).is_file():
            continue
        begun = from_dict(
            Begun, read_mapping(folder / FILE_NAME), where=str(folder / FILE_NAME), error=DataError
        )
        if _is_like(begun, [r for r in trials if r.env == world], original):
            return folder
    return None


def _is_like(begun: Begun, found: Sequence[TrialRecord], original: Sequence[TrialRecord]) -> bool:
    # What simulates trials loads simulators.
    from robolearn.operations.trial.like import SIMULATED

    seeds: dict[tuple[str, str], set[int]] = {}
    for r in found:
        seeds.setdefault((r.policy_hash, r.condition), set()).add(r.seed)
    for r in original:
        starts = begun.starts.get(r.policy_hash, {}).get(r.condition, ())
        mine = seeds.get((r.policy_hash, r.condition), set())
        if r.achieved not in starts:
            continue
        # A start has as many rollouts, or fewer.
        drawn = (
            child_seed(r.seed, SIMULATED, number, k) % 2**31
            for number in range(len(starts))
            for k in range(len(mine))
        )
        if any(seed in mine for seed in drawn):
            return True
    return False
