"""Writes a new store of episodes whose actions were inferred from what was seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policies.data_models.inverse_dynamics import ActionInference, LabelledEpisode
from policies.data_models.options import InverseDynamicsConfig
from robolearn.config import to_dict
from robolearn.data.episode import Episode, no_sent
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.edit import derive_store
from robolearn.errors import DataError, SpecMismatchError
from robolearn.spec import EmbodimentSpec, TaskSpace, diff_task_spaces

INFERRED = "inferred_actions"


@dataclass(frozen=True, slots=True)
class ActionsLabelled:
    """The new store, and how good its actions are."""

    store: Path
    # Episodes in it.
    episodes: int
    # Labelled episodes that the model learned from, and those that measured its error.
    learned_from: int
    held_out: int
    # By action: error on held-out episodes, in parts of the action's spread there.
    error: Mapping[str, float]
    # How far the members disagree on the episodes without actions, and on those held out they
    # should: much more of it says that they show something else. Root mean square.
    disagreement: float


def label_actions(
    store: Path,
    labelled: Path,
    out: Path,
    config: InverseDynamicsConfig,
    *,
    observations: Sequence[str] = (),
    on_labelled: Callable[[int, int], None] | None = None,
) -> ActionsLabelled:
    """Write ``store`` anew as ``out``, with the actions that ``labelled`` says were taken.

    A model learns from the episodes of ``labelled`` which action lies between what is seen before
    and after; actions that ``store`` may have are not looked at. ``observations``: what it sees;
    empty: every signal that both have, pictures aside. ``on_labelled``: told after every episode
    how many are written, and of how many.

    Errors: :class:`SpecMismatchError` where the stores share no signals or rate,
    :class:`DataError` where the model's error is above ``config.limit``; then nothing is written.
    """
    source, teacher = EpisodeStore.open(store), EpisodeStore.open(labelled)
    if not source.ids() or not teacher.ids():
        empty = store if not source.ids() else labelled
        raise DataError(f"'{empty}' holds no episodes")
    theirs = teacher.meta(teacher.ids()[0]).embodiment
    ours = source.meta(source.ids()[0]).embodiment
    space = _shared(ours, theirs, observations)
    for name in source.ids():
        _require_fitting(space, source.meta(name).embodiment, f"{name} of '{store}'")
    lessons = [_lesson(teacher, name, space) for name in teacher.ids()]
    model = ActionInference(space, lessons, config)
    bad = {name: error for name, error in model.error.items() if error > config.limit}
    if bad:
        told = ", ".join(f"{name} {error:.2f}" for name, error in bad.items())
        raise DataError(
            f"the actions cannot be told from what is seen: on {model.held_out} held-out episodes"
            f" the error is {told} of the action's spread (limit {config.limit:g}). Are the signals"
            f" {[s.name for s in space.observations]} what the actions move? More ticks after the"
            " action, more labelled episodes or more updates may help"
        )
    said: dict[str, Any] = {
        "actions": [a.name for a in space.actions],
        "observations": [s.name for s in space.observations],
        "labelled": {"store": teacher.uuid, "episodes": len(lessons)},
        "config": to_dict(config),
        "held_out_error": dict(model.error),
    }
    apart: list[float] = []

    def change(episode: Episode) -> Episode:
        found = model.infer({s.name: episode.observed(s.name) for s in space.observations})
        apart.append(float((found.disagreement**2).mean()))
        action = space.split(found.actions)
        meta = episode.meta
        labels = said | {"disagreement": apart[-1] ** 0.5}
        meta = dataclasses.replace(
            meta,
            embodiment=dataclasses.replace(meta.embodiment, actions=space.actions),
            provenance=dict(meta.provenance) | {INFERRED: labels},
        )
        return dataclasses.replace(episode, meta=meta, action=action, sent=no_sent(action))

    made = derive_store(source, source.ids(), out, change, on_labelled)
    return ActionsLabelled(
        store=Path(str(made.path)),
        episodes=len(apart),
        learned_from=len(lessons) - model.held_out,
        held_out=model.held_out,
        error=model.error,
        disagreement=float(np.mean(apart)) ** 0.5,
    )


def _shared(ours: EmbodimentSpec, theirs: EmbodimentSpec, wanted: Sequence[str]) -> TaskSpace:
    """What the model sees and says, in terms of the labelled episodes."""
    have = {s.name for s in ours.signals}
    names = list(wanted) or [s.name for s in theirs.signals if s.name in have and not s.is_image]
    if not names:
        raise SpecMismatchError(
            f"'{ours.name}' and '{theirs.name}' share no signal: {sorted(have)} and"
            f" {sorted(s.name for s in theirs.signals)}"
        )
    space = theirs.task_space(names)
    pictures = [s.name for s in space.observations if s.is_image]
    if pictures:
        raise SpecMismatchError(f"actions are inferred from numbers; {pictures} are pictures")
    return space


def _require_fitting(space: TaskSpace, spec: EmbodimentSpec, where: str) -> None:
    lines = diff_task_spaces(dataclasses.replace(space, actions=()), spec)
    if lines:
        raise SpecMismatchError(
            f"{where} does not show what the labelled episodes show:\n" + "\n".join(lines)
        )


def _lesson(store: EpisodeStore, name: str, space: TaskSpace) -> LabelledEpisode:
    _require_fitting(space, store.meta(name).embodiment, f"{name} of '{store.path}'")
    seen = [s.name for s in space.observations]
    episode = store.read(name, seen)
    rows = [
        np.asarray(episode.action[a.name], dtype=np.float64).reshape(episode.steps, -1)
        for a in space.actions
    ]
    actions = np.concatenate(rows, axis=1)
    return LabelledEpisode({n: episode.observed(n) for n in seen}, actions)
