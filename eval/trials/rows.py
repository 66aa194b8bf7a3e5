"""Turns trials into rows of a table and back, with a digest for each row."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from eval.trials import old_tables
from eval.trials.checks import contradiction, unshowable
from robolearn.errors import DataError, StoreCorruptError, StoreError
from robolearn.types import TrialRecord

FILE_NAME = "trials.sqlite"
SCHEMA_VERSION = 4
COLUMNS = {
    "policy": "TEXT NOT NULL",
    "policy_hash": "TEXT NOT NULL",
    "env": "TEXT NOT NULL",
    "env_hash": "TEXT NOT NULL",
    "engine": "TEXT NOT NULL",
    "kind": "TEXT NOT NULL CHECK (kind IN ('sim', 'lab', 'robot'))",
    "condition": "TEXT NOT NULL",
    "variant": "TEXT NOT NULL CHECK (variant IN ('', 'moved', 'noise'))",
    "seed": "INTEGER NOT NULL",
    "judge": "TEXT NOT NULL",
    "status": "TEXT NOT NULL CHECK (status IN ('started', 'finished', 'aborted', 'voided'))",
    "started": "TEXT NOT NULL",
    "success": "INTEGER NOT NULL CHECK (success IN (0, 1))",
    "score": "REAL NOT NULL CHECK (score BETWEEN 0 AND 1)",
    "final_progress": "REAL NOT NULL CHECK (final_progress BETWEEN 0 AND 1)",
    "return_": "REAL NOT NULL",
    "steps": "INTEGER NOT NULL CHECK (steps >= 0)",
    "duration_s": "REAL NOT NULL CHECK (duration_s >= 0)",
    "reason": "TEXT NOT NULL",
    "note": "TEXT NOT NULL",
    "commit_": "TEXT NOT NULL",
    "suite": "TEXT NOT NULL",
    "episode": "TEXT NOT NULL",
    "video": "TEXT NOT NULL",
    "operator": "TEXT NOT NULL",
    "plan": "TEXT NOT NULL",
    "slot": "INTEGER",
    "alias": "TEXT NOT NULL",
    "achieved": "TEXT NOT NULL",
    "tolerance": "TEXT NOT NULL",
    "metrics": "TEXT NOT NULL",
    "code": "TEXT NOT NULL",
    "libraries": "TEXT NOT NULL",
    "standard_errors": "TEXT NOT NULL",
    "batch": "INTEGER NOT NULL CHECK (batch >= 1)",
    "digest": "TEXT NOT NULL",
}
JSON_COLUMNS = ("achieved", "tolerance", "metrics", "standard_errors")
KEY = (
    *("policy_hash", "env_hash", "engine", "suite", "condition", "variant", "seed", "judge"),
    *("code", "libraries", "batch"),
)
NUMBERS = ("score", "final_progress", "return_", "duration_s")
# A clip is made afterwards, and a digest cannot hold itself.
UNSIGNED = ("video", "digest")
_SIGNED = tuple(name for name in COLUMNS if name not in UNSIGNED)
# What tables of earlier versions did not have, by version.
LACKED: Mapping[int, tuple[str, ...]] = {
    2: ("libraries", "standard_errors"),
    3: ("standard_errors",),
    SCHEMA_VERSION: (),
}


def select(names: Sequence[str]) -> str:
    """The SQL that reads numbers and values of rows, in the order of ``names``."""
    return f"SELECT {', '.join(('id', *names))} FROM trials"  # noqa: S608


def row_values(number: int, record: TrialRecord) -> tuple[Any, ...]:
    """The values of a row, checked; ``number`` counts in its digest."""
    odd = unshowable(record)
    if odd:
        raise DataError(f"trial {number} cannot be written: {odd}")
    numbers = {k: float(getattr(record, k)) for k in NUMBERS} | dict(record.metrics)
    numbers |= {k: math.fsum(v) for k, v in record.achieved.items()} | dict(record.tolerance)
    numbers |= {f"error of {k}": math.fsum(v) for k, v in record.standard_errors.items()}
    bad = [k for k, v in numbers.items() if not math.isfinite(v)]
    if bad:
        raise DataError(
            f"trial {record.condition} of '{record.policy}' in '{record.env}': {bad} not finite"
        )
    if record.kind != "sim" and record.status == "finished" and not record.episode:
        raise DataError(f"real trial {record.condition} names no episode; record it first")
    if record.success and record.status in ("started", "aborted"):
        raise DataError(f"trial {record.condition} is {record.status}: that is no success")
    wrong = contradiction(record)
    if wrong:
        raise DataError(f"trial {record.condition} of '{record.policy}' in '{record.env}': {wrong}")
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    values |= {name: json.dumps(values[name], sort_keys=True) for name in JSON_COLUMNS}
    # Adding 0.0 turns -0.0 into 0.0, which is what SQLite keeps of it.
    values |= {name: float(values[name]) + 0.0 for name in NUMBERS}
    values["commit_"], values["success"] = record.commit, int(record.success)
    values["digest"] = digest_of(number, values)
    return tuple(values[name] for name in COLUMNS)


def digest_of(number: int, values: Mapping[str, Any]) -> str:
    """The digest of a row: of its number, and of what it must go on saying."""
    signed = [number, *(values[n] for n in _SIGNED if n in values)]
    return hashlib.sha256(json.dumps(signed).encode()).hexdigest()[:16]


def record_of(row: Sequence[Any], path: Path, names: Sequence[str]) -> TrialRecord:
    """A row (its number, then the values of ``names``) as a trial. :class:`StoreCorruptError` for
    one that was edited.
    """
    values = dict(zip(names, row[1:], strict=True))
    if values["digest"] != digest_of(row[0], values):
        raise StoreCorruptError(
            f"'{path}': trial {row[0]} ({values['policy']}, {values['condition']}) is not as it was"
            " written: it was edited. Restore the file from a copy, or evaluate again"
        )
    values |= {
        name: old_tables.mapping_of(values[name], name, row[0], path)
        for name in JSON_COLUMNS
        if name in values
    }
    for name in ("achieved", "standard_errors"):
        values[name] = _numbers(values.get(name, {}), name, row[0], path)
    values["commit"], values["success"] = values.pop("commit_"), bool(values["success"])
    del values["digest"]
    return consistent(row[0], TrialRecord(**values), path)


def _numbers(
    found: Mapping[str, Any], name: str, number: int, path: Path
) -> dict[str, tuple[float, ...]]:
    """Lists of numbers by signal."""
    for signal, value in found.items():
        if not isinstance(value, list) or not all(
            isinstance(v, int | float) for v in cast("list[Any]", value)
        ):
            raise StoreCorruptError(
                f"'{path}': '{name}' of trial {number} is no list of numbers for '{signal}'."
                " Restore the file from a copy, or evaluate again"
            )
    return {signal: tuple(value) for signal, value in found.items()}


def consistent(number: int, record: TrialRecord, path: Path) -> TrialRecord:
    """The trial, unless it contradicts itself or has names that cannot be shown:
    :class:`StoreCorruptError`.
    """
    odd = unshowable(record)
    if odd:
        raise StoreCorruptError(f"'{path}': trial {number} cannot be shown: {odd}")
    wrong = contradiction(record)
    if wrong:
        raise StoreCorruptError(
            f"'{path}': trial {number} ({record.policy}, {record.condition}) contradicts itself:"
            f" {wrong}. Restore the file from a copy, or evaluate again"
        )
    return record


@contextlib.contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """The table at ``path``, to be read only; SQLite's errors become those of this package."""
    # In a folder that nobody can write SQLite could not put its locks: it is read as it is.
    mode = "mode=ro" if os.access(path.parent, os.W_OK) else "immutable=1"
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", timeout=30.0, uri=True)
        try:
            yield db
        finally:
            db.close()
    except sqlite3.DatabaseError as error:
        raise readable_error(error, path) from error


def version_of(db: sqlite3.Connection, path: Path) -> int:
    """The version of a table, 0 of an empty one; :class:`StoreError` for one from the future."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= SCHEMA_VERSION:
        raise StoreError(
            f"'{path}' has table version {version}; this release reads up to {SCHEMA_VERSION}."
            " Use the release that wrote it, or another results folder"
        )
    return version


def readable_error(error: sqlite3.Error, path: Path) -> DataError | StoreError:
    """What an error of SQLite means, as one of this package."""
    text = str(error)
    if "UNIQUE" in text:
        return DataError(f"'{path}' already has this trial (same {', '.join(KEY)})")
    if isinstance(error, sqlite3.IntegrityError):
        return DataError(f"'{path}' refused a trial: {text}")
    if "not a database" in text or "malformed" in text:
        return StoreCorruptError(f"'{path}' is not a readable trial table ({text}); move it away")
    return StoreError(f"cannot use '{path}': {text}; check the path and its permissions")
