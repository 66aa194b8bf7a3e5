"""Keeps episode stores open, so that a log that became longer is read on, not anew.

The walk that looks for changes and the pages that show episodes ask the same open store. One that a
page keeps stays open as long as that page does; beside it stay the few that were looked at last.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robolearn.data.store.store import EpisodeStore

KEPT = 4
"""Stores that stay open although no page shows them: those that are recorded into now."""
_Stamp = tuple[int, int, int]


class OpenStores:
    """Open stores by their folders; safe to ask from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[tuple[Path, _Stamp], EpisodeStore]
        self._open = weakref.WeakValueDictionary()
        self._last: OrderedDict[Path, EpisodeStore] = OrderedDict()

    def open(self, path: Path) -> EpisodeStore:
        """The store in a folder; the same one as long as its ``store.json`` is. Errors as
        :meth:`EpisodeStore.open`.
        """
        from robolearn.data.store.store import EpisodeStore

        # Another store may have been put into the same place, or the file was altered.
        key = (path, _stamp(path))
        with self._lock:
            store = self._open.get(key)
            if store is None:
                store = self._open[key] = EpisodeStore.open(path)
            self._last[path] = store
            self._last.move_to_end(path)
            if len(self._last) > KEPT:
                self._last.popitem(last=False)
        return store

    def damage(self, path: Path) -> str:
        """What is wrong with the store in a folder, as far as its log says; empty: nothing."""
        return self.open(path).damage


def _stamp(path: Path) -> _Stamp:
    try:
        file = (path / "store.json").stat()
    except OSError:
        return (0, 0, 0)
    return (file.st_ino, file.st_mtime_ns, file.st_size)
