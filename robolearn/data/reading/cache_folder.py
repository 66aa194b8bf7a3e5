"""Says what lies in the cache folder, and gets the room back.

Copies that training reads are keyed by content, so a store that grows leaves older ones behind.
Nothing here is needed: what is removed is built again when somebody reads it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.reading.cache import user_cache_dir
from robolearn.data.store.lock import StoreLock
from robolearn.errors import StoreError, StoreLockedError

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One copy: its folder, size, signals and episodes, and days since it was last opened.

    ``complete`` is False for what a killed build left (or one that is at work).
    """

    path: Path
    size_bytes: int
    signals: tuple[str, ...]
    episodes: int
    unused_days: float
    complete: bool


def cache_entries(folder: Path | None = None) -> tuple[CacheEntry, ...]:
    """All copies below ``folder`` (None: the user's cache folder), the longest unused first."""
    root = user_cache_dir() if folder is None else folder
    found = [_entry(path) for path in (*root.glob("flat-*"), *root.glob(".flat-*"))]
    return tuple(sorted(found, key=lambda e: (-e.unused_days, e.path)))


def clear_cache(
    folder: Path | None = None, *, unused_days: float = 0.0
) -> tuple[tuple[CacheEntry, ...], tuple[CacheEntry, ...]]:
    """Remove copies that nobody opened for ``unused_days``; those removed, and those being built.

    A training that has a copy open keeps reading it. Killed recordings and uploads lie elsewhere
    in the folder and stay. A place that may not be written is a :class:`StoreError`.
    """
    gone: list[CacheEntry] = []
    busy: list[CacheEntry] = []
    for entry in cache_entries(folder):
        if entry.unused_days < unused_days:
            continue
        try:
            lock = StoreLock(entry.path)
        except StoreLockedError:
            busy.append(entry)
            continue
        except FileNotFoundError:
            continue
        try:
            # Without its index a copy is not read, should the rest be interrupted.
            (entry.path / "index.json").unlink(missing_ok=True)
            shutil.rmtree(entry.path)
        except OSError as error:
            raise StoreError(f"cannot remove {entry.path}: {error.strerror}") from error
        finally:
            lock.release()
        gone.append(entry)
    return tuple(gone), tuple(busy)


def _entry(path: Path) -> CacheEntry:
    index = path / "index.json"
    raw: dict[str, list[str]] = {}
    size, used_s = 0, 0.0
    # Another process may build or remove it meanwhile.
    with contextlib.suppress(OSError, ValueError):
        raw = json.loads(index.read_text(encoding="utf-8"))
    with contextlib.suppress(OSError):
        for file in path.iterdir():
            status = file.stat()
            size += status.st_size
            # Listing reads the index; whoever reads data opens the arrays.
            read_s = 0.0 if file.name == index.name else status.st_atime
            used_s = max(used_s, read_s, status.st_mtime)
    return CacheEntry(
        path=path,
        size_bytes=size,
        signals=tuple(raw.get("kept", ())),
        episodes=len(raw.get("ids", ())),
        unused_days=max(0.0, (time.time() - used_s) / DAY_S) if used_s else 0.0,
        complete=bool(raw),
    )
