"""Keeps the trials: one SQLite file per results folder, the same schema for sim and real.

A simulated trial is identified by policy, world and its engine, suite, condition and its variant,
seed, judge, code, libraries and batch size; the database refuses a second one. A real trial cannot
be repeated exactly: its row is written as *started* before the arm moves, and finished or aborted
after it. Rows are added in transactions: after a kill each trial is there entirely or not at all,
or, on a robot, as started.

Nothing is taken away or written over: the database refuses to delete rows and to change what ended
trials say (they may be voided, with a note), each row has a digest, and success is checked against
reason and score: a file that was edited by other means is refused when it is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from eval.trials import old_tables
from eval.trials.closing import require_open, write_closing
from eval.trials.refusals import leave_note, take_notes
from eval.trials.rows import (
    COLUMNS,
    FILE_NAME,
    KEY,
    LACKED,
    SCHEMA_VERSION,
    UNSIGNED,
    consistent,
    readable_error,
    reading,
    record_of,
    row_values,
    select,
    version_of,
)
from robolearn.data.store.lock import StoreLock
from robolearn.errors import DataError, StoreCorruptError, StoreError, StoreLockedError
from robolearn.types import TrialRecord

log = logging.getLogger(__name__)

# What counts in rates: an aborted trial is a failure, never nothing.
SCORED = ("finished", "aborted")
# Why a trial ended whose process died without a word.
UNKNOWN = "unknown"

_FIXED = ", ".join(name for name in COLUMNS if name not in ("status", "note", *UNSIGNED))
_SCHEMA = (
    f"""CREATE TABLE trials (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      {", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())}
    ) STRICT""",
    f"""CREATE UNIQUE INDEX one_trial
      ON trials ({", ".join(KEY)}, CASE WHEN kind = 'sim' THEN '' ELSE episode END)
      WHERE kind = 'sim' OR episode != ''""",
    """CREATE TRIGGER trials_stay BEFORE DELETE ON trials
      BEGIN SELECT RAISE(ABORT, 'trials are never deleted; void them'); END""",
    f"""CREATE TRIGGER ended_trials_stay BEFORE UPDATE OF {_FIXED} ON trials
      WHEN OLD.status != 'started'
      BEGIN SELECT RAISE(ABORT, 'a trial that has ended does not change'); END""",
    """CREATE TRIGGER status_goes_on BEFORE UPDATE OF status, note ON trials
      WHEN OLD.status = 'voided' OR (OLD.status != 'started' AND NEW.status != 'voided')
      BEGIN SELECT RAISE(ABORT, 'a trial that has ended can only be voided'); END""",
)


@dataclasses.dataclass(frozen=True, slots=True)
class TrialKey:
    """What makes a simulated trial the same trial."""

    policy_hash: str
    env_hash: str
    engine: str
    suite: str
    condition: str
    variant: str
    seed: int
    judge: str
    code: str
    libraries: str
    batch: int


def key_of(record: TrialRecord) -> TrialKey:
    """The identity of a record."""
    return TrialKey(**{name: getattr(record, name) for name in KEY})


class TrialStore:
    """The trials of one results folder, opened for writing: one writer at a time (another gets
    :class:`StoreLockedError` at once, and this one is told when it closes), readers at any time
    (:func:`read_trials`).

    Tables of earlier versions, and the ``trials.jsonl`` of an older deployment, are taken over.
    Trials that a process left started when it died are aborted for the reason ``unknown``, or end
    as ``orphaned`` says, who is given the row's number and the trial.
    """

    def __init__(
        self, folder: Path, orphaned: Callable[[int, TrialRecord], TrialRecord] | None = None
    ) -> None:
        self.folder, self.path = folder, folder / FILE_NAME
        self._orphaned = orphaned or (lambda _, record: _orphan(record))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make '{folder}': {error.strerror}") from error
        try:
            self._lock = StoreLock(folder, f"the table of trials in '{folder}'")
        except StoreLockedError:
            leave_note(folder)
            raise
        take_notes(folder)  # What was left to a writer that was killed is nobody's news any more.
        self._closed = False
        try:
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._create()
            self._end_orphans()
        except sqlite3.DatabaseError as error:
            self._lock.release()
            raise readable_error(error, self.path) from error
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> TrialStore:  # noqa: PYI034 - jaxtyping with beartype refuses Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file and say who else wanted to write meanwhile; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._db.close()
        for who in take_notes(self.folder):
            log.warning("%s wanted to write into '%s', too, and was refused", who, self.folder)
        self._lock.release()

    def add(self, records: Sequence[TrialRecord]) -> None:
        """Add trials in one transaction: all or none.

        Raises :class:`DataError` for a trial that is already there or whose numbers are not
        possible, :class:`ConfigError` for a table that was closed; nothing is added then.
        """
        with _transaction(self._db, self.path):
            require_open(self._db, self.path)
            _insert(self._db, records)

    def begin(self, record: TrialRecord) -> int:
        """Write a trial that is about to run (status ``started``); returns its row's number."""
        if record.status != "started":
            raise DataError(f"a trial that begins has the status 'started', got '{record.status}'")
        with _transaction(self._db, self.path):
            require_open(self._db, self.path)
            return _insert(self._db, [record])

    def end(self, row: int, record: TrialRecord) -> None:
        """Say how a started trial ended: finished, aborted or voided."""
        if record.status == "started":
            raise DataError("a trial ends finished, aborted or voided, not 'started'")
        with _transaction(self._db, self.path):
            if self._at(row).status != "started":
                raise DataError(f"trial {row} of '{self.path}' has ended already")
            _update(self._db, row, record)

    def void(self, row: int, why: str) -> None:
        """Take a trial out of every rate, for a reason that is not its outcome (a person bumped the
        table); the row stays, with the reason.
        """
        if not why.strip():
            raise DataError("a trial is voided for a reason; say which")
        with _transaction(self._db, self.path):
            require_open(self._db, self.path)
            record = dataclasses.replace(self._at(row), status="voided", note=why)
            _update(self._db, row, record, ("status", "note"))

    def finish(self, said: Mapping[str, Any]) -> None:
        """Close the table for good: no trial is added or voided any more (:class:`ConfigError`).
        ``said``: JSON values that say why; :func:`eval.trials.closing.read_closing` tells them.
        """
        with _transaction(self._db, self.path):
            require_open(self._db, self.path)
            write_closing(self._db, said, self.all())

    def set_videos(self, names: Mapping[TrialKey, str]) -> None:
        """Note the clip of simulated trials that are there (it is made afterwards)."""
        same = " AND ".join(f"{name} = ?" for name in KEY)
        rows = [(video, *(getattr(key, k) for k in KEY)) for key, video in names.items()]
        with _transaction(self._db, self.path):
            self._db.executemany(
                f"UPDATE trials SET video = ? WHERE kind = 'sim' AND {same}",  # noqa: S608
                rows,
            )

    def keys(self) -> set[TrialKey]:
        """The identities of all trials that are there."""
        rows = self._db.execute(f"SELECT {', '.join(KEY)} FROM trials")  # noqa: S608
        return {TrialKey(*row) for row in rows}

    def all(self) -> tuple[TrialRecord, ...]:
        """Every trial, in the order in which they were added; row numbers count from 1."""
        return _read(self._db, self.path)

    def _at(self, row: int) -> TrialRecord:
        names = tuple(COLUMNS)
        found = self._db.execute(f"{select(names)} WHERE id = ?", (row,)).fetchone()
        if found is None:
            raise DataError(f"'{self.path}' has no trial {row}")
        return record_of(found, self.path, names)

    def _create(self) -> None:
        version = version_of(self._db, self.path)
        if version == SCHEMA_VERSION:
            return
        lines = self.folder / old_tables.LINES
        old = old_tables.lines_of(lines) if version == 0 and lines.is_file() else ()
        with _transaction(self._db, self.path):
            if version:
                old = _read_version(self._db, self.path, version)
                self._db.execute("DROP TABLE trials")
            for statement in _SCHEMA:
                self._db.execute(statement)
            _insert(self._db, old)
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _end_orphans(self) -> None:
        for row, record in enumerate(self.all(), 1):
            if record.status == "started":
                ended = self._orphaned(row, record)
                with _transaction(self._db, self.path):
                    _update(self._db, row, ended)


def has_trials(folder: Path) -> bool:
    """Whether a folder holds trials, of this release or an older one."""
    return any((folder / name).is_file() for name in (FILE_NAME, old_tables.LINES))


def read_trials(folder: Path) -> tuple[TrialRecord, ...]:
    """All trials of a results folder, also of older releases; nothing is written.

    A trial that is ``started`` runs now; one whose process died is told as aborted, for the reason
    ``unknown``. Raises :class:`StoreError` when there are no trials, :class:`StoreCorruptError`
    when rows were edited or taken away.
    """
    if not has_trials(folder):
        raise StoreError(f"no trials in '{folder}': expected the file {FILE_NAME} there")
    path = folder / FILE_NAME
    if not path.is_file():
        return old_tables.lines_of(folder / old_tables.LINES)
    with reading(path) as db:
        version = version_of(db, path)
        found = _read_version(db, path, version) if version else ()
    if any(r.status == "started" for r in found) and not is_written(folder):
        return tuple(_orphan(r) if r.status == "started" else r for r in found)
    return found


def _read_version(db: sqlite3.Connection, path: Path, version: int) -> tuple[TrialRecord, ...]:
    if version == 1:
        names = ", ".join(old_tables.COLUMNS)
        found = db.execute(f"SELECT {names} FROM trials ORDER BY id")  # noqa: S608
        return tuple(
            consistent(number, r, path)
            for number, r in enumerate(old_tables.table_rows(found, path), 1)
        )
    return _read(db, path, without=LACKED[version])


def _read(
    db: sqlite3.Connection, path: Path, without: Sequence[str] = ()
) -> tuple[TrialRecord, ...]:
    names = tuple(name for name in COLUMNS if name not in without)
    with _one_view(db):
        rows = db.execute(f"{select(names)} ORDER BY id").fetchall()
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'trials'").fetchone()
    if [row[0] for row in rows] != list(range(1, (last[0] if last else 0) + 1)):
        raise StoreCorruptError(
            f"'{path}' lacks trials that were in it ({len(rows)} of {last[0] if last else 0} are"
            " there): rows were taken away. Restore the file from a copy, or evaluate again"
        )
    return tuple(record_of(row, path, names) for row in rows)


@contextlib.contextmanager
def _one_view(db: sqlite3.Connection) -> Generator[None]:
    """All reads see the table at one moment: a writer beside them may add rows in between."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def _insert(db: sqlite3.Connection, records: Iterable[TrialRecord]) -> int:
    """Returns the number of the last row."""
    number = int(db.execute("SELECT coalesce(max(id), 0) FROM trials").fetchone()[0])
    names = ", ".join(("id", *COLUMNS))
    marks = ", ".join("?" for _ in range(len(COLUMNS) + 1))
    rows = [(i, *row_values(i, r)) for i, r in enumerate(records, number + 1)]
    db.executemany(f"INSERT INTO trials ({names}) VALUES ({marks})", rows)  # noqa: S608
    return number + len(rows)


def _update(
    db: sqlite3.Connection, row: int, record: TrialRecord, names: Sequence[str] = tuple(COLUMNS)
) -> None:
    values = dict(zip(COLUMNS, row_values(row, record), strict=True))
    changed = dict.fromkeys((*names, "digest"))
    assigned = ", ".join(f"{name} = ?" for name in changed)
    db.execute(
        f"UPDATE trials SET {assigned} WHERE id = ?",  # noqa: S608
        (*(values[name] for name in changed), row),
    )


def _orphan(record: TrialRecord) -> TrialRecord:
    """A started trial whose process is gone."""
    return dataclasses.replace(
        record,
        status="aborted",
        reason=UNKNOWN,
        note="the process that ran it ended without a word",
    )


def is_written(folder: Path) -> bool:
    """Whether a process writes trials into ``folder`` now."""
    try:
        StoreLock(folder).release()
    except StoreLockedError:
        return True
    return False


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection, path: Path) -> Generator[None]:
    """All or nothing; SQLite's errors become those of this package."""
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise readable_error(error, path) from error
        raise
