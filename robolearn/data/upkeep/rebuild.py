"""Rebuilds the commit log and ``store.json`` of a damaged store; the damaged ones are kept."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.store.chunks import json_bytes
from robolearn.data.store.commit import replace_log
from robolearn.data.store.identity import empty_contents, read_identity
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.manifest import (
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    PENDING_FILE,
    STORE_FILE,
    TEMPORARY,
    parse_log,
    read_pending,
    replace_file,
    sha256,
)
from robolearn.data.store.reconstruct import (
    Reconstruction,
    readable_identity,
    reconstruct_identity,
    reconstruct_log,
    with_own_files,
)
from robolearn.data.store.storage import ObjectPath, locate
from robolearn.errors import StoreCorruptError, StoreError

ASIDE = "damaged"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What :func:`rebuild_log` found and did.

    ``problems``: what was wrong, empty where nothing was; ``commits``: lines of the log now;
    ``made``: records whose lines were made from their contents; ``aside``: files and folders that
    were kept, relative to the store.
    """

    store: str
    problems: tuple[str, ...]
    commits: int
    made: tuple[str, ...]
    aside: tuple[str, ...]


def find_damage(store: Path) -> tuple[str, ...]:
    """What is wrong with the log, ``store.json`` and ``pending.json``; nothing changes on disk."""
    problems: list[str] = []
    for look in (_look_at_log, _look_at_own_files, read_pending):
        try:
            look(store)
        except StoreError as error:
            problems.append(str(error))
    return tuple(dict.fromkeys(problems))


def rebuild_log(path: str | Path | ObjectPath) -> Rebuilt:
    """Make the log and ``store.json`` anew from all that is whole; a sound store stays as it is.

    The store is locked meanwhile. Episodes and annotations are only read. A folder that is no
    store, or one of which too little is left, raises :class:`StoreError` and changes nothing.
    """
    store = locate(path)
    if isinstance(store, ObjectPath):
        raise StoreError(
            f"{store}: the log of an object store is written once per line and not rebuilt;"
            " 'robolearn data merge' or 'data pull' bring episodes back from a copy"
        )
    if not (store / MANIFESTS).is_dir() or not (store / EPISODES).is_dir():
        raise StoreError(f"{store} is not an episode store: it has no {MANIFESTS} and {EPISODES}")
    lock = StoreLock(store)
    try:
        return _rebuild(store)
    finally:
        lock.release()


def _rebuild(store: Path) -> Rebuilt:
    problems = find_damage(store)
    if not problems:
        entries = parse_log((store / LOG_FILE).read_bytes(), store / LOG_FILE)
        return Rebuilt(str(store), (), len(entries), (), ())
    own = _own_contents(store)
    digests = {name: sha256(data) for name, data in own.items()}
    aside = store / ASIDE / uuid.uuid4().hex[:8]
    aside.mkdir(parents=True)
    for name in (STORE_FILE, LOG_FILE, PENDING_FILE):
        if (store / name).is_file():
            shutil.copy2(store / name, aside / name)
    (store / TEMPORARY).mkdir(exist_ok=True)
    for name, data in own.items():
        replace_file(store / name, data, store / TEMPORARY / "own.json")
    found = reconstruct_log(store)
    if found.entries[0].files != digests:
        found = Reconstruction(with_own_files(found.entries, digests), found.made, tail_only=False)
    replace_log(store, found, None if found.tail_only else aside)
    kept = tuple(sorted(p.relative_to(store).as_posix() for p in aside.iterdir()))
    return Rebuilt(str(store), problems, len(found.entries), found.made, kept)


def _own_contents(store: Path) -> dict[str, bytes]:
    """``store.json`` and ``episodes/zarr.json`` as they were, as far as that can be told."""
    try:
        raw = reconstruct_identity(store) or read_identity(store)
    except StoreCorruptError:
        file = store / STORE_FILE
        raw = readable_identity(file.read_bytes() if file.is_file() else b"", uuid.uuid4().hex)
    contents, _ = empty_contents(json_bytes(raw))
    return contents


def _look_at_log(store: Path) -> None:
    data, pending = _log_data(store), None
    with contextlib.suppress(StoreCorruptError):
        pending = read_pending(store)
    if pending is not None and not data[pending.log_size :].startswith(pending.line.encode()):
        data = data[: pending.log_size]
    parse_log(data, store / LOG_FILE)


def _look_at_own_files(store: Path) -> None:
    read_identity(store)
    (first,) = parse_log(_log_data(store).split(b"\n", 1)[0] + b"\n", store / LOG_FILE)
    for name, digest in first.files.items():
        path = store / name
        if not path.is_file() or sha256(path.read_bytes()) != digest:
            raise StoreCorruptError(f"{path} was altered or lost")


def _log_data(store: Path) -> bytes:
    try:
        return (store / LOG_FILE).read_bytes()
    except OSError as error:
        raise StoreCorruptError(f"{store / LOG_FILE} cannot be read: {error.strerror}") from error
