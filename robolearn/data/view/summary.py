"""Says what ``robolearn data show`` tells about a store and about one episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeInfo
from robolearn.data.store.chunks import read_array, read_checked
from robolearn.data.store.decoded import open_frames
from robolearn.data.store.episode_stats import (
    GROUP,
    MergedStatistics,
    episode_statistics,
    parse_statistics,
)
from robolearn.data.store.journal import recoverable
from robolearn.data.store.stats import SignalStats
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.types import SampleBlock


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """Totals of a store, as annotated. ``killed``: recordings that ``data repair`` recovers."""

    store: str
    uuid: str
    content_hash: str
    episodes: int
    steps: int
    hours: float
    megabytes: float
    successes: int
    mean_score: float
    kinds: dict[str, int]
    tasks: dict[str, int]
    splits: dict[str, int]
    labels: dict[str, int]
    signals: tuple[str, ...]
    annotations: int
    trash: int
    killed: int


@dataclass(frozen=True, slots=True)
class SignalSummary:
    """A recorded stream: its rate [Hz] and jitter (std of intervals) [ms] as measured."""

    name: str
    samples: int
    rate_hz: float
    jitter_ms: float
    missing: int


@dataclass(frozen=True, slots=True)
class ActionSummary:
    """A commanded signal: its range, and the share of ticks at a limit."""

    name: str
    low: float
    high: float
    saturated: float


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """One episode. ``interventions``: ticks at which a person took over from a policy;
    ``devices``: one line for each device of the robot.
    """

    id: str
    kind: str
    task: str
    steps: int
    duration_s: float
    success: bool
    score: float
    reason: str
    agent: str
    env: str
    operator: str
    started: str
    split: str
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    sent: int
    overruns: int
    interventions: int
    sources: dict[str, int]
    git_revision: str
    devices: tuple[str, ...]
    signals: tuple[SignalSummary, ...]
    actions: tuple[ActionSummary, ...]


def store_summary(store: EpisodeStore) -> StoreSummary:
    """Totals from the manifests and annotations alone."""
    found = store.list()
    return StoreSummary(
        store=str(store.path),
        uuid=store.uuid,
        content_hash=store.content_hash(),
        episodes=len(found),
        steps=sum(i.steps for i in found),
        hours=sum(i.duration_s for i in found) / 3600,
        megabytes=sum(i.size_bytes for i in found) / 1e6,
        successes=sum(i.success for i in found),
        mean_score=float(np.mean([i.score for i in found])) if found else 0.0,
        kinds=dict(Counter(str(i.kind) for i in found)),
        tasks=dict(Counter(i.task for i in found)),
        splits=dict(Counter(i.split for i in found if i.split)),
        labels=dict(Counter(label for i in found for label in i.labels)),
        signals=tuple(sorted({name for i in found for name in i.signals})),
        annotations=len(store.annotations()),
        trash=len(store.trash()),
        killed=len(recoverable(store.staging)),
    )


def episode_summary(store: EpisodeStore, episode_id: str) -> EpisodeSummary:
    """One episode, read in full."""
    episode = store.read(episode_id)
    meta, annotated = episode.meta, store.annotated(episode_id)
    started = datetime.fromtimestamp(meta.start_wall_ns / 1e9, UTC).isoformat(timespec="seconds")
    return EpisodeSummary(
        id=episode.id,
        kind=meta.kind,
        task=meta.task,
        steps=episode.steps,
        duration_s=episode.duration_s,
        success=episode.success,
        score=episode.score,
        reason=meta.outcome.reason,
        agent=meta.agent,
        env=meta.env,
        operator=meta.operator,
        started=started if meta.start_wall_ns else "unknown",
        split=annotated.split,
        labels=annotated.labels,
        notes=annotated.notes,
        sent=len(episode.sent.seq),
        overruns=int((episode.overrun_ns > 0).sum()),
        interventions=int(episode.intervention.sum()),
        sources=dict(Counter(episode.source)),
        git_revision=meta.git_revision,
        devices=_devices(meta.provenance.get("devices", {})),
        signals=tuple(_signal(name, block) for name, block in episode.streams.items()),
        actions=_actions(episode),
    )


def _devices(found: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(
        f"{name}: " + ", ".join(f"{k} {v}" for k, v in ids.items()) for name, ids in found.items()
    )


@dataclass(frozen=True, slots=True)
class StatsRow:
    """Statistics of one signal (``obs``: all valid samples; ``action``: commanded) in its unit.

    Of pictures: a sample of their pixels (:mod:`robolearn.data.store.episode_stats`).
    """

    role: str
    name: str
    unit: str
    stats: SignalStats


def store_stats(store: EpisodeStore, *, recompute: bool = False) -> tuple[StatsRow, ...]:
    """Those of all episodes merged: written with every episode, so nothing else is read.

    Episodes of an earlier version have none, or others: a :class:`DataError` that counts them.
    With ``recompute`` they come from the data of every episode instead; nothing is written.
    """
    merged, without = MergedStatistics(), list[str]()
    for info in store.list():
        embodiment = store.meta(info.id).embodiment
        found = _from_data(store, info) if recompute else _stored(store, info.id)
        if found is None:
            without.append(info.id)
        else:
            merged.add(found, embodiment)
    if without:
        raise DataError(
            f"{len(without)} episodes of {store.path} carry no statistics of this version"
            f" ({without[0]}, ...): add --recompute to take all of them from the data"
        )
    return tuple(StatsRow(*key, stats=r.finish()) for key, r in merged.running.items() if r.count)


def _from_data(store: EpisodeStore, info: EpisodeInfo) -> dict[str, Any]:
    """Statistics of an episode as it is; of its pictures no more than one chunk in memory."""
    root, files = store.folder(info.id), store.manifest(info.id).by_path()
    specs = store.meta(info.id).embodiment.signals
    cameras = [s.name for s in specs if s.is_image and s.name in info.signals]
    found = {
        name: (
            open_frames(root, f"signals/{name}", files),
            read_array(root, f"signals/{name}/valid", files)[0],
        )
        for name in cameras
    }
    small = [name for name in info.signals if name not in cameras]
    return episode_statistics(store.read(info.id, small), found)


def _stored(store: EpisodeStore, episode_id: str) -> dict[str, Any] | None:
    """The statistics that were written with an episode, checked by their hash."""
    files, name = store.manifest(episode_id).by_path(), f"{GROUP}/zarr.json"
    if name not in files:
        return None
    data = read_checked(store.folder(episode_id), name, files)
    return parse_statistics(data, f"{episode_id}/{name}")


def _signal(name: str, block: SampleBlock) -> SignalSummary:
    gaps = np.diff(block.t_ns) * 1e-9
    return SignalSummary(
        name=name,
        samples=len(block.t_ns),
        rate_hz=float(1 / gaps.mean()) if gaps.size and gaps.mean() > 0 else 0.0,
        jitter_ms=round(float(gaps.std() * 1e3), 6) if gaps.size else 0.0,
        missing=int((~block.valid).sum()),
    )


def _actions(episode: Episode) -> tuple[ActionSummary, ...]:
    found: list[ActionSummary] = []
    for spec in episode.meta.embodiment.actions:
        values: NDArray[np.float64] = episode.action[spec.name].reshape(episode.steps, -1)
        at_limit = np.zeros(episode.steps, dtype=np.bool_)
        if spec.low and spec.high:
            span = np.subtract(spec.high, spec.low) * 1e-6
            at_limit = ((values <= spec.low + span) | (values >= spec.high - span)).any(axis=1)
        found.append(
            ActionSummary(
                spec.name, float(values.min()), float(values.max()), float(at_limit.mean())
            )
        )
    return tuple(found)
