"""Appends to a store: drafts, the commit, and what to do with a killed writer's leftovers."""

from __future__ import annotations

import dataclasses
import errno
import logging
import shutil
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.data.episode import Episode, EpisodeInfo, EpisodeMeta
from robolearn.data.store.annotations import (
    Annotation,
    active,
    annotation_bytes,
    check_annotation,
    parse_annotation,
    says_nothing,
)
from robolearn.data.store.chunks import (
    FRAME_BYTES,
    ArrayWriter,
    FileSink,
    rows_per_chunk,
    write_group,
)
from robolearn.data.store.commit import Commits
from robolearn.data.store.episode_stats import GROUP, EpisodeStatistics
from robolearn.data.store.journal import Journal, recoverable
from robolearn.data.store.layout import write_episode
from robolearn.data.store.manifest import (
    LogEntry,
    Manifest,
    is_episode,
    manifest_bytes,
    near_episode,
    purged,
    record_name,
    trashed,
)
from robolearn.data.store.picture_codec import LOSSLESS, EncodedWriter, FrameCodec, decode_frame
from robolearn.data.store.storage import ObjectPath
from robolearn.data.store.validate import check_samples, validate_episode
from robolearn.errors import CommitConflictError, DataError, StoreError, did_you_mean
from robolearn.spec import SignalSpec
from robolearn.types import SampleBlock, Signals

_log = logging.getLogger(__name__)


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
            self._encoder(spec).append(block.value, block.valid)
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
    size = int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(spec.dtype).itemsize
    return size >= FRAME_BYTES


@dataclass(frozen=True, slots=True)
class PreparedEpisode:
    """A complete, durable episode that waits aside for its commit."""

    folder: Path
    manifest: Manifest


