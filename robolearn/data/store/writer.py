"""Appends to a store: the commit, and what to do with a killed writer's leftovers."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import time
from pathlib import Path

from robolearn.data.episode import Episode
from robolearn.data.store.annotations import (
    Annotation,
    active,
    annotation_bytes,
    check_annotation,
    parse_annotation,
    says_nothing,
)
from robolearn.data.store.commit import Commits
from robolearn.data.store.drafts import (
    Drafts,
    PreparedEpisode,
    full_disk_told,
    undo_unless_flushed,
)
from robolearn.data.store.journal import Journal, recoverable
from robolearn.data.store.manifest import (
    LogEntry,
    Manifest,
    episode_name,
    is_episode,
    manifest_bytes,
    near_episode,
    purged,
    record_name,
    trashed,
)
from robolearn.data.store.storage import ObjectPath
from robolearn.errors import CommitConflictError, DataError, StoreError, did_you_mean

_log = logging.getLogger(__name__)


class StoreWriter:
    """Appends episodes while the store's lock is held (see ``EpisodeStore.writer``)."""

    def __init__(self, store: Path | ObjectPath, staging: Path, log: Commits) -> None:
        self._store, self._staging, self._log = store, staging, log
        self.drafts = Drafts(staging, str(store))
        staging.mkdir(exist_ok=True)
        _clear(staging)
        killed = len(recoverable(staging))
        if killed:
            _log.warning(
                "%d killed recordings in %s: see 'robolearn data repair %s'", killed, store, store
            )

    def append(self, episode: Episode) -> str:
        """Write and commit an episode; returns its id. Durable when this returns."""
        return self.commit(self.drafts.prepare(self.drafts.begin(), episode))

    def commit(self, prepared: PreparedEpisode) -> str:
        """Give a prepared episode its id and commit it: from here on it exists."""
        if not prepared.folder.is_dir():
            raise StoreError(
                f"{self._store}: the prepared episode {prepared.folder} is gone: it was committed"
                " already, or discarded, or its staging folder is not that of this machine"
            )
        with undo_unless_flushed(str(self._store), prepared.folder):
            self._log.refresh()
            while True:
                episode_id = episode_name(self._next("ep_"))
                folder = self._log.folder(episode_id, prepared.manifest)
                data = manifest_bytes(_named(prepared.manifest, episode_id, folder))
                try:
                    self._log.put(episode_id, data, folder=prepared.folder)
                    break
                except CommitConflictError:
                    self._log.refresh()  # another machine was faster: the next id
        # Renamed into the store, or uploaded from here.
        shutil.rmtree(prepared.folder, ignore_errors=True)
        Journal(prepared.folder.with_suffix(".journal")).remove()
        return episode_id

    def commit_copy(self, entry: LogEntry, data: bytes, folder: Path | None) -> None:
        """Commit a record of another store as it is there, after the same lines."""
        self._log.refresh()
        with full_disk_told(str(self._store)):
            self._log.put(entry.id, data, episodes=entry.episodes, folder=folder)
        if self._log.entries[-1] != entry:
            raise StoreError(f"{self._store} was written by another writer meanwhile; try again")

    def annotate(self, annotation: Annotation) -> str:
        """Say something about episodes; returns the id of the record. Durable on return.

        An unknown or removed episode, or a record that says nothing, is a :class:`DataError`.
        """
        self._log.refresh()
        if annotation.undoes:
            annotation = dataclasses.replace(
                annotation, episodes=self._undoable(annotation.undoes).episodes
            )
        check_annotation(annotation)
        if says_nothing(annotation):
            raise DataError("the annotation says nothing: give an outcome, labels, a note, a split")
        self._present(annotation.episodes)
        return self._record("an", annotation)

    def remove(self, episodes: tuple[str, ...], author: str, note: str = "") -> str:
        """Move episodes to the trash; returns the id of the record."""
        self._log.refresh()
        record = Annotation(episodes, author, note=note)
        check_annotation(record)
        self._present(episodes)
        return self._record("rm", record)

    def restore(self, episodes: tuple[str, ...], author: str, note: str = "") -> str:
        """Bring removed episodes back from the trash; returns the id of the record."""
        self._log.refresh()
        record = Annotation(episodes, author, note=note)
        check_annotation(record)
        gone = trashed(self._log.entries)
        wrong = [e for e in episodes if e not in gone]
        if wrong:
            raise DataError(
                f"not in the trash: {', '.join(wrong)}; in it: {', '.join(sorted(gone)) or 'none'}"
            )
        return self._record("rs", record)

    def empty_trash(
        self, author: str, note: str = "", episodes: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Delete removed episodes (all, or those named) for good; returns their ids.

        This cannot be undone; the log keeps who did it and when.
        """
        self._log.refresh()
        gone = trashed(self._log.entries)
        wrong = [e for e in episodes if e not in gone]
        if wrong:
            raise DataError(
                f"not in the trash: {', '.join(wrong)}; in it: {', '.join(sorted(gone)) or 'none'}"
            )
        chosen = episodes or tuple(sorted(gone))
        if chosen:
            record = Annotation(chosen, author, note=note)
            check_annotation(record)
            self._record("pg", record)
        return chosen

    def _record(self, prefix: str, annotation: Annotation) -> str:
        while True:
            number = max(len(self._log.entries), self._next("an_", "rm_", "rs_", "pg_"))
            record_id = f"{prefix}_{number:06d}"
            full = dataclasses.replace(annotation, id=record_id, wall_ns=time.time_ns())
            try:
                with full_disk_told(str(self._store)):
                    self._log.put(record_id, annotation_bytes(full), episodes=full.episodes)
                return record_id
            except CommitConflictError:
                self._log.refresh()

    def _next(self, *prefixes: str) -> int:
        """The number after the highest one; a log that was rebuilt may have lost lines before."""
        used = [e.id.split("_")[1] for e in self._log.entries if e.id.startswith(prefixes)]
        return max((int(number) for number in used), default=-1) + 1

    def _present(self, episodes: tuple[str, ...]) -> None:
        """Every episode is committed and not removed."""
        ids = [entry.id for entry in self._log.entries if is_episode(entry.id)]
        gone, deleted = trashed(self._log.entries), purged(self._log.entries)
        for episode in episodes:
            if episode in deleted:
                raise DataError(f"{episode} was deleted from the trash for good")
            if episode not in ids:
                raise DataError(
                    f"{self._store} has no episode '{episode}'.{near_episode(episode, ids)}"
                    f" It has {len(ids)}" + (f": {ids[0]} to {ids[-1]}" if ids else "")
                )
            if episode in gone:
                raise DataError(f"{episode} is in the trash; 'robolearn data restore' first")

    def _undoable(self, record_id: str) -> Annotation:
        """The standing annotation ``record_id``."""
        ids = [e.id for e in self._log.entries if e.id.startswith("an_")]
        if record_id not in ids:
            hint = " Use 'robolearn data restore'." if record_id.startswith("rm_") else ""
            raise DataError(
                f"no annotation '{record_id}' to undo.{did_you_mean(record_id, ids)}{hint}"
            )
        files = [self._store / record_name(i) for i in ids]
        history = [parse_annotation(f.read_bytes(), f) for f in files]
        for record in active(history):
            if record.id == record_id:
                return record
        raise DataError(f"{record_id} is undone already")

    def close(self) -> None:
        """Remove leftovers of drafts that were never committed and cannot be recovered."""
        _clear(self._staging)


def _named(manifest: Manifest, episode_id: str, folder: str) -> Manifest:
    return Manifest(dataclasses.replace(manifest.info, id=episode_id), manifest.files, folder)


def _clear(folder: Path) -> None:
    kept = {part for journal in recoverable(folder) for part in (journal.folder, journal.draft)}
    for left in folder.iterdir():
        if left in kept:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
