"""Keeps what was made of episodes, beside nobody's store: listings, thumbnails, measures.

One SQLite file for each store in the user's cache folder, keyed by the hash of an episode's
manifest, so that what is kept is that of these very bytes. Losing it costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from robolearn.data.reading.cache import user_cache_dir

FORMAT = 1
"""In the file's name: another layout begins another file."""
log = logging.getLogger(__name__)


class EpisodeCache:
    """Bytes by ``(what, hash of the manifest)``; safe to use from many threads and processes."""

    def __init__(self, store_uuid: str, folder: Path | None = None) -> None:
        folder = user_cache_dir() / "studio" if folder is None else folder
        self._lock = threading.Lock()
        self._database = self._open(folder / f"{store_uuid}.{FORMAT}.sqlite")

    def get(self, what: str, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Those of ``hashes`` that are kept."""
        found: dict[str, bytes] = {}
        with self._lock:
            for begin in range(0, len(hashes), 500):
                part = hashes[begin : begin + 500]
                marks = ",".join("?" * len(part))
                rows = self._database.execute(
                    f"SELECT hash, data FROM kept WHERE what = ? AND hash IN ({marks})",  # noqa: S608
                    (what, *part),
                )
                found.update((str(h), bytes(d)) for h, d in rows)
        return found

    def all(self, what: str) -> Mapping[str, bytes]:
        """Everything kept of a kind, by hash."""
        with self._lock:
            rows = self._database.execute("SELECT hash, data FROM kept WHERE what = ?", (what,))
            return {str(h): bytes(d) for h, d in rows}

    def put(self, what: str, rows: Iterable[tuple[str, bytes]]) -> None:
        """Keep some; a full disk costs only the keeping."""
        with self._lock, contextlib.suppress(sqlite3.OperationalError), self._database:
            self._database.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", [(what, h, d) for h, d in rows]
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _open(self, path: Path) -> sqlite3.Connection:
        for place in (path, None):
            try:
                if place is not None:
                    place.parent.mkdir(parents=True, exist_ok=True)
                made = sqlite3.connect(place or ":memory:", check_same_thread=False, timeout=2.0)
                made.execute("PRAGMA journal_mode=WAL")
                made.execute("PRAGMA synchronous=OFF")
                made.execute("PRAGMA cache_size=-2000")
                made.execute(
                    "CREATE TABLE IF NOT EXISTS kept"
                    " (what TEXT, hash TEXT, data BLOB, PRIMARY KEY (what, hash)) WITHOUT ROWID"
                )
            except (sqlite3.DatabaseError, OSError) as error:
                # A damaged cache is thrown away; one that cannot be written is not needed.
                log.warning("%s is not used as a cache (%s)", place, error)
                if place is not None and isinstance(error, sqlite3.DatabaseError):
                    with contextlib.suppress(OSError):
                        place.unlink(missing_ok=True)
                continue
            return made
        raise RuntimeError("SQLite cannot even keep a table in memory")
