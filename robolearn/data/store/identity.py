"""Says what makes a folder, or a prefix of a bucket, an episode store; makes an empty one."""

from __future__ import annotations

import glob
import json
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

from robolearn.data.store.chunks import fsync_path, json_bytes
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.manifest import (
    COMMITS,
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    STORE_FILE,
    TEMPORARY,
    VERSION,
    LogEntry,
    commit_key,
    next_entry,
    sha256,
)
from robolearn.data.store.storage import ObjectPath, read_plain
from robolearn.errors import StoreCorruptError, StoreError, StoreLockedError

FORMAT = "robolearn-episode-store"
EPISODES_META = f"{EPISODES}/zarr.json"


def read_identity(path: Path | ObjectPath) -> dict[str, Any]:
    """The contents of ``store.json``; another file or a newer format raises."""
    file = path / STORE_FILE
    try:
        raw = json.loads(read_plain(file))
        name, version = raw["format"], int(raw["version"])
    except FileNotFoundError as error:
        raise no_identity_error(path) from error
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


def no_identity_error(path: Path | ObjectPath) -> StoreError:
    """Why ``path`` is no store."""
    if isinstance(path, ObjectPath):
        if path.bucket.under(COMMITS) or path.bucket.under(MANIFESTS):
            return StoreCorruptError(
                f"{path / STORE_FILE} is missing: the store's metadata was lost"
            )
        return StoreError(
            f"no episode store at {path}; make one with 'robolearn data push STORE {path}'"
        )
    if (path / LOG_FILE).exists() or (path / MANIFESTS).is_dir():
        return StoreCorruptError(f"{path / STORE_FILE} is missing: the store's metadata was lost")
    if (path / ".zgroup").exists():
        return StoreError(
            f"{path} is a zarr v2 folder, not an episode store;"
            f" use 'robolearn data import {path} --out STORE'"
        )
    inside = sorted(p.parent.name for p in path.glob(f"*/{STORE_FILE}"))
    hint = f"; did you mean '{path / inside[0]}'?" if inside else ""
    advice = hint or "; 'robolearn data import' makes one from other formats"
    return StoreError(f"{path} is not an episode store (no {STORE_FILE}){advice}")


def empty_contents(identity: bytes | None = None) -> tuple[dict[str, bytes], LogEntry]:
    """The files of an empty store and the first line of its log, which covers them.

    ``identity``: the ``store.json`` to use, else a new one.
    """
    made = {
        "format": FORMAT,
        "version": VERSION,
        "uuid": uuid.uuid4().hex,
        "created_wall_ns": time.time_ns(),
    }
    group: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    contents = {STORE_FILE: identity or json_bytes(made), EPISODES_META: json_bytes(group)}
    return contents, next_entry(None, "", {name: sha256(data) for name, data in contents.items()})


def write_empty(folder: Path, identity: bytes | None = None) -> None:
    """A complete empty store, durable."""
    contents, first = empty_contents(identity)
    contents[LOG_FILE] = first.line()
    for sub in (EPISODES, MANIFESTS, TEMPORARY):
        (folder / sub).mkdir(parents=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        fsync_path(folder / name)
    for sub in (EPISODES, MANIFESTS, TEMPORARY, "."):
        fsync_path(folder / sub)


def put_empty(place: ObjectPath, identity: bytes | None = None) -> None:
    """A complete empty store as objects. Putting ``store.json`` decides whose it is; the rest
    follows from it, so that the next one can finish what a killed creation left.
    """
    mark = uuid.uuid4().hex
    contents, _ = empty_contents(identity)
    if not place.bucket.put_new(STORE_FILE, contents[STORE_FILE], mark):
        found = (place / STORE_FILE).read_bytes()
        if place.bucket.under(COMMITS) or (identity is not None and found != identity):
            raise StoreError(f"{place} holds a store already; open it, or choose another prefix")
        contents, _ = empty_contents(found)
    _, first = empty_contents(contents[STORE_FILE])
    place.bucket.put(EPISODES_META, contents[EPISODES_META])
    place.bucket.put_new(commit_key(0), first.line(), mark)


def sweep_creations(target: Path) -> None:
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
