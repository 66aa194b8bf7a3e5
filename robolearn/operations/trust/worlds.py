"""Chooses whose trials count: of every task one world in reality, and one in simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord

# Of trials that name no suite the world is the task.
ByTask = Mapping[str, Sequence[TrialRecord]]


def of_world(
    trials: Sequence[TrialRecord], world: str | Sequence[str], words: str
) -> tuple[TrialRecord, ...]:
    """Of each task those in the world that was asked for; else in the only one that is not a
    changed one (``~``). ``world``: one, or one of each task.
    """
    named = [name for name in ((world,) if isinstance(world, str) else world) if name]
    worlds = list(dict.fromkeys(r.env for r in trials))
    for name in named:
        if name not in worlds:
            raise DataError(
                f"no {words} trials in '{name}'; there are trials in {', '.join(worlds)}"
            )
    chosen = {
        task: _world_of(task, list(dict.fromkeys(r.env for r in found)), named, words)
        for task, found in _by_suite(trials).items()
    }
    return tuple(r for r in trials if r.env == chosen[_suite_name(r)])


def left_out(
    real: Sequence[TrialRecord],
    sim: Sequence[TrialRecord],
    in_reality: Sequence[TrialRecord],
    simulated: Sequence[TrialRecord],
) -> tuple[str, ...]:
    """Which tasks are in no report, and why. ``real``, ``sim``: the trials that count, of all that
    there are in the folders of each side.
    """
    notes: list[str] = []
    every = {name: None for side in (in_reality, simulated) for name in _by_suite(side) if name}
    for task in every:
        for words, kept, found in (("real", real, in_reality), ("simulated", sim, simulated)):
            there = _by_suite(found).get(task, ())
            if not there:
                notes.append(f"{task}: left out, as it has no {words} trials")
            elif task not in _by_suite(kept):
                worlds = ", ".join(dict.fromkeys(r.env for r in there))
                notes.append(
                    f"{task}: left out, as its {words} trials are in none of the worlds that are"
                    f" named ({worlds})"
                )
    return tuple(notes)


def _world_of(task: str, worlds: Sequence[str], named: Sequence[str], words: str) -> str:
    """Whose trials of ``task`` count; "": of none of its ``worlds``."""
    asked = [w for w in worlds if w in named]
    if len(asked) > 1:
        raise ConfigError(
            f"{' and '.join(asked)} are both of '{task}': name one world of each task, whose"
            f" {words} trials count"
        )
    if named:
        return asked[0] if asked else ""
    plain = [w for w in worlds if "~" not in w]
    unchanged = plain if len(plain) == 1 else worlds
    if len(unchanged) > 1:
        of_task = f" of '{task}'" if task else ""
        raise DataError(
            f"the {words} trials{of_task} are of several worlds: {', '.join(worlds)}; name the one"
            " that counts (real world, sim world)"
        )
    return unchanged[0]


def _by_suite(trials: Sequence[TrialRecord]) -> ByTask:
    found: dict[str, list[TrialRecord]] = {}
    for r in trials:
        found.setdefault(_suite_name(r), []).append(r)
    return found


def _suite_name(record: TrialRecord) -> str:
    return record.suite.partition("@")[0]
