"""Keeps what was found, tells what changed, and holds a bounded number of things that are open."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from robolearn.operations.studio.found import Finder, Thing
from robolearn.operations.studio.opened import OpenStores

LOOK_S = 1.0
"""Between two looks at the folders."""
KEPT = 48
"""Open stores, tables and documents that are kept."""
REMEMBERED = 512
"""Changes that a page which was away can still ask for."""

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Changes:
    """Which things are new, changed or gone since an earlier ``version``; ``all``: too long ago."""

    version: int
    ids: tuple[str, ...]
    all: bool = False


class _Slot:
    """What is kept under one key; its lock lets one thread build it while others wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stamp: Hashable = None
        self.value: Any = None
        self.built = False


class Library:
    """Everything under ``roots``; :meth:`watch` looks again by itself until :meth:`close`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._finder = Finder(roots)
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._things: tuple[Thing, ...] = ()
        self._by_id: dict[str, Thing] = {}
        self._version = 0
        self._history: list[tuple[int, frozenset[str]]] = []
        self._listeners: list[Callable[[], None]] = []
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.look()

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders that are looked into."""
        return self._finder.roots

    @property
    def stores(self) -> OpenStores:
        """Every store that is open here."""
        return self._finder.stores

    @property
    def left_out(self) -> int:
        """Things that are there and not listed, because there are too many."""
        return self._finder.left_out

    @property
    def version(self) -> int:
        """Grows with every change that was seen."""
        return self._version

    def things(self) -> tuple[Thing, ...]:
        """Everything found, by root and path."""
        return self._things

    def thing(self, thing_id: str) -> Thing | None:
        """One of them; None where nothing has this id (any more)."""
        return self._by_id.get(thing_id)

    def look(self) -> bool:
        """Walk the folders now; whether something changed."""
        with self._looking:
            found = self._finder.find()
        fresh = {thing.id: thing for thing in found}
        with self._lock:
            before = self._by_id
            changed = {i for i in fresh.keys() | before.keys() if fresh.get(i) != before.get(i)}
            if not changed:
                return False
            self._things, self._by_id = found, fresh
            self._version += 1
            self._history.append((self._version, frozenset(changed)))
            del self._history[:-REMEMBERED]
            listeners = tuple(self._listeners)
        for tell in listeners:
            tell()
        return True

    def changes(self, since: int) -> Changes:
        """What happened after ``since``."""
        with self._lock:
            if since > self._version or (self._history and since < self._history[0][0] - 1):
                return Changes(self._version, (), all=True)
            ids = {i for version, group in self._history if version > since for i in group}
            return Changes(self._version, tuple(sorted(ids)))

    def listen(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` after every change, on some thread; returns what ends that."""
        with self._lock:
            self._listeners.append(tell)

        def end() -> None:
            with self._lock:
                self._listeners.remove(tell)

        return end

    def keep(self, key: Hashable, build: Callable[[], T], stamp: Hashable = None) -> T:
        """What ``build`` makes, kept under ``key`` until ``stamp`` differs or others need the room.

        One thread builds, others that ask for the same wait for it.
        """
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > KEPT:
                self._slots.popitem(last=False)
        with slot.lock:
            if not slot.built or slot.stamp != stamp:
                slot.value, slot.stamp, slot.built = build(), stamp, True
            return cast("T", slot.value)

    def watch(self) -> None:
        """Look every :data:`LOOK_S` from now on."""
        self._thread = threading.Thread(target=self._watch, name="studio-look", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether nothing will be told any more."""
        return self._stop.is_set()

    def close(self) -> None:
        """Look no more; who listens is woken up to see that."""
        self._stop.set()
        with self._lock:
            listeners = tuple(self._listeners)
        for tell in listeners:
            tell()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except OSError as error:
                log.warning("the folders could not be looked into: %s", error)
