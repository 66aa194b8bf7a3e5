"""Reconstructs a damaged log or ``store.json`` from the records and lines that are whole.

The log repeats what the records know: the number, the hash and the order of each follow from its
name and contents. A line whose own hash holds is kept; the others are made anew. Where every record
is whole, the result is the log as it was, byte for byte:

    damaged log           0  1  x  3  4 …          lines whose hash holds
    manifests, annotations   ep_000001             a record that no line names
    reconstructed         0  1  2' 3  4            2' = next_entry(1, ep_000001, its SHA-256)

On an object store a line is in many objects, so that most damage takes none away.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.data.store.annotations import parse_annotation
from robolearn.data.store.identity import EPISODES_META, FORMAT
from robolearn.data.store.manifest import (
    ANNOTATIONS,
    COMMITS,
    LOG_FILE,
    MANIFESTS,
    STORE_FILE,
    TRASH,
    VERSION,
    LogEntry,
    commit_key,
    is_episode,
    is_whole,
    needed_version,
    next_entry,
    parse_entry,
    parse_manifest,
    record_name,
    refuse_newer,
    sha256,
)
from robolearn.data.store.storage import ObjectPath, objects, read_plain, require_plain
from robolearn.errors import StoreCorruptError

FIRST_LINE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """A log put together from what is whole.

    ``made``: ids of the records whose lines no line of the damaged log gave (``""``: the first
    line); ``tail_only``: only what follows the last whole line is damaged, and it is no line.
    """

    entries: tuple[LogEntry, ...]
    made: tuple[str, ...]
    tail_only: bool

    def data(self) -> bytes:
        """The log as stored."""
        return b"".join(entry.line() for entry in self.entries)


@dataclass(frozen=True, slots=True)
class _Record:
    """A record on disk: its SHA-256, the episodes it is about, the version that it needs."""

    sha256: str
    episodes: tuple[str, ...]
    needs: int


def reconstruct_log(store: Path | ObjectPath) -> Reconstruction:
    """The log of ``store`` from its whole lines and its records; nothing is changed.

    Records that cannot be read are as if they were not there. A store of which neither a first
    line nor ``store.json`` and ``episodes/zarr.json`` are there is a :class:`StoreCorruptError`.
    """
    lines = _lines(store)
    whole = [_whole(line) for line in lines]
    trusted = {e.id: e for e in whole if e is not None}
    records = _records(store)
    made = [i for i in ("", *records) if i not in trusted]
    entries = [trusted.pop("", None) or _first_line(store)]
    for record_id in _order(trusted, records):
        line = trusted.get(record_id)
        if line is not None and (line.number, line.previous) == (len(entries), entries[-1].hash):
            entries.append(line)
        elif line is not None:  # what came before it is lost, so that the chain is another one
            entries.append(next_entry(entries[-1], line.id, line.files, line.episodes, line.needs))
        else:
            record = records[record_id]
            files = {record_name(record_id): record.sha256}
            entries.append(next_entry(entries[-1], record_id, files, record.episodes, record.needs))
    first = next((k for k, e in enumerate(whole) if e is None), len(whole))
    rest = b"".join(lines[first:])
    prefix = [e for e in whole[:first] if e is not None] == entries[:first]
    in_order = isinstance(store, Path) and first > 0 and prefix
    tail_only = in_order and (b"\n" not in rest or not rest.strip(b"\0"))
    return Reconstruction(tuple(entries), tuple(made), tail_only)


def _lines(store: Path | ObjectPath) -> list[bytes]:
    """What the log holds, damaged or not: in the order of a file, or of all objects together."""
    if isinstance(store, Path):
        try:
            return read_plain(store / LOG_FILE).splitlines(keepends=True)
        except OSError:
            return []
    names = [f"{COMMITS}/{m.key}" for m in store.bucket.under(COMMITS)]
    parts = objects(store, names).values()
    return list(dict.fromkeys(line for part in parts for line in part.splitlines(keepends=True)))


def _whole(line: bytes) -> LogEntry | None:
    """A line whose own hash holds, wherever it stands."""
    try:
        entry = parse_entry(line, LOG_FILE)
    except StoreCorruptError:
        return None
    refuse_newer(entry, LOG_FILE)
    return entry if is_whole(entry, line) else None


def _records(store: Path | ObjectPath) -> dict[str, _Record]:
    """Every record that can be read, trash included, by id."""
    found: dict[str, _Record] = {}
    for name, data in _record_files(store):
        record_id, where = name.rsplit("/", 1)[1].removesuffix(".json"), store / name
        if not re.fullmatch(r"(ep|an|rm|rs|pg)_\d+", record_id):
            continue
        try:
            episodes: tuple[str, ...] = ()
            manifest = parse_manifest(data, where) if is_episode(record_id) else None
            if manifest is not None:
                same = manifest.info.id == record_id
            else:
                annotation = parse_annotation(data, where)
                same, episodes = annotation.id == record_id, annotation.episodes
            if same:
                needs = needed_version(record_id, manifest)
                found[record_id] = _Record(sha256(data), episodes, needs)
        except StoreCorruptError:
            continue
    return found


def _record_files(store: Path | ObjectPath) -> Iterator[tuple[str, bytes]]:
    """Names below the store, and contents, of what may be records; none that is a link."""
    folders = (MANIFESTS, f"{TRASH}/{MANIFESTS}", ANNOTATIONS)
    if isinstance(store, Path):
        for path in (p for folder in folders for p in sorted((store / folder).glob("*.json"))):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    yield path.relative_to(store).as_posix(), read_plain(path)
        return
    names = [f"{folder}/{m.key}" for folder in folders for m in store.bucket.under(folder)]
    yield from objects(store, names).items()


def _order(trusted: dict[str, LogEntry], records: dict[str, _Record]) -> list[str]:
    """Ids in the order of their commits.

    A whole line says its number; the name of an annotation or removal is its number; an episode
    comes after the one before it, at the first number that is free.
    """
    numbers = {i: e.number for i, e in trusted.items()}
    for record_id in records:
        if record_id not in numbers and not is_episode(record_id):
            numbers[record_id] = _digits(record_id)
    taken = set(numbers.values())
    last = 0
    for episode in sorted((i for i in {*trusted, *records} if is_episode(i)), key=_digits):
        if episode not in numbers:
            free = (n for n in itertools.count(last + 1) if n not in taken)
            numbers[episode] = next(free)
            taken.add(numbers[episode])
        last = max(last, numbers[episode])
    return sorted(numbers, key=lambda i: (numbers[i], not is_episode(i), i))


def _digits(record_id: str) -> int:
    return int(record_id.split("_")[1])


def _first_line(store: Path | ObjectPath) -> LogEntry:
    files: dict[str, str] = {}
    for name in (STORE_FILE, EPISODES_META):
        try:
            files[name] = sha256(read_plain(store / name))
        except OSError as error:
            raise StoreCorruptError(
                f"{store}: neither the first line of the log nor {store / name} is whole;"
                " bring the store back from a copy ('robolearn data pull')"
            ) from error
    return next_entry(None, "", files)


def reconstruct_identity(store: Path | ObjectPath) -> dict[str, Any] | None:
    """What ``store.json`` said, if the log knows that it was damaged; else None.

    A single flipped bit is found by the hash in the log's first line. Otherwise what is still
    readable counts, and a lost id is made from that line, the same one for every reader.
    """
    first = _whole(_own_line(store))
    if first is None or first.id or STORE_FILE not in first.files:
        return None
    data = identity_bytes(store)
    if sha256(data) == first.files[STORE_FILE]:
        return None
    for bit in range(8 * len(data)):
        fixed = bytearray(data)
        fixed[bit // 8] ^= 1 << bit % 8
        if sha256(bytes(fixed)) == first.files[STORE_FILE]:
            return dict(json.loads(fixed))
    return readable_identity(data, first.hash[:32])


def identity_bytes(store: Path | ObjectPath) -> bytes:
    """``store.json`` as it is, damaged or not; empty where there is none."""
    try:
        return read_plain(store / STORE_FILE)
    except OSError:
        return b""


def _own_line(store: Path | ObjectPath) -> bytes:
    """The first line of the log, about the store's own files; empty where there is none."""
    try:
        if isinstance(store, Path):
            require_plain(store / LOG_FILE)
            with (store / LOG_FILE).open("rb") as file:
                return file.readline(FIRST_LINE_BYTES)
        first = (store / commit_key(0)).read_bytes()
    except OSError:
        first = b""
    if isinstance(store, ObjectPath) and _whole(first) is None:
        # The first object is damaged or lost; those after it repeat its line.
        return next((n for n in _lines(store) if (e := _whole(n)) is not None and not e.id), b"")
    return first


def readable_identity(data: bytes, store_id: str) -> dict[str, Any]:
    """What can be read of a damaged ``store.json``; ``store_id`` where its own cannot."""
    found = re.search(rb'"([0-9a-f]{32})"', data)
    made_ns = re.search(rb'"created_wall_ns": (\d{10,20})', data)
    return {
        "format": FORMAT,
        "version": VERSION,
        "uuid": found[1].decode() if found else store_id,
        "created_wall_ns": int(made_ns[1]) if made_ns else 0,
    }


def with_own_files(entries: tuple[LogEntry, ...], files: dict[str, str]) -> tuple[LogEntry, ...]:
    """The same log with other hashes of the store's own files in its first line."""
    made = [next_entry(None, "", files)]
    for entry in entries[1:]:
        made.append(next_entry(made[-1], entry.id, entry.files, entry.episodes, entry.needs))
    return tuple(made)
