"""Appending to a store: drafts, the commit, and what to do with a killed writer's leftovers."""

from __future__ import annotations

import dataclasses
import errno
import logging
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.data.chunks import (
    FRAME_BYTES,
    FRAME_ROWS,
    ArrayWriter,
    FileSink,
    fsync_path,
)
from robolearn.data.episode import Episode, EpisodeInfo
from robolearn.data.layout import write_episode
from robolearn.data.manifest import (
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    PENDING_FILE,
    TEMPORARY,
    LogEntry,
    Manifest,
    Pending,
    append_line,
    manifest_bytes,
    next_entry,
    parse_log,
    pending_bytes,
    read_pending,
    replace_file,
    sha256,
)
from robolearn.data.validate import check_samples, validate_episode
from robolearn.errors import StoreCorruptError, StoreError
from robolearn.spec import SignalSpec
from robolearn.types import SampleBlock

_log = logging.getLogger(__name__)


class EpisodeDraft:
    """An episode being written aside. Frames go to disk as they come, the rest at the commit."""

    def __init__(self, folder: Path) -> None:
        self.sink = FileSink(folder)
        self._frames: dict[str, ArrayWriter] = {}
        folder.mkdir(parents=True)

    @property
    def streamed(self) -> frozenset[str]:
        """Signals whose values were written already."""
        return frozenset(self._frames)

    def add_frames(self, spec: SignalSpec, block: SampleBlock) -> None:
        """Append samples of a frame signal (see :func:`is_frames`) in order."""
        check_samples(spec, block)
        writer = self._frames.get(spec.name)
        if writer is None:
            path = f"signals/{spec.name}/value"
            writer = ArrayWriter(self.sink, path, spec.shape, block.value.dtype, FRAME_ROWS)
            self._frames[spec.name] = writer
        writer.append(block.value)

    def finish(self, episode: Episode) -> Manifest:
        """Write everything else, make it durable, and list it."""
        validate_episode(episode, self.streamed)
        for name, writer in self._frames.items():
            rows = len(episode.streams[name].t_ns)
            if writer.rows != rows:
                raise StoreError(f"{name}: {writer.rows} frames written, {rows} times given")
            writer.close()
        write_episode(self.sink, episode, self.streamed)
        self.sink.sync()
        size = sum(entry.size for entry in self.sink.entries)
        return Manifest(info=_info(episode, size), files=tuple(self.sink.entries))

    def discard(self) -> None:
        """Remove everything written; safe to call twice."""
        shutil.rmtree(self.sink.root, ignore_errors=True)


def is_frames(spec: SignalSpec) -> bool:
    """Whether samples of this signal are large enough to be streamed in chunks of 16."""
    size = int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(spec.dtype).itemsize
    return size >= FRAME_BYTES


@dataclass(frozen=True, slots=True)
class PreparedEpisode:
    """A complete, durable episode that waits aside for its commit."""

    folder: Path
    manifest: Manifest


class StoreWriter:
    """Appends episodes while the store's lock is held (see ``EpisodeStore.writer``)."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._entries: tuple[LogEntry, ...] = ()
        self._resolve_pending()
        _clear(store / TEMPORARY)

    def append(self, episode: Episode) -> str:
        """Write and commit an episode; returns its id. Durable when this returns."""
        return self.commit(self.prepare(self.begin(), episode))

    def begin(self) -> EpisodeDraft:
        """Start an episode aside; nothing of it exists before :meth:`commit`."""
        return EpisodeDraft(self._store / TEMPORARY / f"{uuid.uuid4().hex}.tmp")

    def prepare(self, draft: EpisodeDraft, episode: Episode) -> PreparedEpisode:
        """Write the rest of ``draft`` and make it durable; on any error it is removed."""
        with self._undo(draft.sink.root):
            return PreparedEpisode(draft.sink.root, draft.finish(episode))

    def commit(self, prepared: PreparedEpisode) -> str:
        """Give a prepared episode its id and commit it: from here on it exists."""
        with self._undo(prepared.folder):
            if (self._store / PENDING_FILE).exists():
                self._resolve_pending()
            episode_id = f"ep_{len(self._entries) - 1:06d}"
            self._commit(prepared.folder, episode_id, _named(prepared.manifest, episode_id))
        return episode_id

    @contextmanager
    def _undo(self, folder: Path) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise StoreError(
                    f"{self._store}: the disk is full; the episode was not saved,"
                    " earlier ones are safe"
                ) from error
            raise

    def close(self) -> None:
        """Remove leftovers of drafts that were never committed."""
        _clear(self._store / TEMPORARY)

    def _commit(self, folder: Path, episode_id: str, manifest: Manifest) -> None:
        data = manifest_bytes(manifest)
        name = f"{MANIFESTS}/{episode_id}.json"
        entry = next_entry(self._entries[-1], episode_id, {name: sha256(data)})
        log = self._store / LOG_FILE
        pending = Pending(
            id=episode_id,
            manifest_sha256=sha256(data),
            log_size=log.stat().st_size,
            line=entry.line().decode(),
        )
        temporary = self._store / TEMPORARY
        replace_file(self._store / PENDING_FILE, pending_bytes(pending), temporary / "pending.json")
        folder.rename(self._store / EPISODES / episode_id)
        fsync_path(self._store / EPISODES)
        replace_file(self._store / name, data, temporary / "manifest.json")
        append_line(log, entry.line(), pending.log_size)
        self._entries = (*self._entries, entry)
        (self._store / PENDING_FILE).unlink()

    def _resolve_pending(self) -> None:
        """Finish a commit whose manifest is there, undo one whose manifest is not."""
        log = self._store / LOG_FILE
        pending = read_pending(self._store)
        if pending is not None:
            manifest = self._store / MANIFESTS / f"{pending.id}.json"
            if manifest.exists():
                if sha256(manifest.read_bytes()) != pending.manifest_sha256:
                    raise StoreCorruptError(f"{manifest} was altered; run 'robolearn data check'")
                append_line(log, pending.line.encode(), pending.log_size)
                _log.warning("finished the interrupted commit of %s", pending.id)
            else:
                if log.stat().st_size != pending.log_size:
                    raise StoreCorruptError(
                        f"{manifest} is missing although the commit log names it"
                    )
                shutil.rmtree(self._store / EPISODES / pending.id, ignore_errors=True)
                fsync_path(self._store / EPISODES)
                _log.warning("removed %s, which was never committed", pending.id)
            (self._store / PENDING_FILE).unlink()
            fsync_path(self._store)
        self._entries = self._read_log()

    def _read_log(self) -> tuple[LogEntry, ...]:
        log = self._store / LOG_FILE
        try:
            return parse_log(log.read_bytes(), log)
        except FileNotFoundError as error:
            raise StoreCorruptError(f"{log} is missing: the commit log was lost") from error


def _named(manifest: Manifest, episode_id: str) -> Manifest:
    return Manifest(info=dataclasses.replace(manifest.info, id=episode_id), files=manifest.files)


def _clear(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def _info(episode: Episode, size: int) -> EpisodeInfo:
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
