"""Copies of a whole store, line by line of its log: same id, same hashes, same history.

Each episode is committed on the other side by the usual rule, so that a copy that was interrupted
goes on where it ended, and a later one brings only what is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from robolearn.data.store.chunks import read_checked
from robolearn.data.store.commit import ADVICE
from robolearn.data.store.manifest import (
    EPISODES,
    STORE_FILE,
    TRASH,
    LogEntry,
    is_episode,
    parse_manifest,
    purged,
    record_name,
    trashed,
)
from robolearn.data.store.storage import ObjectPath, Place, fetch, locate, read_plain
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import StoreCorruptError, StoreError


def copy_store(
    source: EpisodeStore,
    target: str | Path | ObjectPath,
    advance: Callable[[int], None] | None = None,
) -> tuple[EpisodeStore, int]:
    """Make ``target`` what ``source`` is; returns it and the number of new lines of its log.

    ``target`` is absent, or an earlier copy to which nothing else was added; anything else, or a
    source whose trash was emptied before, raises :class:`StoreError` and changes nothing.
    """
    if source.damage:
        raise StoreCorruptError(f"{source.damage}. {ADVICE}")
    made = _open(source, locate(target))
    have, want = made.log(), source.log()
    if have[: len(want)] == want:
        return made, 0
    if want[: len(have)] != have:
        raise StoreError(
            f"{made.path} and {source.path} both have commits that the other lacks;"
            f" 'robolearn data merge {source.path} --into {made.path}' adds the missing episodes"
        )
    fresh = want[len(have) :]
    require_whole(source, want, fresh)
    with made.writer() as writer:
        for entry in fresh:
            _copy(source, entry, writer, made)
            if advance is not None:
                advance(1)
    return made, len(fresh)


def _open(source: EpisodeStore, target: Path | ObjectPath) -> EpisodeStore:
    identity = read_plain(source.path / STORE_FILE)
    if isinstance(target, ObjectPath):
        absent = not target.bucket.under("")
    else:
        absent = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    made = EpisodeStore.create(target, identity=identity) if absent else EpisodeStore.open(target)
    if made.uuid != source.uuid:
        raise StoreError(
            f"{target} is another store than {source.path}, not a copy of it; choose a new place,"
            f" or 'robolearn data merge {source.path} --into {target}'"
        )
    return made


def require_whole(source: EpisodeStore, log: Sequence[LogEntry], fresh: Sequence[LogEntry]) -> None:
    """:class:`StoreError` where an episode of the ``fresh`` lines of ``log`` is there no more."""
    lost = sorted(purged(log) & {e.id for e in fresh})
    if lost:
        raise StoreError(
            f"{source.path} has deleted {', '.join(lost)} for good, so its history cannot be"
            f" copied; 'robolearn data merge {source.path} --into STORE' copies what is there"
        )


def record_of(source: EpisodeStore, entry: LogEntry) -> tuple[bytes, Place]:
    """The record of a line of the log, and the folder that holds it and its episode."""
    name = record_name(entry.id)
    moved = isinstance(source.path, Path) and entry.id in trashed(source.log())
    base: Place = source.path / TRASH if moved else source.path
    data = read_plain(base / name)
    if hashlib.sha256(data).hexdigest() != entry.files[name]:
        raise StoreCorruptError(f"{base / name} was altered; run 'robolearn data check'")
    return data, base


def _copy(source: EpisodeStore, entry: LogEntry, writer: StoreWriter, made: EpisodeStore) -> None:
    data, base = record_of(source, entry)
    if not is_episode(entry.id):
        writer.commit_copy(entry, data, None)
        return
    manifest = parse_manifest(data, base / record_name(entry.id))
    files = manifest.by_path()
    root = base / EPISODES / (manifest.folder or entry.id)
    if isinstance(root, Path) and isinstance(made.path, ObjectPath):
        writer.commit_copy(entry, data, root)  # uploaded from where it is
        return
    root = fetch(root, files)
    draft = writer.drafts.begin()
    try:
        for path in files:
            draft.sink.write(path, read_checked(root, path, files))
        draft.sink.sync()
        writer.commit_copy(entry, data, draft.sink.root)
    finally:
        draft.discard()
