"""Lists the episodes of a store by columns: one array for each field, as annotated."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np

from robolearn.data.store.identity import read_identity
from robolearn.data.store.manifest import VERSION
from robolearn.operations.studio.asking import Ask
from robolearn.operations.studio.episodes.shelf import OpenStore, Shown, open_store
from robolearn.shapes import OwnFlags, OwnFloats, OwnIndex


@dataclass(frozen=True, slots=True)
class Words:
    """A column of words: ``words[index[k]]`` is that of row ``k``."""

    words: tuple[str, ...]
    index: OwnIndex


@dataclass(frozen=True, slots=True)
class EpisodeTable:
    """``number``: of each episode's id; ``started_s``: Unix time [s] since ``epoch_s``, -1: not
    known; ``problems``: by number, of those that cannot be read. ``total`` may be more than what
    was read so far.
    """

    name: str
    path: str
    # The path as a shell takes it, for commands that people copy.
    quoted: str
    uuid: str
    # What to know of the store as a whole; empty mostly.
    remark: str
    total: int
    damage: str
    number: OwnIndex
    steps: OwnFloats
    duration_s: OwnFloats
    score: OwnFloats
    success: OwnFlags
    epoch_s: int
    started_s: OwnFloats
    kind: Words
    task: Words
    operator: Words
    agent: Words
    split: Words
    labels: Words
    notes: OwnIndex
    problems: dict[str, str]
    signals: tuple[str, ...]


def table(ask: Ask) -> EpisodeTable:
    """The episodes of a store."""
    opened = open_store(ask)
    shown, damage, name = opened.shown(), opened.store.damage, ask.thing.name
    # Columns of ten thousand episodes take a quarter of a second.
    return ask.library.keep(
        ("episodes", ask.thing.id),
        lambda: episode_table(opened, shown, name, damage),
        (shown, damage, name),
    )


def episode_table(opened: OpenStore, shown: Shown, name: str, damage: str) -> EpisodeTable:
    """The columns of an open store."""
    rows, infos = shown.rows, shown.infos
    good = [i for i in infos if i is not None]
    starts = [i.start_wall_ns // 10**9 for i in good if i.start_wall_ns > 0]
    epoch = min(starts, default=0)
    started = [0 if i is None or i.start_wall_ns <= 0 else i.start_wall_ns / 1e9 for i in infos]

    def numbers(field: str) -> OwnFloats:
        return np.array([np.nan if i is None else float(getattr(i, field)) for i in infos])

    def words(field: str) -> Words:
        return as_words(["" if i is None else str(getattr(i, field)) for i in infos])

    return EpisodeTable(
        name=name,
        path=str(opened.store.path),
        quoted=shlex.quote(str(opened.store.path)),
        uuid=opened.store.uuid,
        # One whose store.json is damaged says that instead.
        remark="" if damage else _remark(opened),
        total=shown.total,
        damage=damage,
        number=np.array([int(r.id[3:]) for r in rows], dtype=np.int64),
        steps=numbers("steps"),
        duration_s=numbers("duration_s"),
        score=numbers("score"),
        success=np.array([i is not None and i.success for i in infos], dtype=np.bool_),
        epoch_s=epoch,
        started_s=np.array([max(0.0, s - epoch) if s else -1.0 for s in started]),
        kind=words("kind"),
        task=words("task"),
        operator=words("operator"),
        agent=words("agent"),
        split=words("split"),
        labels=as_words(["" if i is None else ",".join(i.labels) for i in infos]),
        notes=np.array([0 if i is None else len(i.notes) for i in infos], dtype=np.int64),
        problems={str(int(r.id[3:])): r.problem for r in rows if r.problem},
        signals=tuple(dict.fromkeys(n for i in good for n in i.signals)),
    )


def _remark(opened: OpenStore) -> str:
    """Of a store that an older robolearn made (docs/data_format.md)."""
    version = read_identity(opened.store.path)["version"]
    if version == VERSION:
        return ""
    return f"format version {version} (new stores: {VERSION}): read and annotated as it is"


def as_words(values: list[str]) -> Words:
    """Words by their place in a list of different ones."""
    place: dict[str, int] = {}
    index = [place.setdefault(v, len(place)) for v in values]
    return Words(tuple(place), np.array(index, dtype=np.int64))
