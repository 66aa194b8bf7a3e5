"""Keeps committed, immutable episodes in a folder or on an object store.

An episode exists exactly when its manifest does. In a folder, writing goes aside first, is made
durable, and is committed by one atomic rename; on an object store the manifest is put last, if it
is not there. A kill or power loss at any instant costs at most the episode in progress. Layout and
commit rule: ``docs/data_format.md``.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robolearn.data.episode import Episode, EpisodeInfo, EpisodeMeta
from robolearn.data.reading.cache import user_cache_dir
from robolearn.data.store.annotations import (
    Annotated,
    Annotation,
    annotated_info,
    annotated_meta,
    combine,
    parse_annotation,
)
from robolearn.data.store.chunks import fsync_path, json_bytes
from robolearn.data.store.commit import ADVICE, CommitLog, LogReader
from robolearn.data.store.drafts import Drafts
from robolearn.data.store.identity import put_empty, read_identity, sweep_creations, write_empty
from robolearn.data.store.layout import files_of, read_episode, read_meta
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.manifest import (
    EPISODES,
    FOLDERS,
    STORE_FILE,
    TEMPORARY,
    LogEntry,
    Manifest,
    confined_place,
    is_episode,
    near_episode,
    parse_manifest,
    purged,
    record_name,
    sha256,
    trashed,
)
from robolearn.data.store.object_commit import ObjectCommits, ObjectLog
from robolearn.data.store.reconstruct import reconstruct_identity
from robolearn.data.store.storage import ObjectPath, Place, fetch, locate, read_plain
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import StoreCorruptError, StoreError

_log = logging.getLogger(__name__)


class EpisodeStore:
    """Reads committed episodes; :meth:`writer` appends. Cheap to construct, safe to keep open."""

    def __init__(self, path: Path | ObjectPath, store_id: str) -> None:
        self.path = path
        self.uuid = store_id
        self._damaged_identity = ""
        self._reader = LogReader(path) if isinstance(path, Path) else ObjectLog(path)
        self._entries: tuple[LogEntry, ...] = ()
        self._hashes: dict[str, str] = {}
        self._trashed: frozenset[str] = frozenset()
        self._purged: frozenset[str] = frozenset()
        self._fetched: dict[str, bytes] = {}
        self._said: tuple[int, dict[str, Annotated]] = (0, {})
        self._records: dict[str, Annotation] = {}

    @staticmethod
    def create(
        path: str | Path | ObjectPath,
        fill: Callable[[EpisodeStore], None] | None = None,
        identity: bytes | None = None,
    ) -> EpisodeStore:
        """Make a new store at ``path`` (absent, or an empty folder), atomically.

        It is empty, or holds what ``fill`` writes into it before it appears at ``path``; on an
        object store nothing is renamed, so there it appears first. ``identity``: the contents of
        ``store.json``, for a copy of another store.
        """
        target = locate(path)
        if isinstance(target, ObjectPath):
            put_empty(target, identity)
            made = EpisodeStore.open(target)
            if fill is not None:
                fill(made)
            return made
        if target.exists() and not target.is_dir():
            raise StoreError(f"{target} is a file; an episode store is a folder")
        if target.exists() and any(target.iterdir()):
            raise StoreError(f"{target} exists already; open it, or choose a new folder")
        around = next((p for p in target.parents if (p / STORE_FILE).is_file()), None)
        if around is not None:
            raise StoreError(f"{target} is inside the store {around}; choose a place beside it")
        aside = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}.creating"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            sweep_creations(target)
            write_empty(aside, identity)
            if fill is not None:
                fill(EpisodeStore.open(aside))
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
        return EpisodeStore.open(target)

    @staticmethod
    def open(path: str | Path | ObjectPath) -> EpisodeStore:
        """Open an existing store: a folder, or a URL such as ``s3://bucket/prefix``.

        A foreign folder or a newer format is a :class:`StoreError`.
        """
        target = locate(path)
        if isinstance(target, Path) and not target.exists():
            raise StoreError(
                f"no episode store at {target}: the folder does not exist; make one with"
                " 'robolearn data import' or 'robolearn collect'"
            )
        found = reconstruct_identity(target)
        damage = "" if found is None else f"{target / STORE_FILE} was altered or lost"
        if damage:
            _log.warning("%s; read all the same. %s", damage, ADVICE)
        raw = read_identity(target) if found is None else found
        for part in FOLDERS:
            confined_place(target, part)
        store = EpisodeStore(target, str(raw["uuid"]))
        store._damaged_identity = damage
        return store

    @staticmethod
    def open_or_create(path: str | Path | ObjectPath) -> EpisodeStore:
        """Open ``path``, or create it where nothing (or an empty folder) is."""
        target = locate(path)
        if isinstance(target, ObjectPath):
            try:
                put_empty(target)
            except StoreCorruptError:
                raise
            except StoreError:
                if not target.bucket.has(STORE_FILE):
                    raise
            return EpisodeStore.open(target)
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
        return self.ids_since(0)

    def ids_since(self, line: int) -> tuple[str, ...]:
        """Ids of the episodes committed from line ``line`` of :meth:`log` on that were not removed,
        oldest first: for a reader that follows what is appended.
        """
        entries = self.log()
        gone = self._trashed | self._purged
        return tuple(e.id for e in entries[line:] if is_episode(e.id) and e.id not in gone)

    def trash(self) -> tuple[str, ...]:
        """Ids of removed episodes, oldest first."""
        self.log()
        return tuple(sorted(self._trashed))

    def annotations(self) -> tuple[Annotation, ...]:
        """Every record about episodes: annotations, undos, removals, restorations; oldest first.

        A damaged record raises :class:`StoreCorruptError`.
        """
        return tuple(self._record(e) for e in self.log()[1:] if not is_episode(e.id))

    def annotated(self, episode_id: str) -> Annotated:
        """What people said about an episode, put together.

        A damaged record raises :class:`StoreCorruptError` for the episodes it is about.
        """
        try:
            return self.all_annotated().get(episode_id, Annotated())
        except StoreCorruptError:
            mine = [e for e in self.log() if e.id.startswith("an_") and episode_id in e.episodes]
            return combine(self._record(e) for e in mine).get(episode_id, Annotated())

    def all_annotated(self) -> Mapping[str, Annotated]:
        """What people said, by episode; of those that are not named nothing was said.

        A damaged record raises :class:`StoreCorruptError`.
        """
        log = self.log()
        if self._said[0] != len(log):
            combined = combine(self._record(e) for e in log if e.id.startswith("an_"))
            self._said = (len(log), combined)
        return self._said[1]

    def _record(self, entry: LogEntry) -> Annotation:
        """An annotation, checked against the log."""
        if entry.id not in self._records:
            name = record_name(entry.id)
            where = self.path / name
            try:
                data = self._fetched.get(name) or read_plain(where)
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
        ids = self.ids()
        self._prefetch(ids)
        for episode_id in ids:
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
        name = record_name(episode_id)
        where = self.path / name
        self.log()
        expected = self._hashes.get(episode_id)
        if episode_id in self._trashed:
            raise StoreError(
                f"{episode_id} is in the trash; 'robolearn data restore {self.path}"
                f" {episode_id}' brings it back"
            )
        if episode_id in self._purged:
            raise StoreError(f"{episode_id} was deleted from the trash of {self.path} for good")
        try:
            data = self._fetched.get(name) or read_plain(where)
        except FileNotFoundError as error:
            if expected is not None:
                raise StoreCorruptError(
                    f"{where} is missing: the manifest of a committed episode was lost"
                ) from error
            ids = self.ids()
            raise StoreError(
                f"{self.path} has no episode '{episode_id}'.{near_episode(episode_id, ids)}"
                f" It has {len(ids)}" + (f": {ids[0]} to {ids[-1]}" if ids else "")
            ) from error
        if expected is not None and expected != sha256(data):
            raise StoreCorruptError(f"{where} was altered; run 'robolearn data check'")
        manifest = parse_manifest(data, where)
        if manifest.info.id != episode_id:
            raise StoreCorruptError(f"{where} is the manifest of '{manifest.info.id}'")
        return manifest

    def manifest_hash(self, episode_id: str) -> str:
        """SHA-256 of the manifest of an episode as committed: equal for equal recordings."""
        self.log()
        return self._hashes.get(episode_id, "")

    def _prefetch(self, ids: Iterable[str]) -> None:
        """From an object store all manifests and annotations are got together, once."""
        if isinstance(self.path, Path):
            return
        wanted = [e.id for e in self.log()[1:] if not is_episode(e.id)]
        names = [record_name(i) for i in (*ids, *wanted)]
        missing = [n for n in names if n not in self._fetched]
        got = fetch(self.path, missing)
        self._fetched |= {n: (got / n).read_bytes() for n in missing if (got / n).exists()}

    def folder(self, episode_id: str) -> Place:
        """Where the files of an episode are: a Zarr v3 group; one that holds links is refused."""
        name = f"{EPISODES}/{self.manifest(episode_id).folder or episode_id}"
        return confined_place(self.path, name, whole=True)

    def meta(self, episode_id: str) -> EpisodeMeta:
        """Metadata of one episode without its arrays, with the outcome as annotated."""
        files = self.manifest(episode_id).by_path()
        meta = read_meta(self.folder(episode_id), files)
        return annotated_meta(meta, self.annotated(episode_id))

    def read(self, episode_id: str, signals: Collection[str] | None = None) -> Episode:
        """Read one episode; ``signals`` names the streams to load (None: all, images too).

        Sizes and chunk checksums are verified; damage raises :class:`StoreCorruptError`. The
        outcome is the annotated one where there is one.
        """
        files = self.manifest(episode_id).by_path()
        root = fetch(self.folder(episode_id), files_of(files, signals))
        episode = read_episode(root, files, signals, episode_id)
        meta = annotated_meta(episode.meta, self.annotated(episode_id))
        return dataclasses.replace(episode, meta=meta)

    def content_hash(self) -> str:
        """SHA-256 over all episodes and what was said about them: equal for equal content.

        An annotation changes it, taking the annotation back restores it.
        """
        ids = self.ids()
        rows: list[list[Any]] = [[i, self._hashes[i]] for i in ids]
        for row in rows:
            annotated = self.annotated(str(row[0]))
            if annotated != Annotated():
                row.append(dataclasses.asdict(annotated))
        return sha256(json_bytes(rows))

    def log(self) -> tuple[LogEntry, ...]:
        """The commit log, the store's own line first; a damaged one is put together.

        A record that is in place counts although its line may still be missing.
        """
        entries = self._reader.entries()
        if entries is not self._entries:
            # Most often it only became longer.
            known = len(self._entries) if entries[: len(self._entries)] == self._entries else 0
            fresh = {e.id: e.files[record_name(e.id)] for e in entries[known:] if is_episode(e.id)}
            self._hashes = self._hashes | fresh if known else fresh
            if not known or any(not is_episode(e.id) for e in entries[known:]):
                self._trashed, self._purged = trashed(entries), purged(entries)
            self._entries = entries
        return entries

    @property
    def damage(self) -> str:
        """What is wrong with ``store.json`` or the commit log; empty: nothing.

        Episodes are read all the same; what writes or copies the history is refused until
        ``robolearn data repair STORE --rebuild-log`` has made both anew.
        """
        self._reader.entries()
        return self._damaged_identity or self._reader.damage

    @property
    def staging(self) -> Path:
        """Where drafts and killed recordings lie: in the store, or on this machine's disk."""
        if isinstance(self.path, Path):
            return self.path / TEMPORARY
        return user_cache_dir() / "uploads" / self.uuid

    def drafts(self) -> Drafts:
        """Where episodes can be prepared without the lock, while some process holds it; that one
        commits them (:meth:`writer`).
        """
        self.staging.mkdir(parents=True, exist_ok=True)
        return Drafts(self.staging, str(self.path))

    def lock(self) -> StoreLock:
        """The lock of the one writer on this machine, held until it is released.

        A folder knows no other; writers of an object store on other machines meet at the
        conditional puts. A live second writer raises :class:`StoreLockedError` at once.
        """
        if isinstance(self.path, Path):
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise StoreError(f"{self.path} is read-only; copy the store to a writable place")
            return StoreLock(self.path)
        self.staging.mkdir(parents=True, exist_ok=True)
        return StoreLock(self.staging, str(self.path))

    @contextmanager
    def writer(self) -> Generator[StoreWriter]:
        """Lock the store, finish or undo what a killed writer left, and append.

        A live second writer raises :class:`StoreLockedError` at once.
        """
        if self._damaged_identity:
            raise StoreCorruptError(f"{self._damaged_identity}. {ADVICE}")
        lock = self.lock()
        if isinstance(self.path, Path) and os.access(self.path.parent, os.W_OK | os.X_OK):
            sweep_creations(self.path)
        try:
            commits = (
                CommitLog(self.path) if isinstance(self.path, Path) else ObjectCommits(self.path)
            )
            writer = StoreWriter(self.path, self.staging, commits)
            try:
                yield writer
            finally:
                writer.close()
        finally:
            lock.release()
