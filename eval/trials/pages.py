"""Reads a table of trials page by page, and counts it, however many rows it has."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.trials.rows import COLUMNS, FILE_NAME, LACKED, reading, record_of, select, version_of
from eval.trials.table import read_trials
from robolearn.errors import StoreError
from robolearn.types import TrialRecord

_GROUPS = ("policy", "env", "kind", "variant", "status")


@dataclass(frozen=True, slots=True)
class Tally:
    """How many trials of a policy in a world there are, of one kind, variant of starts and status;
    ``score``: their mean.
    """

    policy: str
    env: str
    kind: str
    variant: str
    status: str
    trials: int
    successes: int
    score: float


@dataclass(frozen=True, slots=True)
class TrialPage:
    """Some trials and their rows' numbers in the table, of ``total`` that fit."""

    total: int
    offset: int
    rows: tuple[int, ...]
    trials: tuple[TrialRecord, ...]


def trial_count(folder: Path) -> int:
    """How many rows the table of a results folder has. Errors as :func:`read_trials`."""
    path = folder / FILE_NAME
    if not path.is_file():
        return len(read_trials(folder))
    with reading(path) as db:
        if not version_of(db, path):
            return 0
        return int(db.execute("SELECT count(*) FROM trials").fetchone()[0])


def trial_tallies(folder: Path) -> tuple[Tally, ...]:
    """The trials of a folder, counted; rows are not checked against their digests."""
    path = folder / FILE_NAME
    # Tables of version 1 and what came before are small: they are read as a whole.
    if not path.is_file() or _version(path) not in LACKED:
        return _counted(read_trials(folder))
    names = ", ".join(_GROUPS)
    with reading(path) as db:
        found = db.execute(
            f"SELECT {names}, count(*), sum(success), avg(score) FROM trials"  # noqa: S608
            f" GROUP BY {names} ORDER BY min(id)"
        ).fetchall()
    return tuple(Tally(*row) for row in found)


def trial_page(
    folder: Path, offset: int = 0, limit: int = 100, *, policy: str = "", env: str = ""
) -> TrialPage:
    """``limit`` trials from the ``offset``-th on, in the order in which they were added; of one
    ``policy`` and world ``env`` where these are given. Errors as :func:`read_trials`; the rows of
    the page are checked, the others are not.
    """
    if offset < 0 or limit < 1:
        raise StoreError(f"expected an offset of at least 0 and a limit of at least 1, got {offset}"
                         f" and {limit}")  # fmt: skip
    path = folder / FILE_NAME
    if not path.is_file() or _version(path) not in LACKED:
        every = [
            (n, r)
            for n, r in enumerate(read_trials(folder), 1)
            if policy in ("", r.policy) and env in ("", r.env)
        ]
        chosen = every[offset : offset + limit]
        return TrialPage(
            len(every), offset, tuple(n for n, _ in chosen), tuple(r for _, r in chosen)
        )
    with reading(path) as db:
        return _page(db, path, offset, limit, {"policy": policy, "env": env})


def _version(path: Path) -> int:
    with reading(path) as db:
        return version_of(db, path)


def _page(
    db: sqlite3.Connection, path: Path, offset: int, limit: int, wanted: dict[str, str]
) -> TrialPage:
    without = LACKED[version_of(db, path)]
    names = tuple(name for name in COLUMNS if name not in without)
    given = {k: v for k, v in wanted.items() if v}
    where = " AND ".join(f"{name} = ?" for name in given)
    clause = f" WHERE {where}" if where else ""
    values = tuple(given.values())
    total = int(db.execute(f"SELECT count(*) FROM trials{clause}", values).fetchone()[0])  # noqa: S608
    rows = db.execute(
        f"{select(names)}{clause} ORDER BY id LIMIT ? OFFSET ?", (*values, limit, offset)
    ).fetchall()
    return TrialPage(
        total,
        offset,
        tuple(int(row[0]) for row in rows),
        tuple(record_of(row, path, names) for row in rows),
    )


def _counted(records: Sequence[TrialRecord]) -> tuple[Tally, ...]:
    def group(r: TrialRecord) -> tuple[str, ...]:
        return tuple(getattr(r, name) for name in _GROUPS)

    found = [
        (key, list(members))
        for key, members in itertools.groupby(sorted(records, key=group), key=group)
    ]
    return tuple(
        Tally(
            *key,
            trials=len(trials),
            successes=sum(t.success for t in trials),
            score=sum(t.score for t in trials) / len(trials),
        )
        for key, trials in found
    )
