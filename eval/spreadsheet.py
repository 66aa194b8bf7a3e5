"""Reads tables that people export from spreadsheets: CSV with commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from robolearn.errors import ConfigError

_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
_SEPARATORS = ",;\t"


def read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Lines with a cell that is not empty, each with its number from 1.

    UTF-8 or UTF-16, with or without a mark of the byte order; cells are apart by what the first
    line has most of (or says: ``sep=;``). :class:`ConfigError` for everything that is no such file.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"no file '{path}': it {what}")
    text = _decoded(path)
    told = (line for line in text.splitlines() if line.strip())
    first = next(told, "")
    said = re.fullmatch(r"sep=(.)\s*", first)
    head = first if said is None else next(told, "")
    separator = said[1] if said else max(_SEPARATORS, key=head.count)
    rows: list[tuple[int, list[str]]] = []
    begin = 1
    try:
        stream = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True
        )
        for row in stream:
            if any(cell.strip() for cell in row):
                rows.append((begin, row))
            begin = stream.line_num + 1
    except (csv.Error, TypeError) as error:
        raise ConfigError(f"{path}:{begin} is no line of a CSV file: {error}") from error
    rows = rows[1:] if said else rows
    if rows and any("\n" in cell for cell in rows[-1][1][-1:]) and text.count('"') % 2:
        raise ConfigError(
            f"{path}:{rows[-1][0]}: a quote is opened and never closed, so that all lines below"
            " belong to one cell; close it, or double a quote that is part of a name"
        )
    return rows


def number(text: str) -> float | None:
    """A number as spreadsheets write it, with a decimal point or comma; None where it is none."""
    cell = text.strip()
    if not _NUMBER.fullmatch(cell):
        return None
    return float(cell.replace(",", "."))


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    if content[:4] == b"PK\x03\x04":
        raise ConfigError(f"{path} is a workbook; save it as 'CSV UTF-8' and give that file")
    try:
        text = content.decode(_encoding(content))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is no CSV file in UTF-8: {error}; save it as 'CSV UTF-8'"
        ) from error
    if "\0" in text:
        raise ConfigError(f"{path} is no CSV file: it holds zero bytes")
    return text


def _encoding(content: bytes) -> str:
    """UTF-16 begins with a mark of its byte order, or, as columns have plain names, with letters
    that have zeros between them.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    zeros = [byte == 0 for byte in content[:4]]
    if zeros == [False, True, False, True]:
        return "utf-16-le"
    return "utf-16-be" if zeros == [True, False, True, False] else "utf-8-sig"
