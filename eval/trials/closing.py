"""Closes a table of trials for good: one entry that says why, after which nothing is added.

The entry holds a digest of itself and of every row that was there, and the file's header says that
there is one: an entry that was edited or taken away is missed when the table is read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from eval.trials.rows import FILE_NAME, reading
from robolearn.config import config_hash
from robolearn.errors import ConfigError, StoreCorruptError
from robolearn.types import TrialRecord

# What the header of a closed table says (SQLite's application_id; 0 where nobody set it).
_CLOSED = 0x54524C43
_SCHEMA = (
    """CREATE TABLE closing (
      id INTEGER PRIMARY KEY CHECK (id = 1), said TEXT NOT NULL, digest TEXT NOT NULL
    ) STRICT""",
    """CREATE TRIGGER closing_stays BEFORE DELETE ON closing
      BEGIN SELECT RAISE(ABORT, 'a closed table stays closed'); END""",
    """CREATE TRIGGER closing_is_fixed BEFORE UPDATE ON closing
      BEGIN SELECT RAISE(ABORT, 'a closed table stays closed'); END""",
    f"PRAGMA application_id = {_CLOSED}",
)


def write_closing(
    db: sqlite3.Connection, said: Mapping[str, Any], rows: Sequence[TrialRecord]
) -> None:
    """Add the entry to a table that has ``rows``, in the transaction that is open."""
    for statement in _SCHEMA:
        db.execute(statement)
    text = json.dumps(said)
    db.execute("INSERT INTO closing VALUES (1, ?, ?)", (text, _digest(text, rows)))


def require_open(db: sqlite3.Connection, path: Path) -> None:
    """:class:`ConfigError` for a table that was closed."""
    if _said(db, path) is not None:
        raise ConfigError(
            f"'{path}' was closed (the names of its policies were told): no trial is added or"
            " voided any more; plan further trials in another folder"
        )


def read_closing(folder: Path, rows: Sequence[TrialRecord]) -> Mapping[str, Any] | None:
    """What was said when the table of ``folder``, which has ``rows``, was closed; None: it is open,
    or there is none. :class:`StoreCorruptError` for an entry that was edited or taken away, and for
    rows that are not those that were closed.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    with reading(path) as db:
        found = _said(db, path)
    if found is None:
        return None
    text, digest = found
    if digest != _digest(text, rows):
        raise _damaged(path, "its entry, or its trials, are not as they were then")
    return cast("Mapping[str, Any]", json.loads(text))


def _said(db: sqlite3.Connection, path: Path) -> tuple[str, str] | None:
    closed = int(db.execute("PRAGMA application_id").fetchone()[0]) == _CLOSED
    there = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'closing'").fetchone()
    found = db.execute("SELECT said, digest FROM closing").fetchone() if there else None
    if closed != (found is not None):
        raise _damaged(path, "the entry that says so was taken away")
    return found


def _digest(text: str, rows: Sequence[TrialRecord]) -> str:
    """Of what every version of the table has; each row has a digest of all that it says."""
    told = [
        (r.slot, r.alias, r.condition, r.started, r.status, r.note, r.episode, r.success, r.score)
        for r in rows
    ]
    return config_hash(text, told)


def _damaged(path: Path, what: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"'{path}' was closed when names were told, but {what}; restore the file from a copy"
    )
