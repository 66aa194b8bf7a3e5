"""Reads tables of outcomes from CSV files; every error names file and line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from robolearn.errors import ConfigError


def read_numbers(path: Path, columns: int | None = None) -> tuple[list[str], list[list[float]]]:
    """Names of the first line, if it has any, and rows of equal length in [0, 1]."""
    names: list[str] = []
    rows: list[list[float]] = []
    for line, row in read_lines(path):
        values = [number(cell) for cell in row]
        if line == 1 and all(v is None for v in values):
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


def read_lines(path: Path) -> Sequence[tuple[int, list[str]]]:
    """Lines that are not empty, each with its number from 1."""
    if not path.is_file():
        raise ConfigError(f"no file '{path}'")
    try:
        # A mark of the byte order, which spreadsheets write, is no part of the first cell.
        with path.open(newline="", encoding="utf-8-sig") as stream:
            return [(i, row) for i, row in enumerate(csv.reader(stream), 1) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is no CSV file in UTF-8: {error}") from error


def number(text: str) -> float | None:
    """None where ``text`` is none."""
    try:
        return float(text)
    except ValueError:
        return None


def share(value: float, option: str) -> float:
    """``value`` of ``option``, if it lies between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigError(f"{option} lies between 0 and 1, got {value:g}")
    return value
