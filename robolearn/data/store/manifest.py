"""Says what makes an episode exist: its manifest, and the chained log of all commits.

    pending.json     "I am about to commit ep_000206 with this manifest, after this log"
    manifests/ep_000206.json      renamed into place: from here on the episode exists
    commits.jsonl    + one line whose hash covers the line before
    pending.json     removed

A manifest that is gone although the log names it was lost; an episode that neither names was never
committed. ``pending.json`` tells an interrupted commit from a damaged log. Annotations, removals
and restorations are records in ``annotations/`` that are committed by the same rule:

    ep_000206   manifests/      an episode
    an_000210   annotations/    outcome, labels, note, split, or an undo of one of these
    rm_000211   annotations/    episodes moved to the trash      rs_000212   ... and back
    pg_000213   annotations/    the trash emptied: episodes deleted for good
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from robolearn.data.episode import EpisodeInfo
from robolearn.data.store.chunks import FileEntry, fsync_path, json_bytes
from robolearn.data.store.confine import confined
from robolearn.data.store.storage import ObjectPath, Place, read_plain
from robolearn.errors import StoreCorruptError, StoreError, did_you_mean

VERSION = 2
"""The newest format that this code reads; new stores have it (see ``docs/data_format.md``)."""
STORE_FILE = "store.json"
LOG_FILE = "commits.jsonl"
COMMITS = "commits"
"""The log of an object store: an object per line, which repeats its segment up to there."""
PENDING_FILE = "pending.json"
MANIFESTS = "manifests"
EPISODES = "episodes"
TEMPORARY = "tmp"
ANNOTATIONS = "annotations"
TRASH = "trash"
FOLDERS = (
    EPISODES,
    MANIFESTS,
    ANNOTATIONS,
    TEMPORARY,
    TRASH,
    f"{TRASH}/{EPISODES}",
    f"{TRASH}/{MANIFESTS}",
)
"""The folders of a store in which files are written, moved and removed."""
GENESIS = "0" * 64
_EPISODE = "ep_"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything of one episode: what a listing shows and every file with size and hash."""

    info: EpisodeInfo
    files: tuple[FileEntry, ...]
    # Name of the episode's folder where it is not the id: on an object store nothing is renamed.
    folder: str = ""

    def by_path(self) -> dict[str, FileEntry]:
        """Files by path relative to the episode's folder."""
        return {entry.path: entry for entry in self.files}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the commit log. ``hash`` covers all other fields, so the lines form a chain.

    ``id`` is empty in the first line, whose ``files`` are the store's own metadata; later lines
    name a record and its file in ``files``, and the ``episodes`` that an annotation, a removal or
    a restoration is about.
    """

    number: int
    id: str
    files: Mapping[str, str]
    previous: str
    hash: str
    episodes: tuple[str, ...] = ()
    # Format version that a reader of this line and the rest must know, where the store's own is
    # not enough.
    needs: int = 0

    def line(self) -> bytes:
        """The line as stored."""
        # By hand: a log has one for each episode, and asdict copies everything deeply.
        raw: dict[str, Any] = {"number": self.number, "id": self.id, "files": dict(self.files)}
        raw |= {"previous": self.previous, "hash": self.hash}
        if self.episodes:
            raw["episodes"] = self.episodes
        if self.needs:
            raw["needs"] = self.needs
        return (json.dumps(raw, sort_keys=True) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit in progress: the log's length [bytes] before it and the line it will append.

    ``sha256`` is that of the record; ``draft`` the name of the folder that becomes an episode.
    """

    id: str
    sha256: str
    log_size: int
    line: str
    draft: str = ""
    folder: str = ""


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def is_episode(record_id: str) -> bool:
    """Whether a record of the log is an episode (else an annotation, a removal, ...)."""
    return record_id.startswith(_EPISODE)


def episode_name(number: int) -> str:
    """The id of a store's episode by its number, which it keeps when others are removed."""
    return f"{_EPISODE}{number:06d}"


def episode_number(episode_id: str) -> int:
    """The number in an episode's id."""
    return int(episode_id.removeprefix(_EPISODE))


def near_episode(wanted: str, ids: Sequence[str]) -> str:
    """A hint for an unknown id: the same number written in full, else what looks alike."""
    digits = wanted.removeprefix(_EPISODE)
    full = episode_name(int(digits)) if digits.isdecimal() else ""
    return f" Did you mean '{full}'?" if full in ids else did_you_mean(wanted, ids)


