"""Reads trials that older releases wrote: tables of version 1, and ``trials.jsonl`` of deployments.

There a variant of a start was a suffix of the condition (``c0~moved``) or just another seed, a
judge a suffix of the suite (``s@1+judge=j1``), and a lab's trial was one of a real robot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from eval.trials.suites import repeat_seed
from robolearn.errors import DataError, StoreCorruptError
from robolearn.types import TrialRecord

LINES = "trials.jsonl"
# The columns of version 1, in the table's order; names with an underscore avoid words of SQL.
COLUMNS = (
    *("policy", "policy_hash", "env", "env_hash", "engine", "real", "condition", "seed", "success"),
    *("score", "final_progress", "return_", "steps", "duration_s", "reason", "commit_", "suite"),
    *("episode", "video", "operator", "metrics", "code", "batch"),
)
_MOVED = "~moved"
_JUDGED = "+judge="


def upgraded(rows: Iterable[Mapping[str, Any]]) -> tuple[TrialRecord, ...]:
    """Rows of version 1, as plain values by field, as records of today."""
    found = list(rows)
    own = {(r["env_hash"], r["suite"], r["condition"], r["seed"]) for r in found}
    repeats = {(world, suite, name, repeat_seed(seed)) for world, suite, name, seed in own}
    return tuple(
        _upgraded(r, (r["env_hash"], r["suite"], r["condition"], r["seed"]) in repeats)
        for r in found
    )


def table_rows(rows: Iterable[tuple[Any, ...]], path: Path) -> tuple[TrialRecord, ...]:
    """Rows of the table of version 1 at ``path``, in the order of :data:`COLUMNS`."""
    values = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return upgraded(
        {
            **{k: v for k, v in row.items() if k != "commit_"},
            "commit": row["commit_"],
            "success": bool(row["success"]),
            "metrics": mapping_of(row["metrics"], "metrics", number, path),
        }
        for number, row in enumerate(values, 1)
    )


def mapping_of(text: str, name: str, number: int, path: Path) -> dict[str, Any]:
    """The JSON mapping in a column of a row; :class:`StoreCorruptError` for anything else."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = error
    if not isinstance(found, dict):
        reason = f"{found}" if isinstance(found, Exception) else f"got {text[:60]!r}"
        raise StoreCorruptError(
            f"'{path}': '{name}' of trial {number} is no JSON mapping: {reason}. Restore the file"
            " from a copy, or evaluate again"
        )
    return cast("dict[str, Any]", found)


def lines_of(path: Path) -> tuple[TrialRecord, ...]:
    """The trials of a deployment's ``trials.jsonl``; those that were aborted never came into it."""
    text = path.read_text(encoding="utf-8")
    try:
        return upgraded(json.loads(line) for line in text.splitlines() if line.strip())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"'{path}' does not hold one trial of a deployment per line:"
            f" {type(error).__name__} {error}; mend the line or move the file away"
        ) from error


def _upgraded(row: Mapping[str, Any], repeat: bool) -> TrialRecord:
    values = {k: v for k, v in row.items() if k != "real"}
    lab = str(row["engine"]).startswith("virtual lab")
    values["kind"] = "sim" if not row["real"] else "lab" if lab else "robot"
    values["suite"], _, values["judge"] = str(row.get("suite", "")).partition(_JUDGED)
    values["condition"] = str(row["condition"]).removesuffix(_MOVED)
    if values["condition"] != row["condition"]:
        values["variant"] = "moved"
    elif repeat and not row["real"]:
        values["variant"] = "noise"
    return TrialRecord(**values)
