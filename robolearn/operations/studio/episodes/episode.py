"""Makes the document of one episode: what was seen, commanded, sent, by whom, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.arms.slowing import Slowed
from robolearn.data.episode import Episode, EpisodeStart
from robolearn.data.insight.episode_measures import EVENT, slowed_in, supervised
from robolearn.data.markers import MARKER, marked_s
from robolearn.data.store.annotations import Annotation
from robolearn.data.view.cameras import read_without_pictures
from robolearn.errors import DataError
from robolearn.operations.studio.asking import Ask, NotHere
from robolearn.operations.studio.episodes.shelf import OpenStore, open_store
from robolearn.operations.studio.episodes.wanted import Wanted, wanted
from robolearn.operations.studio.library import Library
from robolearn.shapes import AnyRows, FloatRows, OwnFloats, OwnIndex, OwnRows

MOST_ROWS = 20_000
"""Samples of a signal that are sent; a longer one is thinned evenly, and says so."""


@dataclass(frozen=True, slots=True)
class Camera:
    """``view [T]``: the frame of each tick, ``valid`` by frame; size in pixels [height, width]."""

    name: str
    size: tuple[int, int]
    frames: int
    view: OwnIndex
    missing: int


@dataclass(frozen=True, slots=True)
class Curve:
    """``value [n, k]`` at ``t_s [n]``; ``command [T, k]`` at the ticks and ``sent [m, k]`` at
    ``sent_s [m]``, where this is what was commanded.
    """

    name: str
    unit: str
    components: tuple[str, ...]
    t_s: OwnFloats
    value: OwnRows
    command: OwnRows | None
    sent_s: OwnFloats | None
    sent: OwnRows | None
    thinned: int


@dataclass(frozen=True, slots=True)
class Span:
    """From when until when [s] ``what`` was the case; one moment where both are the same."""

    what: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Said:
    """One standing annotation of the episode, newest last."""

    id: str
    author: str
    wall_s: float
    words: str


@dataclass(frozen=True, slots=True)
class EpisodeDocument:
    """An episode of ``T`` ticks at ``t_s [T]`` since the first."""

    id: str
    number: int
    before: int | None
    after: int | None
    place: int
    total: int
    kind: str
    task: str
    task_text: str
    agent: str
    env: str
    operator: str
    started_s: float
    duration_s: float
    rate_hz: float
    steps: int
    success: bool
    reason: str
    score: float
    labels: tuple[str, ...]
    split: str
    notes: tuple[str, ...]
    markers_s: tuple[float, ...]
    t_s: OwnFloats
    progress: OwnFloats
    reward: OwnFloats
    drivers: tuple[Span, ...]
    events: tuple[Span, ...]
    cameras: tuple[Camera, ...]
    curves: tuple[Curve, ...]
    history: tuple[Said, ...]
    world: str
    # Which run can be asked what the policy wanted.
    wanted: Wanted


def document(ask: Ask) -> EpisodeDocument:
    """One episode by its number."""
    return episode_document(open_store(ask), ask.number("number"), ask.library)


def episode_document(opened: OpenStore, number: int, library: Library) -> EpisodeDocument:
    """Episode ``ep_<number>``; damage is a :class:`StoreCorruptError` that says what to do.

    ``library``: where the run that drove it may be.
    """
    name = opened.row(number).id
    episode = read_without_pictures(opened.store, name)
    if not episode.steps:
        raise DataError(f"{name} has no ticks: there is nothing to show")
    said, meta = opened.said(name), episode.meta
    logged = opened.logged()
    ids, place = logged.ids, logged.place.get(name)
    if place is None:
        raise NotHere(f"{name} was removed meanwhile")
    start = int(episode.tick_t_ns[0])
    return EpisodeDocument(
        id=name,
        number=number,
        before=int(ids[place - 1][3:]) if place else None,
        after=int(ids[place + 1][3:]) if place + 1 < len(ids) else None,
        place=place,
        total=len(ids),
        kind=meta.kind,
        task=meta.task,
        task_text=meta.task_text,
        agent=meta.agent,
        env=meta.env,
        operator=meta.operator,
        started_s=meta.start_wall_ns / 1e9,
        duration_s=episode.duration_s,
        rate_hz=meta.embodiment.rate_hz,
        steps=episode.steps,
        success=meta.outcome.success,
        reason=meta.outcome.reason,
        score=episode.score,
        labels=said.labels,
        split=said.split,
        notes=said.notes,
        markers_s=tuple(marked_s(episode, said).tolist()),
        t_s=(episode.tick_t_ns - start) * 1e-9,
        progress=episode.progress,
        reward=episode.reward,
        drivers=_drivers(episode),
        events=_events(episode),
        cameras=_cameras(episode),
        curves=_curves(episode),
        history=_history(opened, name),
        world=EpisodeStart.of(meta).world,
        wanted=wanted(library, episode),
    )


def _drivers(episode: Episode) -> tuple[Span, ...]:
    """Who drove, in spans of equal sources."""
    found: list[Span] = []
    times = (episode.tick_t_ns - episode.tick_t_ns[0]) * 1e-9
    ends = [*times[1:].tolist(), float(times[-1]) + 1.0 / episode.meta.embodiment.rate_hz]
    for source, begin, end in zip(episode.source, times.tolist(), ends, strict=True):
        if found and found[-1].what == source:
            found[-1] = Span(source, found[-1].begin_s, end)
        else:
            found.append(Span(source, begin, end))
    return tuple(found)


def _events(episode: Episode) -> tuple[Span, ...]:
    """What the supervisor did, and where chunks or frames came late."""
    start, slowing = int(episode.tick_t_ns[0]), {int(s) for s in Slowed}
    found = [
        Span(f"slowed: {what.words}", (begin - start) * 1e-9, (end - start) * 1e-9)
        for what, begin, end in slowed_in(episode)
    ]
    found += [
        Span(f"supervisor stepped in (cause {cause})", (t - start) * 1e-9, (t - start) * 1e-9)
        for cause, t in supervised(episode)
        if cause not in slowing
    ]
    late = np.flatnonzero(episode.overrun_ns > 0)
    for k in late[:200].tolist():
        t = (int(episode.tick_t_ns[k]) - start) * 1e-9
        found.append(Span(f"late by {episode.overrun_ns[k] * 1e-6:.1f} ms", t, t))
    return tuple(sorted(found, key=lambda s: s.begin_s))


def _cameras(episode: Episode) -> tuple[Camera, ...]:
    found: list[Camera] = []
    for spec in episode.meta.embodiment.signals:
        if spec.is_image and spec.name in episode.view:
            valid = episode.streams[spec.name].valid
            found.append(
                Camera(
                    name=spec.name,
                    size=(int(spec.shape[0]), int(spec.shape[1])),
                    frames=len(valid),
                    view=episode.view[spec.name],
                    missing=int((~valid).sum()),
                )
            )
    return tuple(found)


def _curves(episode: Episode) -> tuple[Curve, ...]:
    """Commanded signals first: they are what the episode is about."""
    start = int(episode.tick_t_ns[0])
    found: list[Curve] = []
    actions = {a.name: a for a in episode.meta.embodiment.actions}
    sent_s = (episode.sent.t_ns - start) * 1e-9
    empty = np.zeros((0, 1))
    for spec in episode.meta.embodiment.signals:
        block = episode.streams.get(spec.name)
        if spec.is_image or block is None or spec.name in (EVENT, MARKER.name):
            continue
        value = _flat(block.value)
        value[~block.valid] = np.nan
        every = -(-len(value) // MOST_ROWS) or 1
        t_s = (block.t_ns - start) * 1e-9
        command = sent = None
        if spec.name in actions:
            command = _flat(episode.action[spec.name])
            # What is commanded in another form than it is measured has a curve of its own.
            command = command if command.shape[1] == value.shape[1] else None
            sent = _flat(episode.sent.action.get(spec.name, empty)) if command is not None else None
            sent = sent if sent is not None and len(sent) else None
        found.append(
            Curve(
                name=spec.name,
                unit=spec.unit,
                components=tuple(spec.components),
                t_s=t_s[::every],
                value=value[::every],
                command=command,
                sent_s=None if sent is None else sent_s,
                sent=sent,
                thinned=every,
            )
        )
    there = {c.name for c in found if c.command is not None}
    ticks = (episode.tick_t_ns - start) * 1e-9
    for name, action in actions.items():
        if name not in there:
            sent = _flat(episode.sent.action.get(name, empty))
            known = len(sent) > 0
            found.append(
                Curve(
                    name=f"{name} (commanded)",
                    unit=action.unit,
                    components=(),
                    t_s=ticks,
                    value=_flat(episode.action[name]),
                    command=None,
                    sent_s=sent_s if known else None,
                    sent=sent if known else None,
                    thinned=1,
                )
            )
    return tuple(sorted(found, key=lambda c: c.command is None and "(commanded)" not in c.name))


def _flat(values: AnyRows) -> FloatRows:
    width = int(np.prod(values.shape[1:], dtype=np.int64))
    return values.reshape(len(values), width).astype(np.float64)


def _history(opened: OpenStore, name: str) -> tuple[Said, ...]:
    return tuple(Said(r.id, r.author, r.wall_ns / 1e9, words(r)) for r in opened.standing(name))


def words(record: Annotation) -> str:
    """What an annotation says, in one line."""
    parts: Sequence[str] = (
        "" if record.success is None else ("success" if record.success else "no success"),
        record.reason,
        *(f"+{label}" for label in record.add_labels),
        *(f"-{label}" for label in record.remove_labels),
        "" if record.split is None else f"split '{record.split}'",
        f'"{record.note}"' if record.note else "",
        *(f"cut at {time:.2f} s" for time in record.markers),
    )
    return " ".join(part for part in parts if part)
