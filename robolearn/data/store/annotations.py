"""Keeps what people say about episodes afterwards: outcome, labels, notes, splits by hand.

Episodes never change. An annotation is one more record with author and time, committed like an
episode; taking one back is another record:

    an_000003   ep_000000, ep_000001   success=False, label "slip"          anna   10:02
    an_000004   ep_000001              undoes an_000003 ... for all its episodes    10:05
"""

from __future__ import annotations

import dataclasses
import getpass
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from robolearn.data.episode import EpisodeInfo, EpisodeMeta
from robolearn.data.store.chunks import json_bytes
from robolearn.data.store.manifest import confined_ids, parse_record
from robolearn.data.store.storage import Place
from robolearn.errors import DataError


@dataclass(frozen=True, slots=True)
class Annotation:
    """One record. ``None`` and empty fields say nothing; ``id`` and ``wall_ns`` are given by the
    writer; ``undoes`` names an earlier annotation; removals and restorations carry only a note.
    """

    episodes: tuple[str, ...]
    author: str
    success: bool | None = None
    reason: str = ""
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    note: str = ""
    split: str | None = None
    undoes: str = ""
    id: str = ""
    wall_ns: int = 0
    # Moments at which something ends and the next begins [s since the first tick], instead of those
    # that were recorded or said before.
    markers: tuple[float, ...] = ()
    # Names the request that asked for this record, so that one that is repeated is known.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Annotated:
    """All annotations of one episode put together; ``success`` None: as recorded."""

    success: bool | None = None
    reason: str = ""
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    split: str = ""
    # Empty: as recorded.
    markers: tuple[float, ...] = ()


def default_author() -> str:
    """The name of the user who runs this, else ``unknown``."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in the system's table, as in some containers
        return "unknown"


def check_annotation(annotation: Annotation) -> None:
    """Raise :class:`DataError` for a record that says nothing, or says it badly."""
    if not annotation.author.strip():
        raise DataError("an annotation needs an author")
    if not annotation.episodes:
        raise DataError("an annotation needs at least one episode")
    twice = sorted({e for e in annotation.episodes if annotation.episodes.count(e) > 1})
    if twice:
        raise DataError(f"episodes named twice: {', '.join(twice)}")
    names = [*annotation.add_labels, *annotation.remove_labels]
    names += [annotation.split] if annotation.split else []
    for name in names:
        if not name or any(c.isspace() or c == "," or not c.isprintable() for c in name):
            raise DataError(
                f"labels and splits are words without spaces and commas, got {name!r};"
                " put sentences into a note"
            )
    both = sorted(set(annotation.add_labels) & set(annotation.remove_labels))
    if both:
        raise DataError(f"labels both added and removed: {', '.join(both)}")
    if any(not (math.isfinite(m) and m >= 0) for m in annotation.markers) or any(
        later <= sooner for sooner, later in itertools.pairwise(annotation.markers)
    ):
        raise DataError(
            "markers are ascending times in seconds since the start of the episode, got"
            f" {list(annotation.markers)}"
        )
    if annotation.reason and annotation.success is None:
        raise DataError("a reason belongs to an outcome: say success or failure too")


def says_nothing(annotation: Annotation) -> bool:
    """Whether no field of the record has content."""
    empty = Annotation(annotation.episodes, annotation.author)
    return dataclasses.replace(annotation, id="", wall_ns=0, key="") == empty


def annotation_bytes(annotation: Annotation) -> bytes:
    """A record as stored; without markers and key as it was before there were any."""
    raw = dataclasses.asdict(annotation)
    for name in ("markers", "key"):
        if not raw[name]:
            del raw[name]
    return json_bytes(raw)


def parse_annotation(data: bytes, where: Place) -> Annotation:
    """Inverse of :func:`annotation_bytes`; anything else is a :class:`StoreCorruptError`."""

    def build() -> Annotation:
        raw: dict[str, Any] = json.loads(data)
        raw["episodes"] = confined_ids(raw["episodes"], where)
        for name in ("add_labels", "remove_labels"):
            raw[name] = tuple(str(v) for v in raw[name])
        raw["markers"] = tuple(float(v) for v in raw.get("markers", ()))
        raw["key"] = str(raw.get("key", ""))
        return Annotation(**raw)

    return parse_record(build, str(where))


def active(history: Iterable[Annotation]) -> tuple[Annotation, ...]:
    """The records that stand: not undone, or undone by one that was itself undone."""
    standing: list[Annotation] = []
    undone: set[str] = set()
    for record in reversed(tuple(history)):
        if record.id in undone:
            continue
        standing.append(record)
        if record.undoes:
            undone.add(record.undoes)
    return tuple(reversed(standing))


def combine(history: Iterable[Annotation]) -> dict[str, Annotated]:
    """What all records, oldest first, say about each episode they name."""
    found: dict[str, Annotated] = {}
    for record in active(history):
        if record.undoes or not record.id.startswith("an_"):
            continue
        for episode in record.episodes:
            found[episode] = _add(found.get(episode, Annotated()), record)
    return {episode: a for episode, a in found.items() if a != Annotated()}


def _add(before: Annotated, record: Annotation) -> Annotated:
    outcome = record.success is not None
    labels = (set(before.labels) | set(record.add_labels)) - set(record.remove_labels)
    return Annotated(
        success=record.success if outcome else before.success,
        reason=(record.reason or f"judged by {record.author}") if outcome else before.reason,
        labels=tuple(sorted(labels)),
        notes=(*before.notes, record.note) if record.note else before.notes,
        split=before.split if record.split is None else record.split,
        markers=record.markers or before.markers,
    )


def annotated_info(info: EpisodeInfo, said: Annotated) -> EpisodeInfo:
    """The listing with what people said."""
    success = info.success if said.success is None else said.success
    return dataclasses.replace(
        info, success=success, labels=said.labels, split=said.split, notes=said.notes
    )


def annotated_meta(meta: EpisodeMeta, said: Annotated) -> EpisodeMeta:
    """The metadata with the outcome that people gave."""
    if said.success is None:
        return meta
    outcome = dataclasses.replace(meta.outcome, success=said.success, reason=said.reason)
    return dataclasses.replace(meta, outcome=outcome)
