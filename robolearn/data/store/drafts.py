"""Writes episodes aside: everything that comes before the commit, and needs no lock.

    draft  --prepare-->  PreparedEpisode  --commit (lock)-->  episode
    files grow           all files durable,                   ``robolearn/data/store/writer.py``
                         listed with their hashes

Any number of threads and processes may draft in the staging folder of one store; a prepared episode
is a small value that can be sent to the process that commits. What is never committed is swept by
the next writer.
"""

from __future__ import annotations

import dataclasses
import errno
import math
import shutil
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.data.episode import Episode, EpisodeInfo, EpisodeMeta
from robolearn.data.store.chunks import (
    FRAME_BYTES,
    ArrayWriter,
    FileSink,
    rows_per_chunk,
    write_group,
)
from robolearn.data.store.episode_stats import GROUP, EpisodeStatistics
from robolearn.data.store.journal import Journal
from robolearn.data.store.layout import write_episode
from robolearn.data.store.manifest import Manifest
from robolearn.data.store.picture_codec import LOSSLESS, EncodedWriter, FrameCodec, decode_frame
from robolearn.data.store.validate import check_samples, validate_episode
from robolearn.errors import StoreError
from robolearn.spec import SignalSpec
from robolearn.types import SampleBlock, Signals


class EpisodeDraft:
    """An episode being written aside. Frames go to disk as they come, the rest at the commit."""

    def __init__(self, folder: Path, codecs: Mapping[str, FrameCodec] | None = None) -> None:
        self.sink = FileSink(folder)
        self._codecs = dict(codecs or {})
        self._plain: dict[str, ArrayWriter] = {}
        self._encoded: dict[str, EncodedWriter] = {}
        self._statistics = EpisodeStatistics()
        folder.mkdir(parents=True)

    @property
    def streamed(self) -> frozenset[str]:
        """Signals whose values were written already."""
        return frozenset((*self._plain, *self._encoded))

    def add_frames(self, spec: SignalSpec, block: SampleBlock) -> None:
        """Append samples of a frame signal (see :func:`is_frames`) in order, by its codec."""
        check_samples(spec, block)
        self._statistics.add_frames(spec, block.value, block.valid)
        if self._codecs.get(spec.name, LOSSLESS).encodes:
            self._encoder(spec).append(block.value, block.valid, block.files)
            return
        writer = self._plain.get(spec.name)
        if writer is None:
            path = f"signals/{spec.name}/value"
            rows = rows_per_chunk(spec.shape, block.value.dtype, 1)
            writer = ArrayWriter(self.sink, path, spec.shape, block.value.dtype, rows)
            self._plain[spec.name] = writer
        writer.append(block.value)

    def add_encoded(self, spec: SignalSpec, data: bytes) -> None:
        """Append one frame that is a picture file already (no bytes: a missing one)."""
        if data and self._statistics.wants_next(spec.name):
            frame = decode_frame(np.frombuffer(data, dtype=np.uint8), spec.shape)
            self._statistics.add_frames(spec, frame[None], np.ones(1, dtype=np.bool_))
        else:
            self._statistics.skip(spec.name)
        self._encoder(spec).append_encoded(data)

    def encoded_sizes(self, name: str) -> list[int]:
        """Bytes of every frame so far of a camera whose codec makes picture files."""
        return self._encoded[name].sizes if name in self._encoded else []

    @property
    def kept_files(self) -> dict[str, int]:
        """Of every camera that compresses its own pictures: how many are stored as they came."""
        return {name: w.kept for name, w in self._encoded.items() if w.kept}

    def _encoder(self, spec: SignalSpec) -> EncodedWriter:
        writer = self._encoded.get(spec.name)
        if writer is None:
            codec = self._codecs[spec.name]
            writer = EncodedWriter(self.sink, f"signals/{spec.name}", spec.shape, codec)
            self._encoded[spec.name] = writer
        return writer

    @property
    def journal(self) -> Journal:
        """What a killed recording is recovered from, beside the draft."""
        return Journal(self.sink.root.with_suffix(".journal"))

    def flush(self, meta: EpisodeMeta, segment: Signals) -> None:
        """Make the frames so far durable, then ``segment``: recoverable up to here from now on."""
        self.sink.sync()
        self.journal.append(meta, segment)

    def finish(self, episode: Episode) -> Manifest:
        """Write everything else, make it durable, and list it."""
        validate_episode(episode, self.streamed)
        for name, writer in (*self._plain.items(), *self._encoded.items()):
            rows = len(episode.streams[name].t_ns)
            if writer.rows != rows:
                raise StoreError(f"{name}: {writer.rows} frames written, {rows} times given")
            writer.close()
        write_episode(self.sink, episode, self.streamed)
        write_group(self.sink, GROUP, self._statistics.finish(episode, self.streamed))
        self.sink.sync()
        size = sum(entry.size for entry in self.sink.entries)
        return Manifest(info=episode_info(episode, size), files=tuple(self.sink.entries))

    def discard(self) -> None:
        """Remove everything written; safe to call twice."""
        self.journal.remove()
        shutil.rmtree(self.sink.root, ignore_errors=True)

    def abandon(self) -> None:
        """Remove everything, unless something was flushed that ``data repair`` can recover."""
        if not self.journal.flushed:
            self.discard()


