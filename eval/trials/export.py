"""Writes trials for other programs: plain values, CSV, Parquet."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eval.trials.rows import JSON_COLUMNS
from robolearn.files import replacing
from robolearn.types import TrialRecord


def to_json(records: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """Trials as plain values, one mapping per trial."""
    return [dataclasses.asdict(r) for r in records]


def to_csv(records: Sequence[TrialRecord]) -> str:
    """Trials as CSV with a header; each metric is a column ``metrics.<name>``, what a signal or a
    name belongs to is JSON.
    """
    metrics = sorted({name for r in records for name in r.metrics})
    fixed = _fixed()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*fixed, *(f"metrics.{m}" for m in metrics)])
    for r in records:
        writer.writerow(
            [*(_cell(r, name) for name in fixed), *(r.metrics.get(m, "") for m in metrics)]
        )
    return out.getvalue()


def write_parquet(records: Sequence[TrialRecord], path: Path) -> None:
    """Trials as a Parquet table with typed columns, the same ones as :func:`to_csv`.

    Written beside and renamed, so that a file that exists is whole.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {n: [_cell(r, n) for r in records] for n in _fixed()}
    for name in sorted({m for r in records for m in r.metrics}):
        columns[f"metrics.{name}"] = [r.metrics.get(name) for r in records]
    with replacing(path) as fresh:
        pq.write_table(pa.table(columns), fresh)


def _fixed() -> list[str]:
    return [f.name for f in dataclasses.fields(TrialRecord) if f.name != "metrics"]


def _cell(record: TrialRecord, name: str) -> Any:
    value = getattr(record, name)
    return json.dumps(value, sort_keys=True) if name in JSON_COLUMNS else value
