"""Commits on an object store, where nothing is renamed and several machines may write at once.

    episodes/ep_000206-9f3c.../   1  all files of the episode
    pending/ep_000206.<mark>.json 2  "I am about to commit this"
    manifests/ep_000206.json      3  put only if absent: from here on the episode exists
    commits/000213.jsonl          4  the chained line, put only if absent; else the next number
    pending/...                   5  deleted

A folder is named by the id and the hash of its contents: two writers who use the same id write
different folders, or the same bytes. Who comes second at 3 takes the next id. A commit between 3
and 4 is finished by whoever comes next; one that ended before 3 never was. Every object of
``commits`` repeats the lines since the last multiple of :data:`SEGMENT`, so that a log of ``n``
lines is read in ``n / SEGMENT`` requests.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from robolearn.data.store.chunks import json_bytes, read_checked
from robolearn.data.store.commit import ADVICE
from robolearn.data.store.manifest import (
    COMMITS,
    EPISODES,
    MANIFESTS,
    LogEntry,
    Manifest,
    commit_key,
    is_episode,
    needed_version,
    next_entry,
    parse_entry,
    parse_log,
    parse_manifest,
    record_name,
    sha256,
)
from robolearn.data.store.reconstruct import reconstruct_log
from robolearn.data.store.storage import THREADS, Listed, ObjectPath, fetch
from robolearn.errors import CommitConflictError, StoreCorruptError, StoreError

PENDINGS = "pending"
SEGMENT = 256
SWEEP_AGE_S = 24 * 3600.0
REFRESH_S = 1.0
"""How old a reader's knowledge of other machines' commits may be."""

_log = logging.getLogger(__name__)


def segment(entries: Sequence[LogEntry], number: int) -> bytes:
    """What the object of line ``number`` holds."""
    start = number - number % SEGMENT
    return b"".join(e.line() for e in entries[start : number + 1])


def read_lines(store: ObjectPath) -> tuple[LogEntry, ...]:
    """The log: gaps and broken chains raise :class:`StoreCorruptError`."""
    where = store / COMMITS
    names = [m.key for m in store.bucket.under(COMMITS)]
    if names != [f"{n:06d}.jsonl" for n in range(len(names))] or not names:
        raise StoreCorruptError(f"{where}: the commit log was lost, or lines of it")
    ends = list(range(SEGMENT - 1, len(names), SEGMENT))
    if len(names) % SEGMENT:
        ends.append(len(names) - 1)
    with ThreadPoolExecutor(THREADS) as pool:
        data = b"".join(pool.map(store.bucket.get, [commit_key(n) for n in ends]))
    entries = parse_log(data, where)
    if len(entries) != len(names):
        raise StoreCorruptError(f"{where}: {len(names)} objects hold {len(entries)} lines")
    return entries


def read_pendings(store: ObjectPath) -> dict[str, LogEntry]:
    """Commits in progress, or interrupted: name of the object to the line as planned."""
    found: dict[str, LogEntry] = {}
    for listed in store.bucket.under(PENDINGS):
        where = store / PENDINGS / listed.key
        try:
            data = where.read_bytes()
        except FileNotFoundError:
            continue  # it has just been finished
        found[listed.key] = parse_entry(data.rstrip(b"\n"), str(where))
    return found


class ObjectLog:
    """The commit log on an object store, as every reader sees it.

    ``damage`` says what is wrong with it, as far as :meth:`entries` has looked; empty: nothing.
    """

    def __init__(self, store: ObjectPath) -> None:
        self.damage = ""
        self._store = store
        self._entries: tuple[LogEntry, ...] = ()
        self._seen = (-1, 0.0)

    def entries(self) -> tuple[LogEntry, ...]:
        """All lines; other machines' commits are seen after at most :data:`REFRESH_S`.

        A record that is in place counts although its line may still be missing. Where the log is
        damaged, it is put together from what is whole, with a warning: readers go on.
        """
        bucket, now = self._store.bucket, time.monotonic()
        if self._seen[0] == bucket.writes and now - self._seen[1] < REFRESH_S:
            return self._entries
        self._seen = (bucket.writes, now)
        try:
            self._entries = self._read()
            self.damage = ""
        except StoreCorruptError as error:
            found = reconstruct_log(self._store)
            if len(found.entries) == 1:
                raise  # of a store that was never complete, nothing can be read
            self._entries = found.entries
            if self.damage != str(error):
                self.damage = str(error)
                _log.warning("%s; read from manifests and annotations instead. %s", error, ADVICE)
        return self._entries

    def _read(self) -> tuple[LogEntry, ...]:
        pendings = read_pendings(self._store)
        entries = read_lines(self._store)
        known = {e.id for e in entries}
        for planned in pendings.values():
            name = record_name(planned.id)
            if planned.id not in known and _holds(self._store, name, planned.files[name]):
                entries = (*entries, _after(entries[-1], planned))
                known.add(planned.id)
        return entries


class ObjectCommits:
    """Commits records; construction finishes what a killed writer left."""

    def __init__(self, store: ObjectPath) -> None:
        self._store, self._bucket = store, store.bucket
        self._mark = uuid.uuid4().hex
        self._entries: tuple[LogEntry, ...] = ()
        self.refresh()

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """Every line as of the last :meth:`refresh` or :meth:`put`."""
        return self._entries

    def folder(self, episode_id: str, manifest: Manifest) -> str:
        """A name that no other contents get, and equal contents always."""
        rows = sorted((f.path, f.size, f.sha256) for f in manifest.files)
        return f"{episode_id}-{sha256(json_bytes(rows))[:16]}"

    def refresh(self) -> None:
        """Learn of other writers' commits, and finish those that ended between record and line."""
        try:
            pendings = read_pendings(self._store)
            self._entries = read_lines(self._store)
        except StoreCorruptError as error:
            raise StoreCorruptError(f"{error}. {ADVICE}") from error
        for key, planned in pendings.items():
            name = record_name(planned.id)
            if _holds(self._store, name, planned.files[name]):
                if planned.id not in {e.id for e in self._entries}:
                    self._append(planned)
                    _log.warning("finished the interrupted commit of %s", planned.id)
                self._purge(planned)
                self._bucket.delete([f"{PENDINGS}/{key}"])

    def put(
        self,
        record_id: str,
        data: bytes,
        *,
        episodes: tuple[str, ...] = (),
        folder: Path | None = None,
    ) -> None:
        """Commit the record ``data``, with the files in ``folder`` if it is an episode's manifest.

        Another writer's record of this id raises :class:`CommitConflictError`.
        """
        name = record_name(record_id)
        listed = parse_manifest(data, name) if is_episode(record_id) else None
        needs = needed_version(record_id, listed)
        entry = next_entry(self._entries[-1], record_id, {name: sha256(data)}, episodes, needs)
        manifest = None if folder is None else listed
        base = f"{EPISODES}/{(manifest.folder if manifest else '') or record_id}"
        if manifest is not None and folder is not None:
            self._upload(folder, base, manifest)
        pending = f"{PENDINGS}/{record_id}.{self._mark[:8]}.json"
        self._bucket.put(pending, entry.line())
        if not self._bucket.put_new(name, data, self._mark):
            self._bucket.delete([pending])
            if manifest is not None:
                self._withdraw(name, base)
            raise CommitConflictError(f"{self._store / name}: another writer committed this id")
        self._append(entry)
        self._purge(entry)
        self._bucket.delete([pending])

    def _append(self, planned: LogEntry) -> None:
        """Put the line at the first free number; another writer may put it for us meanwhile."""
        while planned.id not in {e.id for e in self._entries}:
            entry = _after(self._entries[-1], planned)
            lines = segment((*self._entries, entry), entry.number)
            if self._bucket.put_new(commit_key(entry.number), lines, self._mark):
                self._entries = (*self._entries, entry)
            else:
                self._entries = read_lines(self._store)

    def _upload(self, folder: Path, base: str, manifest: Manifest) -> None:
        """All files, many at a time; the listing afterwards must be the manifest's."""
        files = manifest.by_path()

        def one(path: str) -> None:
            self._bucket.put(f"{base}/{path}", read_checked(folder, path, files))

        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(one, files):
                pass
        sizes = {m.key: m.size for m in self._bucket.under(base)}
        for file in manifest.files:
            if sizes.get(file.path) != file.size:
                raise StoreError(
                    f"{self._store / base / file.path}: put {file.size} bytes, the object store"
                    f" lists {sizes.get(file.path)}; nothing was committed"
                )

    def _withdraw(self, name: str, base: str) -> None:
        """Delete an upload that lost its id, unless the winner's episode is the very same."""
        winner = parse_manifest((self._store / name).read_bytes(), self._store / name)
        if f"{EPISODES}/{winner.folder or winner.info.id}" != base:
            self._bucket.delete(f"{base}/{m.key}" for m in self._bucket.under(base))

    def _purge(self, entry: LogEntry) -> None:
        """Delete episodes whose purge is committed; folders first, the manifest says where."""
        if entry.id.startswith("pg_"):
            for episode in entry.episodes:
                delete_episode(self._store, episode)