def is_frames(spec: SignalSpec) -> bool:
    """Whether samples of this signal are large enough to be streamed in chunks."""
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize >= FRAME_BYTES


@dataclass(frozen=True, slots=True)
class PreparedEpisode:
    """A complete, durable episode that waits aside for its commit."""

    folder: Path
    manifest: Manifest

    def discard(self) -> None:
        """Remove it; nobody may commit it any more."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Drafts:
    """The staging folder of a store, to draft episodes in; see ``EpisodeStore.drafts``.

    ``store``: its name, for messages.
    """

    def __init__(self, staging: Path, store: str) -> None:
        self._staging, self._store = staging, store

    def begin(self, codecs: Mapping[str, FrameCodec] | None = None) -> EpisodeDraft:
        """Start an episode aside; nothing of it exists before its commit.

        ``codecs``: how cameras are stored; those that it does not name are lossless.
        """
        return EpisodeDraft(self._staging / f"{uuid.uuid4().hex}.tmp", codecs)

    def prepare(self, draft: EpisodeDraft, episode: Episode) -> PreparedEpisode:
        """Write the rest of ``draft`` and make it durable.

        On any error it is removed, unless it was flushed and can be recovered.
        """
        with undo_unless_flushed(self._store, draft.sink.root):
            return PreparedEpisode(draft.sink.root, draft.finish(episode))

    def prepare_copy(self, draft: EpisodeDraft, info: EpisodeInfo) -> PreparedEpisode:
        """Make a draft durable whose sink got all files of an episode that was committed before."""
        with undo_unless_flushed(self._store, draft.sink.root):
            draft.sink.sync()
            size = sum(entry.size for entry in draft.sink.entries)
            manifest = Manifest(
                dataclasses.replace(info, size_bytes=size), tuple(draft.sink.entries)
            )
            return PreparedEpisode(draft.sink.root, manifest)


@contextmanager
def undo_unless_flushed(store: str, folder: Path) -> Generator[None]:
    """Remove the draft ``folder`` after an error, unless it was flushed and can be recovered."""
    try:
        with full_disk_told(store):
            yield
    except BaseException:
        if not Journal(folder.with_suffix(".journal")).flushed:
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def full_disk_told(store: str) -> Generator[None]:
    """A full disk as a :class:`StoreError`."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise StoreError(
            f"{store}: the disk is full; this was not saved, earlier commits are safe"
        ) from error


def episode_info(episode: Episode, size: int) -> EpisodeInfo:
    """What a listing shows of ``episode``, whose files have ``size`` bytes together."""
    meta = episode.meta
    return EpisodeInfo(
        id=episode.id,
        steps=episode.steps,
        kind=meta.kind,
        task=meta.task,
        success=episode.success,
        score=episode.score,
        duration_s=episode.duration_s,
        rate_hz=meta.embodiment.rate_hz,
        agent=meta.agent,
        env=meta.env,
        operator=meta.operator,
        start_wall_ns=meta.start_wall_ns,
        signals=tuple(sorted(episode.streams)),
        size_bytes=size,
    )