def record_name(record_id: str) -> str:
    """The file of a record, relative to the store."""
    return f"{MANIFESTS if is_episode(record_id) else ANNOTATIONS}/{record_id}.json"


def commit_key(number: int) -> str:
    """The object of an object store that holds line ``number``."""
    return f"{COMMITS}/{number:06d}.jsonl"


def trashed(entries: Sequence[LogEntry]) -> frozenset[str]:
    """Episodes that were removed and not restored."""
    gone: set[str] = set()
    for entry in entries:
        if entry.id.startswith("rm_"):
            gone.update(entry.episodes)
        elif entry.id.startswith("rs_"):
            gone.difference_update(entry.episodes)
    return frozenset(gone) - purged(entries)


def purged(entries: Iterable[LogEntry]) -> frozenset[str]:
    """Episodes that were deleted from the trash for good."""
    return frozenset(e for entry in entries if entry.id.startswith("pg_") for e in entry.episodes)


def needed_version(record_id: str, manifest: Manifest | None) -> int:
    """What a reader of this record must know: 0 for what every version knows, else 2.

    ``manifest``: of an episode; None for any other record.

    Version 2: emptied trashes, folders whose name is not the id, cameras stored as picture files.
    """
    if record_id.startswith("pg_"):
        return 2
    if manifest is None:
        return 0
    encoded = any(
        f.path.startswith("signals/")
        and f.path.endswith("/encoded/zarr.json")
        # signals/<part>/<name>/encoded, not a signal of that name.
        and f.path.count("/") == 4
        for f in manifest.files
    )
    return 2 if manifest.folder or encoded else 0


def next_entry(
    last: LogEntry | None,
    record_id: str,
    files: Mapping[str, str],
    episodes: tuple[str, ...] = (),
    needs: int = 0,
) -> LogEntry:
    """The line that follows ``last`` (None: the first line of a new store)."""
    number = 0 if last is None else last.number + 1
    previous = GENESIS if last is None else last.hash
    bare = LogEntry(number, record_id, files, previous, "", episodes, needs)
    return dataclasses.replace(bare, hash=_entry_hash(bare))


def _entry_hash(entry: LogEntry) -> str:
    covered: list[Any] = [entry.number, entry.id, dict(entry.files), entry.previous]
    if entry.needs:
        covered += [list(entry.episodes), {"needs": entry.needs}]
    elif entry.episodes:
        covered.append(list(entry.episodes))
    return sha256(json_bytes(covered))


def parse_log(data: bytes, where: Place, before: Sequence[LogEntry] = ()) -> tuple[LogEntry, ...]:
    """All lines of a complete log, or those that follow the lines ``before``; a broken chain raises
    :class:`StoreCorruptError`.
    """
    if not data and before:
        return ()
    if not data.endswith(b"\n"):
        raise StoreCorruptError(f"{where}: the commit log is empty or its last line is cut off")
    entries: list[LogEntry] = []
    previous = before[-1].hash if before else GENESIS
    for number, line in enumerate(data.splitlines(keepends=True), len(before)):
        entry = parse_entry(line, f"{where} line {number + 1}")
        chained = entry.number == number and entry.previous == previous
        if chained:
            refuse_newer(entry, f"{where} line {number + 1}")
        if not chained or not is_whole(entry, line):
            raise StoreCorruptError(
                f"{where} line {number + 1}: the chain of commits is broken here"
                " (a line was altered, removed or added)"
            )
        previous = entry.hash
        entries.append(entry)
    return tuple(entries)


def is_whole(entry: LogEntry, line: bytes) -> bool:
    """Whether ``line``, of which ``entry`` was read, is what its own hash covers."""
    return entry.hash == _entry_hash(entry) and entry.line() == line


def refuse_newer(entry: LogEntry, where: str) -> None:
    """Raise :class:`StoreError` for a line of a newer version, but not for a damaged older one."""
    if entry.needs <= VERSION or any(
        _entry_hash(dataclasses.replace(entry, needs=n)) == entry.hash for n in range(VERSION + 1)
    ):
        return
    raise StoreError(
        f"{where} needs format version {entry.needs}, this robolearn reads up to {VERSION}:"
        " upgrade robolearn"
    )


def parse_entry(line: bytes, where: str) -> LogEntry:
    """One line of the log, without a look at the chain."""
    return parse_record(lambda: _log_entry(json.loads(line), where), where)