class StoreWriter:
    """Appends episodes while the store's lock is held (see ``EpisodeStore.writer``)."""

    def __init__(self, store: Path | ObjectPath, staging: Path, log: Commits) -> None:
        self._store, self._staging, self._log = store, staging, log
        staging.mkdir(exist_ok=True)
        _clear(staging)
        killed = len(recoverable(staging))
        if killed:
            _log.warning(
                "%d killed recordings in %s: see 'robolearn data repair %s'", killed, store, store
            )

    def append(self, episode: Episode) -> str:
        """Write and commit an episode; returns its id. Durable when this returns."""
        return self.commit(self.prepare(self.begin(), episode))

    def begin(self, codecs: Mapping[str, FrameCodec] | None = None) -> EpisodeDraft:
        """Start an episode aside; nothing of it exists before :meth:`commit`.

        ``codecs``: how cameras are stored; those that it does not name are lossless.
        """
        return EpisodeDraft(self._staging / f"{uuid.uuid4().hex}.tmp", codecs)

    def prepare(self, draft: EpisodeDraft, episode: Episode) -> PreparedEpisode:
        """Write the rest of ``draft`` and make it durable.

        On any error it is removed, unless it was flushed and can be recovered.
        """
        with self._undo(draft.sink.root):
            return PreparedEpisode(draft.sink.root, draft.finish(episode))

    def prepare_copy(self, draft: EpisodeDraft, info: EpisodeInfo) -> PreparedEpisode:
        """Make a draft durable whose sink got all files of an episode that was committed before."""
        with self._undo(draft.sink.root):
            draft.sink.sync()
            size = sum(entry.size for entry in draft.sink.entries)
            manifest = Manifest(
                dataclasses.replace(info, size_bytes=size), tuple(draft.sink.entries)
            )
            return PreparedEpisode(draft.sink.root, manifest)

    def commit(self, prepared: PreparedEpisode) -> str:
        """Give a prepared episode its id and commit it: from here on it exists."""
        with self._undo(prepared.folder):
            self._log.refresh()
            while True:
                episode_id = f"ep_{self._next('ep_'):06d}"
                folder = self._log.folder(episode_id, prepared.manifest)
                data = manifest_bytes(_named(prepared.manifest, episode_id, folder))
                try:
                    self._log.put(episode_id, data, folder=prepared.folder)
                    break
                except CommitConflictError:
                    self._log.refresh()  # another machine was faster: the next id
        # Renamed into the store, or uploaded from here.
        shutil.rmtree(prepared.folder, ignore_errors=True)
        Journal(prepared.folder.with_suffix(".journal")).remove()
        return episode_id

    def commit_copy(self, entry: LogEntry, data: bytes, folder: Path | None) -> None:
        """Commit a record of another store as it is there, after the same lines."""
        self._log.refresh()
        with self._full_disk():
            self._log.put(entry.id, data, episodes=entry.episodes, folder=folder)
        if self._log.entries[-1] != entry:
            raise StoreError(f"{self._store} was written by another writer meanwhile; try again")

    def annotate(self, annotation: Annotation) -> str:
        """Say something about episodes; returns the id of the record. Durable on return.

        An unknown or removed episode, or a record that says nothing, is a :class:`DataError`.
        """
        self._log.refresh()
        if annotation.undoes:
            annotation = dataclasses.replace(
                annotation, episodes=self._undoable(annotation.undoes).episodes
            )
        check_annotation(annotation)
        if says_nothing(annotation):
            raise DataError("the annotation says nothing: give an outcome, labels, a note, a split")
        self._present(annotation.episodes)
        return self._record("an", annotation)

    def remove(self, episodes: tuple[str, ...], author: str, note: str = "") -> str:
        """Move episodes to the trash; returns the id of the record."""
        self._log.refresh()
        record = Annotation(episodes, author, note=note)
        check_annotation(record)
        self._present(episodes)
        return self._record("rm", record)

    def restore(self, episodes: tuple[str, ...], author: str, note: str = "") -> str:
        """Bring removed episodes back from the trash; returns the id of the record."""
        self._log.refresh()
        record = Annotation(episodes, author, note=note)
        check_annotation(record)
        gone = trashed(self._log.entries)
        wrong = [e for e in episodes if e not in gone]
        if wrong:
            raise DataError(
                f"not in the trash: {', '.join(wrong)}; in it: {', '.join(sorted(gone)) or 'none'}"
            )
        return self._record("rs", record)

    def empty_trash(
        self, author: str, note: str = "", episodes: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Delete removed episodes (all, or those named) for good; returns their ids.

        This cannot be undone; the log keeps who did it and when.
        """
        self._log.refresh()
        gone = trashed(self._log.entries)
        wrong = [e for e in episodes if e not in gone]
        if wrong:
            raise DataError(
                f"not in the trash: {', '.join(wrong)}; in it: {', '.join(sorted(gone)) or 'none'}"
            )
        chosen = episodes or tuple(sorted(gone))
        if chosen:
            record = Annotation(chosen, author, note=note)
            check_annotation(record)
            self._record("pg", record)
        return chosen

    def _record(self, prefix: str, annotation: Annotation) -> str:
        while True:
            number = max(len(self._log.entries), self._next("an_", "rm_", "rs_", "pg_"))
            record_id = f"{prefix}_{number:06d}"
            full = dataclasses.replace(annotation, id=record_id, wall_ns=time.time_ns())
            try:
                with self._full_disk():
                    self._log.put(record_id, annotation_bytes(full), episodes=full.episodes)
                return record_id
            except CommitConflictError:
                self._log.refresh()

    def _next(self, *prefixes: str) -> int:
        """The number after the highest one; a log that was rebuilt may have lost lines before."""
        used = [e.id.split("_")[1] for e in self._log.entries if e.id.startswith(prefixes)]
        return max((int(number) for number in used), default=-1) + 1

    def _present(self, episodes: tuple[str, ...]) -> None:
        """Every episode is committed and not removed."""
        ids = [entry.id for entry in self._log.entries if is_episode(entry.id)]
        gone, deleted = trashed(self._log.entries), purged(self._log.entries)
        for episode in episodes:
            if episode in deleted:
                raise DataError(f"{episode} was deleted from the trash for good")
            if episode not in ids:
                raise DataError(
                    f"{self._store} has no episode '{episode}'.{near_episode(episode, ids)}"
                    f" It has {len(ids)}" + (f": {ids[0]} to {ids[-1]}" if ids else "")
                )
            if episode in gone:
                raise DataError(f"{episode} is in the trash; 'robolearn data restore' first")

    def _undoable(self, record_id: str) -> Annotation:
        """The standing annotation ``record_id``."""
        ids = [e.id for e in self._log.entries if e.id.startswith("an_")]
        if record_id not in ids:
            hint = " Use 'robolearn data restore'." if record_id.startswith("rm_") else ""
            raise DataError(
                f"no annotation '{record_id}' to undo.{did_you_mean(record_id, ids)}{hint}"
            )
        files = [self._store / record_name(i) for i in ids]
        history = [parse_annotation(f.read_bytes(), f) for f in files]
        for record in active(history):
            if record.id == record_id:
                return record
        raise DataError(f"{record_id} is undone already")

    @contextmanager
    def _undo(self, folder: Path) -> Generator[None]:
        try:
            with self._full_disk():
                yield
        except BaseException:
            if not Journal(folder.with_suffix(".journal")).flushed:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    @contextmanager
    def _full_disk(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise StoreError(
                f"{self._store}: the disk is full; this was not saved, earlier commits are safe"
            ) from error

    def close(self) -> None:
        """Remove leftovers of drafts that were never committed and cannot be recovered."""
        _clear(self._staging)


def _named(manifest: Manifest, episode_id: str, folder: str) -> Manifest:
    return Manifest(dataclasses.replace(manifest.info, id=episode_id), manifest.files, folder)


def _clear(folder: Path) -> None:
    kept = {part for journal in recoverable(folder) for part in (journal.folder, journal.draft)}
    for left in folder.iterdir():
        if left in kept:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


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
