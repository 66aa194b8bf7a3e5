"""Commits one record, and settles a commit that a kill interrupted.

The record (a manifest or an annotation) renamed into its place is the commit. What has to happen
around it is written down before in ``pending.json``: a commit found pending is finished when its
record is there and undone when it is not.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from robolearn.data.store.chunks import fsync_path
from robolearn.data.store.manifest import (
    ANNOTATIONS,
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    PENDING_FILE,
    TEMPORARY,
    TRASH,
    LogEntry,
    Manifest,
    Pending,
    append_line,
    is_episode,
    needed_version,
    next_entry,
    parse_entry,
    parse_log,
    parse_manifest,
    pending_bytes,
    purged,
    read_pending,
    record_name,
    replace_file,
    sha256,
    trashed,
)
from robolearn.data.store.reconstruct import Reconstruction, reconstruct_log
from robolearn.data.store.storage import read_plain
from robolearn.errors import StoreCorruptError

ADVICE = "'robolearn data repair STORE --rebuild-log' makes it anew from them"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of a log: its lines, when the files were what they were (``stamp``), and of
    which file (``inode``) how many bytes (``size``) hold them; 0: they are no bytes of a file.
    """

    entries: tuple[LogEntry, ...] = ()
    stamp: tuple[int, ...] = ()
    inode: int = 0
    size: int = 0


@runtime_checkable
class Commits(Protocol):
    """How records become part of a store: :class:`CommitLog` in a folder, ``ObjectCommits``."""

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """The log as far as it is known here."""
        ...

    def folder(self, episode_id: str, manifest: Manifest) -> str:
        """The name of the folder that an episode gets; empty: its id."""
        ...

    def put(
        self,
        record_id: str,
        data: bytes,
        *,
        episodes: tuple[str, ...] = (),
        folder: Path | None = None,
    ) -> None:
        """Commit the record ``data``; ``folder`` becomes the episode that it is the manifest of.

        An id that another writer took first raises :class:`CommitConflictError`; nothing of the
        record exists then, and :meth:`refresh` learns what does.
        """
        ...

    def refresh(self) -> None:
        """Resolve interrupted commits and learn of other writers' ones."""
        ...


class LogReader:
    """The commit log of a store in a folder, as every reader sees it.

    ``damage`` says what is wrong with it, as far as :meth:`entries` has looked; empty: nothing.
    """

    def __init__(self, store: Path) -> None:
        self.damage = ""
        self._store = store
        # Replaced as a whole: threads that read at once never mix what they found.
        self._known = _Known()

    def entries(self) -> tuple[LogEntry, ...]:
        """All lines, the store's own first.

        A record that is in place counts although its line may still be missing. Where the log is
        damaged, it is put together from what is whole, with a warning: readers go on.
        """
        try:
            pending = read_pending(self._store)
            entries = self._lines(pending)
            self.damage = ""
        except StoreCorruptError as error:
            return self._reconstructed(error)
        if pending is None:
            return entries
        known = tuple(e for e in entries if e.id != pending.id)
        if not (self._store / record_name(pending.id)).exists():
            return known
        return (*known, parse_entry(pending.line.encode(), str(self._store / PENDING_FILE)))

    def _lines(self, pending: Pending | None) -> tuple[LogEntry, ...]:
        where = self._store / LOG_FILE
        try:
            stat = where.stat()
            known, stamp = self._known, (stat.st_mtime_ns, stat.st_size)
            if stamp != known.stamp:
                # A log only becomes longer, so what was read of it once is not read again.
                longer = known.inode == stat.st_ino and known.size < stat.st_size
                before = known if longer else _Known()
                entries, size = self._parsed(where, before, pending)
                known = self._known = _Known(entries, stamp, stat.st_ino, size)
        except FileNotFoundError as error:
            raise StoreCorruptError(f"{where} is missing: the commit log was lost") from error
        return known.entries

    def _parsed(
        self, where: Path, before: _Known, pending: Pending | None
    ) -> tuple[tuple[LogEntry, ...], int]:
        """The lines, those of ``before`` as they are known; and where the last one ends."""
        begin = before.size
        data = read_plain(where, begin)
        if pending is not None:
            line = pending.log_size - begin
            if not data[max(line, 0) :].startswith(pending.line.encode()):
                data = data[: max(line, 0)]  # the line in progress may be torn
        if not begin:
            return parse_log(data, where), len(data)
        try:
            return (*before.entries, *parse_log(data, where, before.entries)), begin + len(data)
        except StoreCorruptError:
            # Another log than the one that was begun with.
            return self._parsed(where, _Known(), pending)

    def _reconstructed(self, error: StoreCorruptError) -> tuple[LogEntry, ...]:
        """Lines from records, as long as the folders with records are what they were."""
        folders = ("", MANIFESTS, ANNOTATIONS, f"{TRASH}/{MANIFESTS}")
        files = [self._store / name for name in (*folders, LOG_FILE, PENDING_FILE)]
        stamp = tuple(f.stat().st_mtime_ns if f.exists() else 0 for f in files)
        known = self._known
        if stamp != known.stamp:
            known = self._known = _Known(reconstruct_log(self._store).entries, stamp)
        if self.damage != str(error):
            self.damage = str(error)
            _log.warning("%s; read from manifests and annotations instead. %s", error, ADVICE)
        return known.entries


