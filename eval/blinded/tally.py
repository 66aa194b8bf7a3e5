"""Counts cast preferences in the table of blinded trials, so that lines that are cut are missed.

A line of preferences says what was before it, and nothing about those that came after it. So each
is counted beside the trials, too, as they are: by numbers that are never given twice, which the
database refuses to take away.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from eval.blinded.plan import BLIND
from eval.trials.rows import FILE_NAME, readable_error, reading
from robolearn.errors import StoreCorruptError

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS votes (
      id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL
    ) STRICT""",
    """CREATE TRIGGER IF NOT EXISTS votes_stay BEFORE DELETE ON votes
      BEGIN SELECT RAISE(ABORT, 'preferences are never deleted'); END""",
    """CREATE TRIGGER IF NOT EXISTS votes_are_fixed BEFORE UPDATE ON votes
      BEGIN SELECT RAISE(ABORT, 'a preference does not change'); END""",
)


def count_votes(folder: Path, digests: Sequence[str]) -> None:
    """Count what was cast in ``folder`` until now: the digest of every line, in order. Whoever
    calls it holds the lock of the trials, and has called :func:`require_counted` before.
    """
    path = folder / BLIND / FILE_NAME
    # Without trials there is nothing that a preference could be about.
    if not path.is_file():
        return
    try:
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                db.execute(statement)
            known = int(db.execute("SELECT count(*) FROM votes").fetchone()[0])
            new = [(digest,) for digest in digests[known:]]
            db.executemany("INSERT INTO votes (digest) VALUES (?)", new)
            db.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise readable_error(error, path) from error


def require_counted(folder: Path, file: Path, digests: Sequence[str]) -> None:
    """:class:`StoreCorruptError` where the lines of ``file`` are not those that were counted in
    ``folder``. One more may be there: its process died before it counted it.
    """
    counted = _counted(folder / BLIND / FILE_NAME)
    if len(digests) < len(counted):
        raise StoreCorruptError(
            f"'{file}' has {len(digests)} preferences, {len(counted)} were cast: lines were taken"
            " away; restore the file from a copy"
        )
    wrong = next(
        (n for n, (a, b) in enumerate(zip(digests, counted, strict=False), 1) if a != b), 0
    )
    if wrong:
        raise StoreCorruptError(
            f"'{file}', line {wrong} is not the preference that was cast then; the file was"
            " exchanged or edited, restore it from a copy of this folder"
        )


def _counted(path: Path) -> list[str]:
    """Digests by number; none of trials that have no preferences, or of earlier releases."""
    if not path.is_file():
        return []
    with reading(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'votes'").fetchone():
            return []
        rows = db.execute("SELECT id, digest FROM votes ORDER BY id").fetchall()
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'votes'").fetchone()
    if [number for number, _ in rows] != list(range(1, (last[0] if last else 0) + 1)):
        raise StoreCorruptError(
            f"'{path}' lacks preferences that were counted in it ({len(rows)} of"
            f" {last[0] if last else 0} are there): rows were taken away. Restore the file from a"
            " copy"
        )
    return [digest for _, digest in rows]
