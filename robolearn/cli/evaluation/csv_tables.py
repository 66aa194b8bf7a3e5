"""Reads tables of outcomes from CSV files; every error names file and line."""

from __future__ import annotations

from pathlib import Path

from eval.spreadsheet import number, read_lines
from robolearn.errors import ConfigError


def read_numbers(path: Path, columns: int | None = None) -> tuple[list[str], list[list[float]]]:
    """Names of the first line, if it has any, and rows of equal length in [0, 1]."""
    names: list[str] = []
    rows: list[list[float]] = []
    for line, row in read_lines(path):
        values = [number(cell) for cell in row]
        if not (names or rows) and all(v is None for v in values):
            names = [cell.strip() for cell in row]
            continue
        width = columns or len(names or (rows[0] if rows else row))
        kept = [v for v in values if v is not None and 0 <= v <= 1]
        if len(kept) != width or len(row) != width:
            raise ConfigError(
                f"{path}:{line}: expected {width} outcomes in [0, 1], got {','.join(row)!r}"
            )
        rows.append(kept)
    if not rows:
        raise ConfigError(f"{path} has no outcomes")
    return names, rows


def share(value: float, option: str) -> float:
    """``value`` of ``option``, if it lies between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigError(f"{option} lies between 0 and 1, got {value:g}")
    return value
