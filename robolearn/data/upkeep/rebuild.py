"""Rebuilds the commit log and ``store.json`` of a damaged store; the damaged ones are kept.

On an object store the objects that differ from what they should be are put again. Machines that
write at the same time would not be told: nobody else may write meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.store.chunks import json_bytes
from robolearn.data.store.commit import replace_log
from robolearn.data.store.identity import empty_contents, read_identity
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.manifest import (
    COMMITS,
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    PENDING_FILE,
    STORE_FILE,
    TEMPORARY,
    commit_key,
    parse_entry,
    parse_log,
    read_pending,
    replace_file,
    sha256,
)
from robolearn.data.store.object_commit import PENDINGS, read_lines, read_pendings, segment
from robolearn.data.store.reconstruct import (
    Reconstruction,
    identity_bytes,
    readable_identity,
    reconstruct_identity,
    reconstruct_log,
    with_own_files,
)
from robolearn.data.store.storage import ObjectPath, locate, objects, read_plain
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_lines
from robolearn.data.upkeep.findings import Kind
from robolearn.errors import StoreCorruptError, StoreError

ASIDE = "damaged"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What :func:`rebuild_log` found and did.

    ``problems``: what was wrong, empty where nothing was; ``commits``: lines of the log now;
    ``made``: records whose lines were made from their contents; ``aside``: files and folders (of
    an object store: objects) that were kept, relative to the store.
    """

    store: str
    problems: tuple[str, ...]
    commits: int
    made: tuple[str, ...]
    aside: tuple[str, ...]


def find_damage(store: Path | ObjectPath) -> tuple[str, ...]:
    """What is wrong with the log, ``store.json`` and pending commits; nothing is changed."""
    problems: list[str] = []
    if isinstance(store, ObjectPath):
        return _damaged_objects(store)
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
        return _rebuild_objects(store)
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
        entries = parse_log(read_plain(store / LOG_FILE), store / LOG_FILE)
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
    found = _found(store, digests)
    replace_log(store, found, None if found.tail_only else aside)
    kept = tuple(sorted(p.relative_to(store).as_posix() for p in aside.iterdir()))
    return Rebuilt(str(store), problems, len(found.entries), found.made, kept)


def _found(store: Path | ObjectPath, digests: dict[str, str]) -> Reconstruction:
    """The log of a store whose own files have these digests."""
    found = reconstruct_log(store)
    if found.entries[0].files == digests:
        return found
    return Reconstruction(with_own_files(found.entries, digests), found.made, tail_only=False)


def _rebuild_objects(store: ObjectPath) -> Rebuilt:
    bucket = store.bucket
    if not bucket.under(MANIFESTS) and not bucket.under(COMMITS):
        raise StoreError(f"{store} is not an episode store: it has no {MANIFESTS} and {COMMITS}")
    own = _own_contents(store)
    lock = EpisodeStore(store, str(json.loads(own[STORE_FILE])["uuid"])).lock()
    try:
        problems = find_damage(store)
        if not problems:
            return Rebuilt(str(store), (), len(read_lines(store)), (), ())
        names = [f"{f}/{m.key}" for f in (COMMITS, PENDINGS) for m in bucket.under(f)]
        copied = objects(store, [*names, *own])
        # The first line needs them where it is lost itself.
        for name, data in own.items():
            bucket.put(name, data)
        found = _found(store, {name: sha256(data) for name, data in own.items()})
        log, made = found.entries, found.made
        wanted = own | {commit_key(e.number): segment(log, e.number) for e in log}
        wanted |= {n: data for n, data in copied.items() if _is_pending(n, data)}
        aside = f"{ASIDE}/{uuid.uuid4().hex[:8]}"
        kept = sorted(n for n, data in copied.items() if wanted.get(n) != data)
        for name in kept:
            bucket.put(f"{aside}/{name}", copied[name])
        for name, data in wanted.items():
            if copied.get(name) != data:
                bucket.put(name, data)
        bucket.delete(n for n in kept if n not in wanted)
        return Rebuilt(str(store), problems, len(log), made, tuple(f"{aside}/{n}" for n in kept))
    finally:
        lock.release()


def _is_pending(name: str, data: bytes) -> bool:
    """Whether this object says what is being committed, so that the next writer finishes it."""
    with contextlib.suppress(StoreCorruptError):
        return name.startswith(f"{PENDINGS}/") and bool(parse_entry(data.rstrip(b"\n"), name).id)
    return False


def _damaged_objects(store: ObjectPath) -> tuple[str, ...]:
    problems: list[str] = []

    def told(kind: Kind, path: str, message: str) -> None:
        del kind
        problems.append(f"{store / path}: {message}")

    entries = check_lines(store, told)
    try:
        read_identity(store)
        read_pendings(store)
    except StoreError as error:
        problems.append(str(error))
    for name, digest in entries[0].files.items() if entries else ():
        if not (store / name).exists() or sha256(read_plain(store / name)) != digest:
            problems.append(f"{store / name} was altered or lost")
    return tuple(dict.fromkeys(problems))


def _own_contents(store: Path | ObjectPath) -> dict[str, bytes]:
    """``store.json`` and ``episodes/zarr.json`` as they were, as far as that can be told."""
    try:
        raw = reconstruct_identity(store) or read_identity(store)
    except StoreCorruptError:
        raw = readable_identity(identity_bytes(store), uuid.uuid4().hex)
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
        return read_plain(store / LOG_FILE)
    except OSError as error:
        raise StoreCorruptError(f"{store / LOG_FILE} cannot be read: {error.strerror}") from error
