"""The episode store: a folder of committed, immutable episodes.

An episode exists exactly when its manifest does. Writing goes aside first, is made durable, and is
committed by one atomic rename, so that a kill or power loss at any instant costs at most the
episode in progress. Layout and commit rule: ``docs/data_format.md``.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robolearn.data.annotations import (
    Annotated,
    Annotation,
    annotated_info,
    annotated_meta,
    combine,
    parse_annotation,
)
from robolearn.data.chunks import fsync_path, json_bytes
from robolearn.data.episode import Episode, EpisodeInfo, EpisodeMeta
from robolearn.data.layout import read_episode, read_meta
from robolearn.data.lock import StoreLock
from robolearn.data.manifest import (
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    PENDING_FILE,
    STORE_FILE,
    TEMPORARY,
    LogEntry,
    Manifest,
    is_episode,
    next_entry,
    parse_entry,
    parse_log,
    parse_manifest,
    read_pending,
    record_name,
    sha256,
    trashed,
)
from robolearn.data.writer import StoreWriter
from robolearn.errors import StoreCorruptError, StoreError, StoreLockedError, did_you_mean

FORMAT = "robolearn-episode-store"
VERSION = 1
EPISODES_META = f"{EPISODES}/zarr.json"

_log = logging.getLogger(__name__)


class EpisodeStore:
    """Reads committed episodes; :meth:`writer` appends. Cheap to construct, safe to keep open."""

    def __init__(self, path: Path, store_id: str) -> None:
        self.path = path
        self.uuid = store_id
        self._log_stamp: tuple[int, int] = (-1, -1)
        self._entries: tuple[LogEntry, ...] = ()
        self._hashes: dict[str, str] = {}
        self._said: tuple[int, dict[str, Annotated]] = (0, {})
        self._records: dict[str, Annotation] = {}

    @staticmethod
    def create(
        path: str | Path, fill: Callable[[EpisodeStore], None] | None = None
    ) -> EpisodeStore:
        """Make a new store at ``path`` (absent, or an empty folder), atomically.

        It is empty, or holds what ``fill`` writes into it before it appears at ``path``.
        """
        target = Path(path).expanduser().resolve()
        if target.exists() and not target.is_dir():
            raise StoreError(f"{target} is a file; an episode store is a folder")
        if target.exists() and any(target.iterdir()):
            raise StoreError(f"{target} exists already; open it, or choose a new folder")
        aside = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}.creating"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep_creations(target)
            store_id = _write_empty(aside)
            if fill is not None:
                fill(EpisodeStore(aside, store_id))
            aside.rename(target)
            fsync_path(target.parent)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if isinstance(error, StoreError) or not isinstance(error, OSError):
                raise
            if target.is_dir() and any(target.iterdir()):
                raise StoreError(
                    f"{target} exists already; open it, or choose a new one"
                ) from error
            raise StoreError(
                f"cannot create a store at {target}: {error.strerror or error};"
                " choose a folder that you may write to"
            ) from error
        return EpisodeStore(target, store_id)

    @staticmethod
    def open(path: str | Path) -> EpisodeStore:
        """Open an existing store; a foreign folder or a newer format is a :class:`StoreError`."""
        target = Path(path).expanduser().resolve()
        if not target.exists():
            raise StoreError(
                f"no episode store at {target}: the folder does not exist; make one with"
                " 'robolearn data import' or 'robolearn collect'"
            )
        raw = _read_identity(target)
        return EpisodeStore(target, str(raw["uuid"]))

    @staticmethod
    def open_or_create(path: str | Path) -> EpisodeStore:
        """Open ``path``, or create it where nothing (or an empty folder) is."""
        target = Path(path).expanduser().resolve()
        if target.is_dir() and any(target.iterdir()):
            return EpisodeStore.open(target)
        try:
            return EpisodeStore.create(target)
        except StoreError:
            if (target / STORE_FILE).exists():  # another process was faster
                return EpisodeStore.open(target)
            raise

    def ids(self) -> tuple[str, ...]:
        """Ids of all committed episodes that were not removed, oldest first."""
        entries = self.log()
        gone = trashed(entries)
        return tuple(e.id for e in entries if is_episode(e.id) and e.id not in gone)

    def trash(self) -> tuple[str, ...]:
        """Ids of removed episodes, oldest first."""
        return tuple(sorted(trashed(self.log())))

    def annotations(self) -> tuple[Annotation, ...]:
        """Every record about episodes: annotations, undos, removals, restorations; oldest first.

        A damaged record raises :class:`StoreCorruptError`.
        """
        return tuple(self._record(e) for e in self.log()[1:] if not is_episode(e.id))

    def annotated(self, episode_id: str) -> Annotated:
        """What people said about an episode, put together.

        A damaged record raises :class:`StoreCorruptError` for the episodes it is about.
        """
        log = self.log()
        if self._said[0] != len(log):
            entries = [e for e in log if e.id.startswith("an_")]
            try:
                said = combine(self._record(e) for e in entries)
            except StoreCorruptError:
                mine = [e for e in entries if episode_id in e.episodes]
                return combine(self._record(e) for e in mine).get(episode_id, Annotated())
            self._said = (len(log), said)
        return self._said[1].get(episode_id, Annotated())

    def _record(self, entry: LogEntry) -> Annotation:
        """An annotation, checked against the log."""
        if entry.id not in self._records:
            name = record_name(entry.id)
            where = self.path / name
            try:
                data = where.read_bytes()
            except FileNotFoundError as error:
                raise StoreCorruptError(f"{where} is missing: an annotation was lost") from error
            if sha256(data) != entry.files[name]:
                raise StoreCorruptError(f"{where} was altered; run 'robolearn data check'")
            self._records[entry.id] = parse_annotation(data, where)
        return self._records[entry.id]

    def list(self, *, strict: bool = True) -> tuple[EpisodeInfo, ...]:
        """What a listing shows, oldest first.

        Outcomes as annotated. A damaged manifest or annotation raises
        :class:`StoreCorruptError`; with ``strict=False`` the episode is left out and logged.
        """
        found: list[EpisodeInfo] = []
        for episode_id in self.ids():
            try:
                found.append(self.info(episode_id))
            except StoreCorruptError as error:
                if strict:
                    raise
                _log.warning("left out: %s", error)
        return tuple(found)

    def info(self, episode_id: str) -> EpisodeInfo:
        """The listing of one episode, with its annotations."""
        return annotated_info(self.manifest(episode_id).info, self.annotated(episode_id))

    def manifest(self, episode_id: str) -> Manifest:
        """All files of one committed episode, checked against the commit log."""
        where = self.path / MANIFESTS / f"{episode_id}.json"
        self.log()
        expected = self._hashes.get(episode_id)
        try:
            data = where.read_bytes()
        except FileNotFoundError as error:
            if episode_id in self.trash():
                raise StoreError(
                    f"{episode_id} is in the trash; 'robolearn data restore {self.path}"
                    f" {episode_id}' brings it back"
                ) from error
            if expected is not None:
                raise StoreCorruptError(
                    f"{where} is missing: the manifest of a committed episode was lost"
                ) from error
            ids = self.ids()
            raise StoreError(
                f"{self.path} has no episode '{episode_id}'.{did_you_mean(episode_id, ids)}"
                f" It has {len(ids)}" + (f": {ids[0]} to {ids[-1]}" if ids else "")
            ) from error
        if expected is not None and expected != sha256(data):
            raise StoreCorruptError(f"{where} was altered; run 'robolearn data check'")
        return parse_manifest(data, where)

    def meta(self, episode_id: str) -> EpisodeMeta:
        """Metadata of one episode without its arrays, with the outcome as annotated."""
        files = self.manifest(episode_id).by_path()
        meta = read_meta(self.path / EPISODES / episode_id, files)
        return annotated_meta(meta, self.annotated(episode_id))

    def read(self, episode_id: str, signals: Collection[str] | None = None) -> Episode:
        """Read one episode; ``signals`` names the streams to load (None: all, images too).

        Sizes and chunk checksums are verified; damage raises :class:`StoreCorruptError`. The
        outcome is the annotated one where there is one.
        """
        files = self.manifest(episode_id).by_path()
        episode = read_episode(self.path / EPISODES / episode_id, files, signals, episode_id)
        meta = annotated_meta(episode.meta, self.annotated(episode_id))
        return dataclasses.replace(episode, meta=meta)

    def content_hash(self) -> str:
        """SHA-256 over all episodes and what was said about them: equal for equal content.

        An annotation changes it, taking the annotation back restores it.
        """
        ids = self.ids()
        rows: list[list[Any]] = [[i, self._hashes[i]] for i in ids]
        for row in rows:
            said = self.annotated(str(row[0]))
            if said != Annotated():
                row.append(dataclasses.asdict(said))
        return sha256(json_bytes(rows))

    def log(self) -> tuple[LogEntry, ...]:
        """The commit log, the store's own line first; a broken chain raises.

        A record that is in place counts although its line may still be missing.
        """
        where = self.path / LOG_FILE
        pending = read_pending(self.path)
        try:
            stat = where.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._log_stamp:
                data = where.read_bytes()
                if pending is not None and len(data) < pending.log_size + len(pending.line):
                    data = data[: pending.log_size]  # the line in progress may be torn
                self._entries, self._log_stamp = parse_log(data, where), stamp
                self._hashes = _manifest_hashes(self._entries)
        except FileNotFoundError as error:
            raise StoreCorruptError(f"{where} is missing: the commit log was lost") from error
        if pending is None:
            return self._entries
        known = tuple(e for e in self._entries if e.id != pending.id)
        if not (self.path / record_name(pending.id)).exists():
            return known
        entry = parse_entry(pending.line.encode(), str(self.path / PENDING_FILE))
        self._hashes |= _manifest_hashes((entry,))
        return (*known, entry)

    @contextmanager
    def writer(self) -> Generator[StoreWriter]:
        """Lock the store, finish or undo what a killed writer left, and append.

        A live second writer raises :class:`StoreLockedError` at once.
        """
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise StoreError(f"{self.path} is read-only; copy the store to a writable place")
        lock = StoreLock(self.path)
        if os.access(self.path.parent, os.W_OK | os.X_OK):
            _sweep_creations(self.path)
        try:
            writer = StoreWriter(self.path)
            try:
                yield writer
            finally:
                writer.close()
        finally:
            lock.release()


def _manifest_hashes(entries: Iterable[LogEntry]) -> dict[str, str]:
    return {e.id: e.files[record_name(e.id)] for e in entries if is_episode(e.id)}


def _read_identity(path: Path) -> dict[str, Any]:
    file = path / STORE_FILE
    try:
        raw = json.loads(file.read_bytes())
        name, version = raw["format"], int(raw["version"])
    except FileNotFoundError as error:
        raise _no_identity(path) from error
    except NotADirectoryError as error:
        raise StoreError(f"{path} is a file; an episode store is a folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorruptError(f"{file} is damaged: {error}") from error
    if name != FORMAT:
        raise StoreError(f"{path} is not an episode store: {STORE_FILE} says format '{name}'")
    if version > VERSION:
        raise StoreError(
            f"{path} has format version {version}, this robolearn reads up to {VERSION}:"
            " upgrade robolearn"
        )
    if version < 1 or not isinstance(raw.get("uuid"), str):
        raise StoreCorruptError(f"{file} is damaged: no valid version and uuid")
    return raw


def _no_identity(path: Path) -> StoreError:
    if (path / LOG_FILE).exists() or (path / MANIFESTS).is_dir():
        return StoreCorruptError(f"{path / STORE_FILE} is missing: the store's metadata was lost")
    if (path / ".zgroup").exists():
        return StoreError(
            f"{path} is a zarr v2 folder, not an episode store;"
            f" use 'robolearn data import {path} --out STORE'"
        )
    inside = sorted(p.parent.name for p in path.glob(f"*/{STORE_FILE}"))
    hint = f"; did you mean '{path / inside[0]}'?" if inside else ""
    return StoreError(f"{path} is not an episode store (no {STORE_FILE}){hint}")


def _write_empty(folder: Path) -> str:
    """A complete empty store, durable."""
    store_id = uuid.uuid4().hex
    identity = {
        "format": FORMAT,
        "version": VERSION,
        "uuid": store_id,
        "created_wall_ns": time.time_ns(),
    }
    group: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    contents = {STORE_FILE: json_bytes(identity), EPISODES_META: json_bytes(group)}
    first = next_entry(None, "", {name: sha256(data) for name, data in contents.items()})
    contents[LOG_FILE] = first.line()
    for sub in (EPISODES, MANIFESTS, TEMPORARY):
        (folder / sub).mkdir(parents=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        fsync_path(folder / name)
    for sub in (EPISODES, MANIFESTS, TEMPORARY, "."):
        fsync_path(folder / sub)
    return store_id


def _sweep_creations(target: Path) -> None:
    """Remove what earlier creations of this store left when they were killed."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.creating"):
        try:
            old = time.time() - left.stat().st_mtime > 60
            lock = StoreLock(left)
        except (StoreLockedError, FileNotFoundError):
            continue  # another process is filling it, or has just finished
        if old:
            shutil.rmtree(left, ignore_errors=True)
        lock.release()
