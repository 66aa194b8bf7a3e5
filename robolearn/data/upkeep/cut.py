"""Cuts long recordings into episodes (:mod:`robolearn.data.upkeep.pieces` says where).

Every piece keeps its times, and says where it comes from; pictures are copied as they are stored,
one by one, so that an hour of them fits. The source is only read, and the new store appears when it
is complete, so a kill leaves nothing half.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.config import to_dict
from robolearn.data.episode import Episode, EpisodeMeta
from robolearn.data.markers import MARKER
from robolearn.data.store.annotations import Annotation, default_author
from robolearn.data.store.drafts import EpisodeDraft, is_frames
from robolearn.data.store.picture_codec import FRAME_CODECS, StoredFrames, parse_codec
from robolearn.data.store.storage import ObjectPath
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.data.upkeep.edit import derived_episode
from robolearn.data.upkeep.pieces import CutConfig, Piece, find_pieces
from robolearn.data.view.cameras import Camera, open_camera
from robolearn.errors import DataError
from robolearn.shapes import AnyArray, OwnIndex, OwnTimes
from robolearn.types import Condition, Outcome, SampleBlock, SentBlock

CUT = "cut"


@dataclass(frozen=True, slots=True)
class Cuts:
    """The new store, its episodes by recording, and how many pieces were too short."""

    store: Path
    pieces: Mapping[str, tuple[str, ...]]
    too_short: int


def cut_store(
    store: EpisodeStore,
    out: str | Path | ObjectPath,
    config: CutConfig,
    ids: Sequence[str] = (),
    on_cut: Callable[[int, int], None] | None = None,
) -> Cuts:
    """A new store at ``out`` with the pieces of the recordings ``ids`` (none named: all).

    Labels and split of a recording come along, its outcome does not: a piece is no success until
    somebody says so, except the last one, which ends as the recording did. ``on_cut``: told after
    every recording how many are cut, and of how many. Errors: :class:`DataError` where nothing
    says where to cut; then nothing is written.
    """
    chosen = tuple(ids) or store.ids()
    if not chosen:
        raise DataError(f"'{store.path}' holds no episodes")
    # All of them before anything is written.
    planned: dict[str, list[Piece]] = {}
    too_short = 0
    for name in chosen:
        episode = store.read(name, _numbers(store, name))
        found = find_pieces(episode, store.annotated(name), config)
        least = max(1, round(config.least_s * episode.meta.embodiment.rate_hz))
        planned[name] = [p for p in found if p.steps >= least]
        too_short += len(found) - len(planned[name])
    if not any(planned.values()):
        raise DataError(
            f"no piece of '{store.path}' is as long as {config.least_s:g} s: lower least_s"
        )
    pieces: dict[str, tuple[str, ...]] = {}

    def fill(made: EpisodeStore) -> None:
        with made.writer() as writer:
            for name, parts in planned.items():
                pieces[name] = _write(store, name, parts, config, writer)
                said = store.annotated(name)
                if pieces[name] and (said.labels or said.split):
                    split = said.split or None
                    author = default_author()
                    writer.annotate(
                        Annotation(pieces[name], author, add_labels=said.labels, split=split)
                    )
                if on_cut is not None:
                    on_cut(len(pieces), len(planned))

    made = EpisodeStore.create(out, fill)
    return Cuts(Path(str(made.path)), pieces, too_short)


def _numbers(store: EpisodeStore, name: str) -> list[str]:
    """Signals that are small enough to be read at once."""
    frames = {s.name for s in store.meta(name).embodiment.signals if is_frames(s)}
    return [n for n in store.info(name).signals if n not in frames]


def _write(
    store: EpisodeStore,
    name: str,
    parts: Sequence[Piece],
    config: CutConfig,
    writer: StoreWriter,
) -> tuple[str, ...]:
    """Ids of the pieces of one recording."""
    small = _numbers(store, name)
    episode = store.read(name, small)
    cameras = [open_camera(store, name, n) for n in store.info(name).signals if n not in small]
    told: Mapping[str, Any] = episode.meta.provenance.get(FRAME_CODECS, {})
    codecs = {camera: str(codec) for camera, codec in told.items()}
    new: list[str] = []
    for number, part in enumerate(parts):
        cut = {"config": to_dict(config), "first": part.begin, "steps": part.steps}
        piece = derived_episode(store, name, cut_out(episode, cameras, part))
        said = dict(piece.meta.provenance) | {CUT: cut | {"number": number}}
        said |= {FRAME_CODECS: codecs} if codecs else {}
        kind = config.kind or piece.meta.kind
        meta = dataclasses.replace(piece.meta, kind=kind, provenance=said)
        piece = dataclasses.replace(piece, meta=meta)
        draft = writer.drafts.begin({n: parse_codec(c) for n, c in codecs.items()})
        try:
            for camera in cameras:
                rows = _rows(camera.t_ns, camera.view, episode, part)
                _copy_frames(draft, episode, camera, rows)
        except BaseException:
            draft.discard()
            raise
        new.append(writer.commit(writer.drafts.prepare(draft, piece)))
    return tuple(new)


def _copy_frames(draft: EpisodeDraft, episode: Episode, camera: Camera, rows: slice) -> None:
    spec = episode.meta.embodiment.signal(camera.name)
    if isinstance(camera.frames, StoredFrames):
        for row in range(rows.start, rows.stop):
            draft.add_encoded(spec, camera.frames.encoded_frame(row))
        return
    wanted = np.arange(rows.start, rows.stop, dtype=np.int64)
    for row, frame in zip(wanted.tolist(), camera.at(wanted), strict=True):
        one = slice(row, row + 1)
        draft.add_frames(spec, SampleBlock(camera.t_ns[one], frame[None], camera.valid[one]))


def _rows(t_ns: OwnTimes, view: OwnIndex, episode: Episode, part: Piece) -> slice:
    """Samples from the first that the piece shows to the last that came within it."""
    last = len(t_ns)
    if part.end < episode.steps:
        came = int(np.count_nonzero(t_ns < episode.tick_t_ns[part.end]))
        last = max(int(view[part.end - 1]) + 1, came)
    return slice(int(view[part.begin]), last)


def cut_out(episode: Episode, cameras: Sequence[Camera], part: Piece) -> Episode:
    """A piece of an episode; of ``cameras``, which the episode lacks, the times alone."""
    ticks = slice(part.begin, part.end)
    streams, view = dict[str, SampleBlock](), dict[str, OwnIndex]()
    for name, block in episode.streams.items():
        if name == MARKER.name:
            continue
        rows = _rows(block.t_ns, episode.view[name], episode, part)
        streams[name] = SampleBlock(block.t_ns[rows], block.value[rows], block.valid[rows])
        view[name] = episode.view[name][ticks] - rows.start
    for camera in cameras:
        rows = _rows(camera.t_ns, camera.view, episode, part)
        spec = episode.meta.embodiment.signal(camera.name)
        empty = np.zeros((0, *spec.shape), dtype=spec.dtype)
        streams[camera.name] = SampleBlock(camera.t_ns[rows], empty, camera.valid[rows])
        view[camera.name] = camera.view[ticks] - rows.start
    seq, sent = episode.seq[ticks], episode.sent
    mine = (sent.seq >= seq[0]) & (sent.seq <= seq[-1])
    truncated = episode.truncated[ticks].copy()
    truncated[-1] |= part.end < episode.steps
    first = {name: streams[name].value[view[name][0]] for name in streams if name in episode.view}
    return dataclasses.replace(
        episode,
        meta=_meta(episode, part, first),
        tick_t_ns=episode.tick_t_ns[ticks],
        streams=streams,
        view=view,
        action={n: v[ticks] for n, v in episode.action.items()},
        seq=seq,
        due_ns=episode.due_ns[ticks],
        source=episode.source[ticks],
        sent=SentBlock(
            sent.seq[mine], sent.t_ns[mine], {n: v[mine] for n, v in sent.action.items()}
        ),
        reward=episode.reward[ticks],
        progress=episode.progress[ticks],
        terminal=episode.terminal[ticks],
        truncated=truncated,
        inference_ns=episode.inference_ns[ticks],
        overrun_ns=episode.overrun_ns[ticks],
    )


def _meta(episode: Episode, part: Piece, first: Mapping[str, AnyArray]) -> EpisodeMeta:
    """Where the piece really starts, when, and how it ends: as the recording where it is the last
    one, else nobody knows.
    """
    meta, whole = episode.meta, part.end == episode.steps
    poses = {n: tuple(np.ravel(first[n]).tolist()) for n in meta.condition.poses if n in first}
    start = meta.condition
    condition = Condition(f"{start.id}-{part.begin}", start.seed, {**start.poses, **poses})
    achieved = {n: tuple(np.ravel(first[n]).tolist()) for n in meta.achieved if n in first}
    end = part.end - 1
    outcome = Outcome(
        success=meta.outcome.success and part.last,
        progress=float(episode.progress[end]),
        reward=float(episode.reward[end]),
        terminal=bool(episode.terminal[end]),
        truncated=bool(episode.truncated[end]) or not whole,
        reason=meta.outcome.reason if part.last else "cut",
    )
    since_ns = int(episode.tick_t_ns[part.begin] - episode.tick_t_ns[0])
    return dataclasses.replace(
        meta,
        condition=condition,
        achieved=achieved,
        outcome=meta.outcome if whole and part.last else outcome,
        start_wall_ns=meta.start_wall_ns + since_ns if meta.start_wall_ns else 0,
    )