def delete_episode(store: ObjectPath, episode: str) -> None:
    """Delete the objects of an episode; what is gone already is no error."""
    where = store / MANIFESTS / f"{episode}.json"
    try:
        manifest = parse_manifest(where.read_bytes(), where)
    except FileNotFoundError:
        return
    base = f"{EPISODES}/{manifest.folder or episode}"
    store.bucket.delete(f"{base}/{m.key}" for m in store.bucket.under(base))
    store.bucket.delete([f"{MANIFESTS}/{episode}.json"])


def sweep_uploads(store: ObjectPath, older_s: float = SWEEP_AGE_S) -> tuple[str, ...]:
    """Delete what killed uploads left for longer than ``older_s``; returns the folders' names.

    Younger ones may belong to a writer that is at work on another machine.
    """
    before = time.time() - older_s
    manifests = [f"{MANIFESTS}/{m.key}" for m in store.bucket.under(MANIFESTS)]
    got = fetch(store, manifests)
    owned = {"zarr.json"}
    for name in manifests:
        manifest = parse_manifest((got / name).read_bytes(), store / name)
        owned.add(manifest.folder or manifest.info.id)
    left: dict[str, list[Listed]] = {}
    for listed in store.bucket.under(EPISODES):
        folder = listed.key.split("/")[0]
        if folder not in owned:
            left.setdefault(folder, []).append(listed)
    old = {name: found for name, found in left.items() if max(m.put_s for m in found) < before}
    store.bucket.delete(f"{EPISODES}/{m.key}" for found in old.values() for m in found)
    store.bucket.delete(
        f"{PENDINGS}/{m.key}"
        for m in store.bucket.under(PENDINGS)
        if m.put_s < before and not store.bucket.has(record_name(m.key.split(".")[0]))
    )
    return tuple(sorted(old))


def _after(last: LogEntry, planned: LogEntry) -> LogEntry:
    """The planned line, chained to the one that really comes before it."""
    return next_entry(last, planned.id, planned.files, planned.episodes, planned.needs)


def _holds(store: ObjectPath, name: str, digest: str) -> bool:
    """Whether the record is there with these contents."""
    try:
        return sha256((store / name).read_bytes()) == digest
    except FileNotFoundError:
        return False
