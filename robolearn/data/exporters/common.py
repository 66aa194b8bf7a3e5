"""Gives exporters what they share: the rows of an episode at its ticks, and writing aside."""

from __future__ import annotations

import glob
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.episode import Episode
from robolearn.data.store.layout import meta_to_json
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.shapes import AnyRows, FloatRows
from robolearn.spec import EmbodimentSpec, SignalSpec

NOT_HELD = (
    "samples between ticks and capture times of each signal (one row per tick is written)",
    "commands really sent, their sequence numbers and due times",
    "author of each step (only the agent of the episode)",
    "inference and overrun times",
    "labels, notes and splits (the outcome is written as annotated)",
)
"""What none of the formats holds."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """``lossless``: pictures bit for bit where the format compresses them."""

    images: bool = True
    lossless: bool = False
    on_episode: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written, and what the format could not hold."""

    format: str
    path: str
    episodes: int
    steps: int
    not_held: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The signals that every exported episode has."""

    embodiment: EmbodimentSpec
    states: tuple[SignalSpec, ...]
    cameras: tuple[SignalSpec, ...]
    not_held: tuple[str, ...]


def make_plan(store: EpisodeStore, ids: Sequence[str], options: ExportOptions) -> Plan:
    """Check that the episodes fit into one dataset; :class:`DataError` says why not."""
    if not ids:
        raise DataError(f"{store.path} has no episodes to export")
    embodiment = store.meta(ids[0]).embodiment
    present = set(store.info(ids[0]).signals)
    for episode_id in ids[1:]:
        if store.meta(episode_id).embodiment != embodiment:
            raise DataError(f"{episode_id} has another embodiment than {ids[0]}: export them apart")
        present &= set(store.info(episode_id).signals)
    absent = [s.name for s in embodiment.signals if s.name not in present]
    used = [s for s in embodiment.signals if s.name in present]
    pictures = [s for s in used if s.is_image and not s.is_depth]
    reasons = [f"{name}: not in every episode" for name in absent]
    reasons += [f"{s.name} (depth of 16 bits)" for s in used if s.is_depth]
    if not options.images:
        reasons += [f"{s.name} (pictures were not asked for)" for s in pictures]
    states = tuple(s for s in used if not s.is_image)
    return Plan(
        embodiment, states, tuple(pictures) if options.images else (), (*NOT_HELD, *reasons)
    )


def observed(episode: Episode, spec: SignalSpec) -> AnyRows:
    """Values ``[T, *shape]`` at the ticks; :class:`DataError` where a sample is missing."""
    valid = episode.streams[spec.name].valid[episode.view[spec.name]]
    if not valid.all():
        raise DataError(
            f"{episode.id}: {spec.name} is missing at {int((~valid).sum())} of {len(valid)} ticks;"
            " the format has no mask for that: export other episodes, or without that signal"
        )
    return episode.observed(spec.name)


def flat_key(name: str) -> str:
    """``part/name`` as one key without a slash."""
    return name.replace("/", ".")


def actions_of(episode: Episode) -> FloatRows:
    """Commanded actions side by side ``[T, action_size]``, in the order of the embodiment."""
    parts = [
        np.asarray(episode.action[a.name], dtype=np.float64).reshape(episode.steps, -1)
        for a in episode.meta.embodiment.actions
    ]
    return np.concatenate(parts, axis=1)


def sidecar(episode: Episode) -> dict[str, Any]:
    """Metadata as JSON values."""
    return meta_to_json(episode.meta)


def episodes(
    store: EpisodeStore, ids: Sequence[str], plan: Plan, options: ExportOptions
) -> Generator[tuple[int, Episode]]:
    """Read one episode after the other."""
    wanted = [s.name for s in (*plan.states, *plan.cameras)]
    for index, episode_id in enumerate(ids):
        yield index, store.read(episode_id, wanted)
        if options.on_episode is not None:
            options.on_episode(index + 1, len(ids))


@contextmanager
def aside(out: Path) -> Generator[Path]:
    """A path beside ``out`` that takes its place when the block ends well, else is removed.

    What earlier exports to ``out`` left when they were killed is removed too.
    """
    if out.exists():
        raise DataError(f"{out} exists already; choose a new place")
    mark = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
    temporary = out.parent / f".{out.name}.{mark}.exporting"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f".{glob.escape(out.name)}.*-*.exporting"):
            if not _alive(left.name.rsplit(".", 2)[1].split("-")[0]):
                _remove(left)
        yield temporary
        temporary.rename(out)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error}") from error
    finally:
        _remove(temporary)


def _alive(pid: str) -> bool:
    """Whether a process of this machine has that number."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OverflowError, PermissionError):
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
