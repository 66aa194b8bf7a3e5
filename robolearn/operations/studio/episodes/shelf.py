"""Keeps stores open, each with the listing of its episodes as far as it was read.

Reading ten thousand manifests takes seconds; they are read once, in the background, and kept in the
cache. Until then a page shows what there is.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from robolearn.data.episode import EpisodeInfo
from robolearn.data.store.annotations import Annotated, Annotation, active, annotated_info
from robolearn.data.store.manifest import LogEntry, episode_name, is_episode, record_name
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import RobolearnError, StoreError
from robolearn.operations.studio.asking import Ask, NotHere
from robolearn.operations.studio.episodes.cache import EpisodeCache

BLOCK = 50
"""Episodes that are read between two looks whether somebody asks."""
ASKED_S, PAUSE_S = 0.1, 0.05
"""Who asked within the former is left alone for the latter."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """What one state of the commit log says: the episodes by id, oldest first, each with its
    ``place`` and the hash of its manifest.
    """

    entries: tuple[LogEntry, ...]
    ids: tuple[str, ...] = ()
    place: Mapping[str, int] = field(default_factory=dict[str, int])
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The rows that were read, as annotated; ``total``: episodes in all. The same object comes back
    until something changed.
    """

    rows: tuple[Row, ...]
    infos: tuple[EpisodeInfo | None, ...]
    total: int


class OpenStore:
    """A store and its rows, oldest first."""

    def __init__(self, store: EpisodeStore, cache: EpisodeCache) -> None:
        self.store, self.cache = store, cache
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._known: dict[str, Row] = {}
        self._rows: tuple[Row, ...] = ()
        self._logged = Logged(())
        self._whole: Logged | None = None
        self._shown: tuple[Logged, tuple[Row, ...], Shown] | None = None
        self._standing: tuple[Logged, Mapping[str, list[Annotation]]] | None = None
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0

    def logged(self) -> Logged:
        """What the commit log says now; worked out anew only when the log is another."""
        entries = self.store.log()
        # While a commit is unfinished, an equal log is another object each time.
        if self._logged.entries is not entries and self._logged.entries != entries:
            ids = self.store.ids()
            self._logged = Logged(
                entries,
                ids,
                {name: k for k, name in enumerate(ids)},
                {e.id: e.files[record_name(e.id)] for e in entries if is_episode(e.id)},
            )
        return self._logged

    def shown(self) -> Shown:
        """The rows that were read so far; the rest is read in the background from now on."""
        logged = self.logged()
        self._asked_s = time.monotonic()
        with self._lock:
            alone = self._thread is None or not self._thread.is_alive()
        if alone and self._read(logged, FIRST):
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(
                        target=self._finish, name="studio-listing", daemon=True
                    )
                    self._thread.start()
        rows, kept = self._rows, self._shown
        if kept is None or kept[0] is not logged or kept[1] is not rows:
            kept = (logged, rows, Shown(rows, self._as_annotated(rows), len(logged.ids)))
            self._shown = kept
        return kept[2]

    def said(self, episode_id: str) -> Annotated:
        """What people said of an episode; nothing where that record is damaged."""
        try:
            return self.store.annotated(episode_id)
        except StoreError as error:
            log.warning("%s", error)
            return Annotated()

    def standing(self, episode_id: str) -> Sequence[Annotation]:
        """The annotations of an episode that were not taken back, oldest first; none where a record
        is damaged: 'robolearn data check' names it, and what is sound counts all the same.
        """
        logged, kept = self.logged(), self._standing
        if kept is None or kept[0] is not logged:
            found: dict[str, list[Annotation]] = {}
            try:
                records = active(self.store.annotations())
            except StoreError:
                records = ()
            for record in records:
                for episode in record.episodes if record.id.startswith("an_") else ():
                    if not record.undoes:
                        found.setdefault(episode, []).append(record)
            kept = self._standing = (logged, found)
        return kept[1].get(episode_id, [])

    def row(self, number: int) -> Row:
        """The episode ``ep_<number>``; :class:`NotHere` where there is none."""
        name, logged = episode_name(number), self.logged()
        self._asked_s = time.monotonic()
        if name not in logged.place:
            raise NotHere(f"the store has no episode {name} (any more)")
        return self._known.get(name) or self._row(name, logged)

    def _as_annotated(self, rows: Sequence[Row]) -> tuple[EpisodeInfo | None, ...]:
        try:
            said = self.store.all_annotated()
        except StoreError:
            # One record is damaged: what is sound counts, episode by episode.
            said = {row.id: self.said(row.id) for row in rows}
        return tuple(
            annotated_info(row.info, said[row.id]) if row.info and row.id in said else row.info
            for row in rows
        )

    def _finish(self) -> None:
        try:
            while self._read(self.logged(), BLOCK):
                # Whoever asks comes first: all threads share one interpreter.
                if time.monotonic() - self._asked_s < ASKED_S:
                    time.sleep(PAUSE_S)
        except (RobolearnError, OSError) as error:
            log.warning("the episodes of %s could not be listed: %s", self.store.path, error)

    def _read(self, logged: Logged, most: int) -> bool:
        """Read up to ``most`` rows that are missing; whether there may be more."""
        if self._whole is logged:
            return False
        with self._reading:
            missing = [name for name in logged.ids if name not in self._known]
            now = missing[:most]
            kept = self.cache.get("info", [logged.hashes.get(name, "") for name in now])
            fresh: list[Row] = []
            for name in now:
                info = _info(kept.get(logged.hashes.get(name, "")), name)
                if info is not None:
                    self._known[name] = Row(name, logged.hashes[name], info)
                else:
                    fresh.append(self._row(name, logged))
                    self._known[name] = fresh[-1]
            good = [(r.hash, _bytes(r.info)) for r in fresh if r.info is not None]
            if good:
                self.cache.put("info", good)
            self._rows = tuple(self._known[i] for i in logged.ids if i in self._known)
            if len(missing) > len(now):
                return True
            self._whole = logged
            return False

    def _row(self, name: str, logged: Logged) -> Row:
        known = logged.hashes.get(name, "")
        try:
            # What people said is put to it where it is shown.
            return Row(name, known, annotated_info(self.store.manifest(name).info, Annotated()))
        except (RobolearnError, OSError) as error:
            return Row(name, known, None, str(error))


def open_store(ask: Ask) -> OpenStore:
    """The store that a request is about, kept open; errors as :meth:`EpisodeStore.open`."""
    store = ask.library.stores.open(ask.thing.path)

    def build() -> OpenStore:
        return OpenStore(store, EpisodeCache(store.uuid))

    return ask.library.keep(("store", ask.thing.id), build, store)


def _info(data: bytes | None, name: str) -> EpisodeInfo | None:
    """A listing as it was kept, of the episode that is called ``name`` here."""
    if data is None:
        return None
    try:
        raw = json.loads(data)
        return EpisodeInfo(**(raw | {"id": name, "signals": tuple(raw["signals"])}))
    except (ValueError, TypeError, KeyError):
        log.warning("a kept listing is of another version and is read anew")
        return None


def _bytes(info: EpisodeInfo) -> bytes:
    raw = {f.name: getattr(info, f.name) for f in dataclasses.fields(info)}
    for said in ("labels", "split", "notes"):
        raw.pop(said, None)
    return json.dumps(raw).encode()
