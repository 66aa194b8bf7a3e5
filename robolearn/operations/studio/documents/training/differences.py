"""Tells runs apart: settings and data in which they differ, a row per setting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from eval.plain import read_mapping
from robolearn.config import load_yaml
from robolearn.operations.studio.documents.problems import Problem, Problems

Kind = Literal["config", "data", "result"]
ABSENT = "–"
# A longer value says nothing in a table.
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A setting that not all runs have alike; ``values``: one per run, as text."""

    kind: Kind
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """What tells runs apart, and how many settings they share."""

    runs: tuple[str, ...]
    rows: tuple[DifferenceRow, ...]
    alike: int
    problems: tuple[Problem, ...]


def run_differences(paths: Sequence[Path]) -> Differences:
    """Settings (``config.yaml``) and data (``provenance.json``) in which run directories differ.

    A value that only some of the runs have counts as a difference.
    """
    problems = Problems()
    configs = [_read(p, "config.yaml", problems) for p in paths]
    data = [_data(_read(p, "provenance.json", problems)) for p in paths]
    config_rows, alike = _rows("config", configs)
    data_rows, also = _rows("data", data)
    return Differences(
        tuple(p.name for p in paths), (*config_rows, *data_rows), alike + also, problems.found
    )


def _read(path: Path, name: str, problems: Problems) -> Mapping[str, Any]:
    file = path / name
    if not file.is_file():
        problems.say(f"{path.name}/{name}", "it is not there")
        return {}
    read = load_yaml if name.endswith(".yaml") else read_mapping
    return problems.attempt(f"{path.name}/{name}", lambda: read(file), {})


def _data(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was learned from, by code and libraries of which release."""
    names = ("data_hash", "episodes", "held_out", "parent", "annotated_outcomes", "latencies")
    kept = {name: provenance[name] for name in names if name in provenance}
    code = {
        "code": provenance.get("git_revision", ABSENT),
        "versions": provenance.get("versions", {}),
    }
    return kept | code if provenance else {}


def _rows(kind: Kind, found: Sequence[Mapping[str, Any]]) -> tuple[list[DifferenceRow], int]:
    flat = [dict(_flat(values, "")) for values in found]
    names = dict.fromkeys(name for one in flat for name in one)
    rows = [
        DifferenceRow(kind, name, values)
        for name in names
        if len(set(values := tuple(one.get(name, ABSENT) for one in flat))) > 1
    ]
    return rows, len(names) - len(rows)


def _flat(value: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        inner = cast("dict[Any, Any]", value)
        return [
            row for k, v in inner.items() for row in _flat(v, f"{name}.{k}" if name else str(k))
        ]
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return [(name, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")]