def _log_entry(raw: dict[str, Any], where: str) -> LogEntry:
    record_id = str(raw["id"])
    return LogEntry(
        number=int(raw["number"]),
        id=confined(record_id, where, single=True) if record_id else "",
        files={confined(k, where): str(v) for k, v in raw["files"].items()},
        previous=str(raw["previous"]),
        hash=str(raw["hash"]),
        episodes=confined_ids(raw.get("episodes", ()), where),
        needs=int(raw.get("needs", 0)),
    )


def confined_ids(ids: Iterable[Any], where: object) -> tuple[str, ...]:
    """Ids of episodes as a file names them: each is the name of a manifest and of a folder."""
    return tuple(confined(str(i), where, single=True) for i in ids)


def confined_place(store: Path | ObjectPath, name: str, *, whole: bool = False) -> Place:
    """``store / name``; a part of it that is a link is a :class:`StoreCorruptError`."""
    below = store if isinstance(store, Path) else None
    return parse_record(
        lambda: store / confined(name, store, below=below, whole=whole), str(store / name)
    )


def manifest_bytes(manifest: Manifest) -> bytes:
    """A manifest as stored."""
    info = dataclasses.asdict(manifest.info)
    for name in ("labels", "split", "notes"):  # annotations, which are no part of a commit
        del info[name]
    # By hand: an episode has many files, and asdict copies everything deeply.
    files = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in manifest.files]
    raw: dict[str, Any] = {"info": info, "files": files}
    return json_bytes(raw | ({"folder": manifest.folder} if manifest.folder else {}))


def parse_manifest(data: bytes, where: Place | str) -> Manifest:
    """Inverse of :func:`manifest_bytes`; paths that lead out of the episode are refused."""

    def build() -> Manifest:
        raw = json.loads(data)
        info = _typed(EpisodeInfo, dict(raw["info"]) | {"signals": tuple(raw["info"]["signals"])})
        files = tuple(_typed(FileEntry, f) for f in raw["files"])
        for entry in files:
            confined(entry.path, where)
        names = {entry.path for entry in files}
        if len(names) != len(files):
            raise ValueError("a file is listed twice")
        for name in names:
            folder = name.rpartition("/")[0]
            while folder:
                if folder in names:
                    raise ValueError(f"'{name}' is listed below a file")
                folder = folder.rpartition("/")[0]
        if info.id:  # a draft has none yet
            confined(info.id, where, single=True)
        folder = str(raw.get("folder", ""))
        if folder:
            confined(folder, where, single=True)
        if folder and folder != info.id and not folder.startswith(f"{info.id}-"):
            raise ValueError(f"folder '{folder}' is that of another episode")
        return Manifest(info, files, folder)

    return parse_record(build, str(where))


def _typed(kind: type[T], raw: dict[str, Any]) -> T:
    """A flat dataclass whose numbers are numbers and whose texts are texts."""
    made = kind(**raw)
    for name, said, wanted in _wanted(kind):
        value = getattr(made, name)
        if not isinstance(value, wanted) or (isinstance(value, bool) and said != "bool"):
            raise TypeError(f"{name}: expected {said}, got {str(value)[:100]!r}")
    return made


@functools.cache
def _wanted(kind: type[Any]) -> tuple[tuple[str, str, type | tuple[type, ...]], ...]:
    """Of every field its name, its type as it is written, and what a value must be."""
    types: dict[str, type | tuple[type, ...]] = {
        "str": str,
        "int": int,
        "bool": bool,
        "float": (int, float),
    }
    fields = dataclasses.fields(kind)
    return tuple((f.name, str(f.type), types.get(str(f.type), object)) for f in fields)


def pending_bytes(pending: Pending) -> bytes:
    """A pending record as stored, with a checksum of its own."""
    body = dataclasses.asdict(pending)
    return json_bytes({"body": body, "sha256": sha256(json_bytes(body))})


def read_pending(store: Place) -> Pending | None:
    """The interrupted (or running) commit, if any."""
    path = store / PENDING_FILE
    try:
        data = read_plain(path)
    except FileNotFoundError:
        return None

    def build() -> Pending:
        raw = cast("dict[str, Any]", json.loads(data))
        if sha256(json_bytes(raw["body"])) != raw["sha256"]:
            raise ValueError("checksum")
        pending = Pending(**raw["body"])
        for name in (pending.id, pending.draft, pending.folder):
            if name:
                confined(name, path, single=True)
        return pending

    return parse_record(build, str(path))


def parse_record(build: Callable[[], T], where: str) -> T:
    """``build()``, with what a damaged file makes it raise as :class:`StoreCorruptError`."""
    try:
        return build()
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
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