class CommitLog:
    """The chain of commits of a store whose lock is held; construction resolves a pending one."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._entries: tuple[LogEntry, ...] = ()
        self.resolve()

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """Every line."""
        return self._entries

    def folder(self, episode_id: str, manifest: Manifest) -> str:
        """A folder is renamed to the episode's id."""
        del episode_id, manifest
        return ""

    def refresh(self) -> None:
        """Finish or undo what an error left; nobody else writes while the lock is held."""
        if (self._store / PENDING_FILE).exists():
            self.resolve()

    def put(
        self,
        record_id: str,
        data: bytes,
        *,
        episodes: tuple[str, ...] = (),
        folder: Path | None = None,
    ) -> None:
        """Commit the record ``data``; ``folder`` becomes the episode that it is the manifest of."""
        name = record_name(record_id)
        manifest = parse_manifest(data, name) if is_episode(record_id) else None
        needs = needed_version(record_id, manifest)
        entry = next_entry(self._entries[-1], record_id, {name: sha256(data)}, episodes, needs)
        named = "" if manifest is None or folder is None else manifest.folder
        log = self._store / LOG_FILE
        pending = Pending(
            id=record_id,
            sha256=sha256(data),
            log_size=log.stat().st_size,
            line=entry.line().decode(),
            draft="" if folder is None else folder.name,
            folder=named,
        )
        temporary = self._store / TEMPORARY
        target = self._store / name
        _make(target.parent)
        replace_file(self._store / PENDING_FILE, pending_bytes(pending), temporary / "pending.json")
        if folder is not None:
            folder.rename(self._store / EPISODES / (named or record_id))
            fsync_path(self._store / EPISODES)
        replace_file(target, data, temporary / "record.json")
        self._move(entry)
        append_line(log, entry.line(), pending.log_size)
        self._entries = (*self._entries, entry)
        (self._store / PENDING_FILE).unlink()

    def resolve(self) -> None:
        """Finish a commit whose record is there, undo one whose record is not.

        A ``pending.json`` that cannot be read, or zeros at the end of the log, as a power failure
        leaves them, are put right by what the records say; other damage of the log raises.
        """
        log = self._store / LOG_FILE
        try:
            pending = read_pending(self._store)
        except StoreCorruptError as error:
            self._settle(error)
            return
        if pending is not None:
            record = self._store / record_name(pending.id)
            entry = parse_entry(pending.line.encode(), str(self._store / PENDING_FILE))
            if record.exists():
                if sha256(read_plain(record)) != pending.sha256:
                    raise StoreCorruptError(f"{record} was altered; run 'robolearn data check'")
                self._move(entry)
                append_line(log, pending.line.encode(), pending.log_size)
                _log.warning("finished the interrupted commit of %s", pending.id)
            else:
                if read_plain(log)[pending.log_size :].strip(b"\0"):
                    raise StoreCorruptError(f"{record} is missing although the commit log names it")
                append_line(log, b"", pending.log_size)
                self._take_back(pending)
                _log.warning("undid %s, which was never committed", pending.id)
            (self._store / PENDING_FILE).unlink()
            fsync_path(self._store)
        if not log.exists():
            raise StoreCorruptError(f"{log} is missing: the commit log was lost. {ADVICE}")
        data = read_plain(log)
        try:
            self._entries = parse_log(data, log)
        except StoreCorruptError as error:
            if not data.endswith(b"\0"):
                raise StoreCorruptError(f"{error}. {ADVICE}") from error
            self._settle(error)

    def _settle(self, error: StoreCorruptError) -> None:
        """Complete a log of which no whole line is damaged."""
        found = reconstruct_log(self._store)
        if not found.tail_only:
            raise StoreCorruptError(f"{error}. {ADVICE}") from error
        replace_log(self._store, found)
        self._entries = found.entries
        _log.warning("%s: put right from manifests and annotations", error)

    def _take_back(self, pending: Pending) -> None:
        """The folder of an episode that was not committed is a draft again."""
        folder = self._store / EPISODES / (pending.folder or pending.id)
        if is_episode(pending.id) and folder.exists():
            draft = self._store / TEMPORARY / (pending.draft or f"{pending.id}.tmp")
            shutil.rmtree(draft, ignore_errors=True)
            folder.rename(draft)
            fsync_path(self._store / EPISODES)

    def _move(self, entry: LogEntry) -> None:
        """Into the trash or back; what is moved already is left alone."""
        if entry.id.startswith("rm_"):
            move_to_trash(self._store, entry.episodes)
        elif entry.id.startswith("rs_"):
            move_from_trash(self._store, entry.episodes)
        elif entry.id.startswith("pg_"):
            empty_trash(self._store, entry.episodes)


