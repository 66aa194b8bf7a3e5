"""What makes an episode exist: its manifest, and the chained log of all commits.

    pending.json     "I am about to commit ep_000206 with this manifest, after this log"
    manifests/ep_000206.json      renamed into place: from here on the episode exists
    commits.jsonl    + one line whose hash covers the line before
    pending.json     removed

A manifest that is gone although the log names it was lost; an episode that neither names was never
committed. ``pending.json`` tells an interrupted commit from a damaged log.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from robolearn.data.chunks import FileEntry, fsync_path, json_bytes
from robolearn.data.episode import EpisodeInfo
from robolearn.errors import StoreCorruptError

STORE_FILE = "store.json"
LOG_FILE = "commits.jsonl"
PENDING_FILE = "pending.json"
MANIFESTS = "manifests"
EPISODES = "episodes"
TEMPORARY = "tmp"
GENESIS = "0" * 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything of one episode: what a listing shows and every file with size and hash."""

    info: EpisodeInfo
    files: tuple[FileEntry, ...]

    def by_path(self) -> dict[str, FileEntry]:
        """Files by path relative to the episode's folder."""
        return {entry.path: entry for entry in self.files}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the commit log. ``hash`` covers all other fields, so the lines form a chain.

    ``id`` is empty in the first line, whose ``files`` are the store's own metadata; later lines
    name an episode and its manifest in ``files``.
    """

    number: int
    id: str
    files: Mapping[str, str]
    previous: str
    hash: str

    def line(self) -> bytes:
        """The line as stored."""
        return (json.dumps(dataclasses.asdict(self), sort_keys=True) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit in progress: the log's length [bytes] before it and the line it will append."""

    id: str
    manifest_sha256: str
    log_size: int
    line: str


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def next_entry(last: LogEntry | None, episode_id: str, files: Mapping[str, str]) -> LogEntry:
    """The line that follows ``last`` (None: the first line of a new store)."""
    number = 0 if last is None else last.number + 1
    previous = GENESIS if last is None else last.hash
    digest = _entry_hash(number, episode_id, files, previous)
    return LogEntry(number=number, id=episode_id, files=files, previous=previous, hash=digest)


def _entry_hash(number: int, episode_id: str, files: Mapping[str, str], previous: str) -> str:
    return sha256(json_bytes([number, episode_id, dict(files), previous]))


def parse_log(data: bytes, where: Path) -> tuple[LogEntry, ...]:
    """All lines of a complete log; a broken chain raises :class:`StoreCorruptError`."""
    if not data.endswith(b"\n"):
        raise StoreCorruptError(f"{where}: the commit log is empty or its last line is cut off")
    entries: list[LogEntry] = []
    previous = GENESIS
    for number, line in enumerate(data.splitlines()):
        entry = _parse(lambda raw=line: _log_entry(json.loads(raw)), f"{where} line {number + 1}")
        digest = _entry_hash(entry.number, entry.id, entry.files, entry.previous)
        if entry.number != number or entry.previous != previous or entry.hash != digest:
            raise StoreCorruptError(
                f"{where} line {number + 1}: the chain of commits is broken here"
                " (a line was altered, removed or added)"
            )
        previous = entry.hash
        entries.append(entry)
    return tuple(entries)


def _log_entry(raw: dict[str, Any]) -> LogEntry:
    return LogEntry(
        number=int(raw["number"]),
        id=str(raw["id"]),
        files={str(k): str(v) for k, v in raw["files"].items()},
        previous=str(raw["previous"]),
        hash=str(raw["hash"]),
    )


def manifest_bytes(manifest: Manifest) -> bytes:
    """A manifest as stored."""
    return json_bytes(dataclasses.asdict(manifest))


def parse_manifest(data: bytes, where: Path) -> Manifest:
    """Inverse of :func:`manifest_bytes`."""

    def build() -> Manifest:
        raw = json.loads(data)
        info = dict(raw["info"])
        info["signals"] = tuple(info["signals"])
        return Manifest(info=EpisodeInfo(**info), files=tuple(FileEntry(**f) for f in raw["files"]))

    return _parse(build, str(where))


def pending_bytes(pending: Pending) -> bytes:
    """A pending record as stored, with a checksum of its own."""
    body = dataclasses.asdict(pending)
    return json_bytes({"body": body, "sha256": sha256(json_bytes(body))})


def read_pending(store: Path) -> Pending | None:
    """The interrupted (or running) commit, if any."""
    path = store / PENDING_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None

    def build() -> Pending:
        raw = cast("dict[str, Any]", json.loads(data))
        if sha256(json_bytes(raw["body"])) != raw["sha256"]:
            raise ValueError("checksum")
        return Pending(**raw["body"])

    return _parse(build, str(path))


def _parse(build: Callable[[], T], where: str) -> T:
    try:
        return build()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorruptError(
            f"{where}: cannot be read ({type(error).__name__}: {error})"
        ) from error


def replace_file(path: Path, data: bytes, temporary: Path) -> None:
    """Write ``data`` to ``temporary``, make it durable, and rename it to ``path``."""
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_path(path.parent)


def append_line(path: Path, line: bytes, at: int) -> None:
    """Put ``line`` at offset ``at``, dropping anything after it (a torn line), and fsync."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(fd, at)
        os.pwrite(fd, line, at)
        os.fsync(fd)
    finally:
        os.close(fd)
