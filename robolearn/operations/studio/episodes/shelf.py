"""Keeps stores open, each with the listing of its episodes as far as it was read.

Reading ten thousand manifests takes seconds; they are read once, in the background, and kept in the
cache. Until then a page shows what there is.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from dataclasses import dataclass

from robolearn.data.episode import EpisodeInfo
from robolearn.data.store.annotations import Annotated, annotated_info
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import RobolearnError, StoreError
from robolearn.operations.studio.asking import Ask, NotHere
from robolearn.operations.studio.episodes.cache import EpisodeCache

BLOCK = 200
"""Episodes that are read between two looks whether somebody waits."""
FIRST = 120
"""Episodes that are there before the first answer."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """One episode of a listing; ``info`` as recorded, None where ``problem`` says why."""

    id: str
    hash: str
    info: EpisodeInfo | None
    problem: str = ""


class OpenStore:
    """A store and its rows, oldest first."""

    def __init__(self, store: EpisodeStore, cache: EpisodeCache) -> None:
        self.store, self.cache = store, cache
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._known: dict[str, Row] = {}
        self._rows: tuple[Row, ...] = ()
        self._ids: tuple[str, ...] = ()
        self._kept: dict[str, EpisodeInfo] | None = None
        self._thread: threading.Thread | None = None

    def rows(self) -> tuple[tuple[Row, ...], int]:
        """The rows that were read, and how many episodes there are in all."""
        with self._reading:
            self._ids = self.store.ids()
            self._read(FIRST)
        with self._lock:
            missing = len(self._rows) < len(self._ids)
            if missing and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(
                    target=self._finish, name="studio-listing", daemon=True
                )
                self._thread.start()
            return self._rows, len(self._ids)

    def finish(self) -> tuple[Row, ...]:
        """All rows; waits until they are read."""
        self.rows()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        return self.rows()[0]

    def info(self, row: Row) -> EpisodeInfo | None:
        """A row's listing as annotated."""
        if row.info is None:
            return None
        return annotated_info(row.info, self.said(row.id))

    def said(self, episode_id: str) -> Annotated:
        """What people said of an episode; nothing where that record is damaged."""
        try:
            return self.store.annotated(episode_id)
        except StoreError as error:
            log.warning("%s", error)
            return Annotated()

    def row(self, number: int) -> Row:
        """The episode ``ep_<number>``; :class:`NotHere` where there is none."""
        name = f"ep_{number:06d}"
        with self._lock:
            known = self._known.get(name)
        if known is not None and name in self.store.ids():
            return known
        if name not in self.store.ids():
            raise NotHere(f"the store has no episode {name} (any more)")
        return self._row(name)

    def _finish(self) -> None:
        while True:
            with self._reading:
                if not self._read(BLOCK):
                    return

    def _read(self, most: int) -> bool:
        """Read up to ``most`` rows that are missing; whether there may be more."""
        if self._kept is None:
            self._kept = self._from_cache()
        fresh: list[Row] = []
        more = False
        for name in self._ids:
            if name in self._known:
                continue
            cached = self._kept.get(self._hash(name))
            if cached is None and len(fresh) >= most:
                more = True
                break
            if cached is not None:
                row = Row(name, self._hash(name), dataclasses.replace(cached, id=name))
            else:
                row = self._row(name)
                fresh.append(row)
            self._known[name] = row
        self.cache.put("info", [(r.hash, _bytes(r.info)) for r in fresh if r.info is not None])
        with self._lock:
            self._rows = tuple(self._known[i] for i in self._ids if i in self._known)
        return more

    def _hash(self, name: str) -> str:
        return self.store.manifest_hash(name)

    def _row(self, name: str) -> Row:
        try:
            return Row(name, self._hash(name), self.store.manifest(name).info)
        except (RobolearnError, OSError) as error:
            return Row(name, self._hash(name), None, str(error))

    def _from_cache(self) -> dict[str, EpisodeInfo]:
        found: dict[str, EpisodeInfo] = {}
        for key, data in self.cache.all("info").items():
            try:
                raw = json.loads(data)
                raw["signals"] = tuple(raw["signals"])
                found[key] = EpisodeInfo(**raw)
            except (ValueError, TypeError, KeyError):
                log.warning("a kept listing is of another version and is read anew")
        return found


def open_store(ask: Ask) -> OpenStore:
    """The store that a request is about, kept open; errors as :meth:`EpisodeStore.open`."""
    path = ask.thing.path

    def build() -> OpenStore:
        store = EpisodeStore.open(path)
        return OpenStore(store, EpisodeCache(store.uuid))

    # By its store.json: another store may have been put into the same place.
    try:
        stamp = (path / "store.json").stat().st_ino
    except OSError:
        stamp = 0
    return ask.library.keep(("store", ask.thing.id), build, stamp)


def _bytes(info: EpisodeInfo | None) -> bytes:
    raw = dataclasses.asdict(info) if info is not None else {}
    for said in ("labels", "split", "notes"):
        raw.pop(said, None)
    return json.dumps(raw).encode()