def replace_log(store: Path, found: Reconstruction, aside: Path | None = None) -> None:
    """Write a reconstructed log, and bring the folders to where it says that they are.

    A folder of ``episodes`` that nobody names was renamed into place but never committed: it is a
    draft again. Where lines were lost, so that this is not sure, it goes to the folder ``aside``.
    """
    temporary, episodes = store / TEMPORARY, store / EPISODES
    temporary.mkdir(exist_ok=True)
    replace_file(store / LOG_FILE, found.data(), temporary / "log.jsonl")
    ids = [e.id for e in found.entries if is_episode(e.id)]
    gone, deleted = trashed(found.entries), purged(found.entries)
    if (store / TRASH).is_dir() or gone:
        move_to_trash(store, gone)
        move_from_trash(store, [e for e in ids if e not in gone and e not in deleted])
        empty_trash(store, deleted)
    manifests = (p.stem for p in (store / MANIFESTS).glob("*.json"))
    named = {"zarr.json", *ids, *manifests, *(_folder(store, e) for e in ids)}
    for folder in sorted(p for p in episodes.iterdir() if p.name not in named):
        lost = [p for p in temporary.glob("*.journal") if not p.with_suffix(".tmp").exists()]
        draft = lost[0].with_suffix(".tmp") if len(lost) == 1 else temporary / f"{folder.name}.tmp"
        folder.rename(draft if aside is None else aside / folder.name)
    (store / PENDING_FILE).unlink(missing_ok=True)
    for folder in (episodes, store):
        fsync_path(folder)


def move_to_trash(store: Path, episodes: Iterable[str]) -> None:
    """Manifests first: a folder without a manifest is no episode for anybody."""
    trash = store / TRASH
    for part in (MANIFESTS, EPISODES):
        _make(trash / part)
    for episode in episodes:
        folder = _folder(store, episode)
        _rename(store / MANIFESTS / f"{episode}.json", trash / MANIFESTS / f"{episode}.json")
        _rename(store / EPISODES / folder, trash / EPISODES / folder)
    _sync(store)


def move_from_trash(store: Path, episodes: Iterable[str]) -> None:
    """Folders first, for the same reason."""
    trash = store / TRASH
    for episode in episodes:
        folder = _folder(store, episode)
        _rename(trash / EPISODES / folder, store / EPISODES / folder)
        _rename(trash / MANIFESTS / f"{episode}.json", store / MANIFESTS / f"{episode}.json")
    _sync(store)


def empty_trash(store: Path, episodes: Iterable[str]) -> None:
    """Folders first: a manifest without a folder still says what is to be deleted."""
    for episode in episodes:
        folder = store / TRASH / EPISODES / _folder(store, episode)
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        (store / TRASH / MANIFESTS / f"{episode}.json").unlink(missing_ok=True)
    _sync(store)


def _folder(store: Path, episode: str) -> str:
    """The name of an episode's folder, wherever its manifest is now."""
    for base in (store, store / TRASH):
        manifest = base / MANIFESTS / f"{episode}.json"
        if manifest.exists():
            return parse_manifest(read_plain(manifest), manifest).folder or episode
    return episode


def _rename(source: Path, target: Path) -> None:
    if source.exists():
        source.rename(target)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fsync_path(folder.parent)
        fsync_path(folder.parent.parent)


def _sync(store: Path) -> None:
    for base in (store, store / TRASH):
        for part in (MANIFESTS, EPISODES):
            fsync_path(base / part)
