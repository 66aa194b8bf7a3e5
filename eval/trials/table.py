"""The table of trials: one SQLite file per results folder, the same schema for sim and real.

A simulated trial is identified by policy, world, suite, condition, seed, code and batch size; the
database refuses a second one. A real trial cannot be repeated exactly, so its episode counts in its
identity. Rows are added in transactions: after a kill each trial is there entirely or not at all.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from robolearn.errors import DataError, StoreCorruptError, StoreError
from robolearn.types import TrialRecord

FILE_NAME = "trials.sqlite"
SCHEMA_VERSION = 1

_COLUMNS = {
    "policy": "TEXT NOT NULL",
    "policy_hash": "TEXT NOT NULL",
    "env": "TEXT NOT NULL",
    "env_hash": "TEXT NOT NULL",
    "engine": "TEXT NOT NULL",
    "real": "INTEGER NOT NULL CHECK (real IN (0, 1))",
    "condition": "TEXT NOT NULL",
    "seed": "INTEGER NOT NULL",
    "success": "INTEGER NOT NULL CHECK (success IN (0, 1))",
    "score": "REAL NOT NULL CHECK (score BETWEEN 0 AND 1)",
    "final_progress": "REAL NOT NULL CHECK (final_progress BETWEEN 0 AND 1)",
    "return_": "REAL NOT NULL",
    "steps": "INTEGER NOT NULL CHECK (steps >= 0)",
    "duration_s": "REAL NOT NULL CHECK (duration_s >= 0)",
    "reason": "TEXT NOT NULL",
    "commit_": "TEXT NOT NULL",
    "suite": "TEXT NOT NULL",
    "episode": "TEXT NOT NULL",
    "video": "TEXT NOT NULL",
    "operator": "TEXT NOT NULL",
    "metrics": "TEXT NOT NULL",
    "code": "TEXT NOT NULL",
    "batch": "INTEGER NOT NULL CHECK (batch >= 1)",
}
_KEY = ("policy_hash", "env_hash", "suite", "condition", "seed", "code", "batch")


@dataclasses.dataclass(frozen=True, slots=True)
class TrialKey:
    """What makes a simulated trial the same trial."""

    policy_hash: str
    env_hash: str
    suite: str
    condition: str
    seed: int
    code: str
    batch: int


def key_of(record: TrialRecord) -> TrialKey:
    """The identity of a record."""
    return TrialKey(**{name: getattr(record, name) for name in _KEY})


class TrialStore:
    """The trials of one results folder. One writer at a time; readers at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._create()
        except sqlite3.DatabaseError as error:
            raise _readable(error, self.path) from error

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
        """Release the file; safe to call twice."""
        self._db.close()

    def add(self, records: Sequence[TrialRecord]) -> None:
        """Add trials in one transaction: all or none.

        Raises :class:`DataError` for a trial that is already there or whose numbers are not
        possible; nothing is added then.
        """
        names = ", ".join(_COLUMNS)
        marks = ", ".join("?" for _ in _COLUMNS)
        rows = [_row(r) for r in records]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(f"INSERT INTO trials ({names}) VALUES ({marks})", rows)  # noqa: S608
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise _readable(error, self.path) from error

    def set_videos(self, names: Mapping[TrialKey, str]) -> None:
        """Note the clip of simulated trials that are there (it is made afterwards)."""
        same = " AND ".join(f"{name} = ?" for name in _KEY)
        rows = [(video, *(getattr(key, k) for k in _KEY)) for key, video in names.items()]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(f"UPDATE trials SET video = ? WHERE NOT real AND {same}", rows)  # noqa: S608
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise _readable(error, self.path) from error

    def keys(self) -> set[TrialKey]:
        """The identities of all trials that are there."""
        rows = self._db.execute(f"SELECT {', '.join(_KEY)} FROM trials")  # noqa: S608
        return {TrialKey(*row) for row in rows}

    def all(self) -> tuple[TrialRecord, ...]:
        """Every trial, in the order in which they were added."""
        names = ", ".join(_COLUMNS)
        rows = self._db.execute(f"SELECT {names} FROM trials ORDER BY id")  # noqa: S608
        return tuple(_record(row) for row in rows)

    def _create(self) -> None:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, SCHEMA_VERSION):
            raise StoreError(
                f"'{self.path}' has table version {version}; this release reads {SCHEMA_VERSION}."
                " Use the release that wrote it, or another results folder"
            )
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        identity = ", ".join(_KEY)
        self._db.executescript(
            f"""
            BEGIN IMMEDIATE;
            CREATE TABLE IF NOT EXISTS trials (id INTEGER PRIMARY KEY, {columns}) STRICT;
            CREATE UNIQUE INDEX IF NOT EXISTS one_trial
              ON trials ({identity}, CASE WHEN real THEN episode ELSE '' END);
            PRAGMA user_version = {SCHEMA_VERSION};
            COMMIT;
            """
        )


def read_trials(folder: Path) -> tuple[TrialRecord, ...]:
    """All trials of a results folder; raises :class:`StoreError` when it has none."""
    if not (folder / FILE_NAME).is_file():
        raise StoreError(f"no trials in '{folder}': expected the file {FILE_NAME} there")
    with TrialStore(folder) as store:
        return store.all()


def to_json(records: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """Trials as plain values, one mapping per trial."""
    return [dataclasses.asdict(r) for r in records]


def from_json(rows: Iterable[Mapping[str, Any]]) -> tuple[TrialRecord, ...]:
    """Inverse of :func:`to_json`."""
    return tuple(TrialRecord(**row) for row in rows)


def to_csv(records: Sequence[TrialRecord]) -> str:
    """Trials as CSV with a header; each metric is a column ``metrics.<name>``."""
    metrics = sorted({name for r in records for name in r.metrics})
    fixed = [f.name for f in dataclasses.fields(TrialRecord) if f.name != "metrics"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*fixed, *(f"metrics.{m}" for m in metrics)])
    for r in records:
        writer.writerow(
            [*(getattr(r, name) for name in fixed), *(r.metrics.get(m, "") for m in metrics)]
        )
    return out.getvalue()


def write_parquet(records: Sequence[TrialRecord], path: Path) -> None:
    """Trials as a Parquet table with typed columns, the same ones as :func:`to_csv`.

    Written beside and renamed, so that a file that exists is whole.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fixed = [f.name for f in dataclasses.fields(TrialRecord) if f.name != "metrics"]
    columns: dict[str, list[Any]] = {n: [getattr(r, n) for r in records] for n in fixed}
    for name in sorted({m for r in records for m in r.metrics}):
        columns[f"metrics.{name}"] = [r.metrics.get(name) for r in records]
    partial = path.with_name(path.name + ".partial")
    pq.write_table(pa.table(columns), partial)
    partial.replace(path)


def _row(record: TrialRecord) -> tuple[Any, ...]:
    values = dataclasses.asdict(record)
    bad = [k for k, v in record.metrics.items() if not math.isfinite(v)]
    numbers = ("score", "final_progress", "return_", "duration_s")
    bad += [k for k in numbers if not math.isfinite(values[k])]
    if bad:
        raise DataError(
            f"trial {record.condition} of '{record.policy}' in '{record.env}': {bad} not finite"
        )
    if record.real and not record.episode:
        raise DataError(f"real trial {record.condition} names no episode; record it first")
    values["metrics"] = json.dumps(values["metrics"], sort_keys=True)
    values["commit_"] = values.pop("commit")
    values["real"], values["success"] = int(values["real"]), int(values["success"])
    return tuple(values[name] for name in _COLUMNS)


def _record(row: Sequence[Any]) -> TrialRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["commit"] = values.pop("commit_")
    values["real"], values["success"] = bool(values["real"]), bool(values["success"])
    values["metrics"] = json.loads(values["metrics"])
    return TrialRecord(**values)


def _readable(error: sqlite3.Error, path: Path) -> DataError | StoreError:
    text = str(error)
    if "UNIQUE" in text:
        return DataError(f"'{path}' already has this trial (same {', '.join(_KEY)})")
    if isinstance(error, sqlite3.IntegrityError):
        return DataError(f"'{path}' refused a trial: {text}")
    if "not a database" in text or "malformed" in text:
        return StoreCorruptError(f"'{path}' is not a readable trial table ({text}); move it away")
    return StoreError(f"cannot use '{path}': {text}; check the path and its permissions")
