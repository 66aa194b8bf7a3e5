"""Reads tables that people export from spreadsheets: CSV with commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from robolearn.errors import ConfigError

_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
_SEPARATORS = ",;\t"
# What Excel reads, and some programs write, above the table; spreadsheets fill the line up.
_SAID = re.compile(r'"?sep=([^\w\s"]|\t)"?[,;\s]*', re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*("|$)')

Rows = list[tuple[int, list[str]]]


def read_lines(path: Path) -> Rows:
    """Lines with a cell that is not empty, each with its number from 1.

    UTF-8 or UTF-16, with or without a mark of the byte order; cells are apart by what the first
    line has most of outside of quotes (or says: ``sep=;``). ``path`` may be a pipe.
    :class:`ConfigError` for everything that is no such file.
    """
    # As the parser counts them: other characters end no line for it.
    lines = io.StringIO(_decoded(path), newline="").readlines()
    told = (line for line in lines if line.strip())
    first = next(told, "")
    said = _SAID.fullmatch(first)
    head = _QUOTED.sub("", first if said is None else next(told, ""))
    separator = said[1] if said else max(_SEPARATORS, key=head.count)
    rows: list[tuple[int, int, list[str]]] = []
    begin = 1
    try:
        stream = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        for row in stream:
            if any(cell.strip() for cell in row):
                rows.append((begin, stream.line_num, row))
            begin = stream.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}:{begin} is no line of a CSV file: {error}") from error
    rows = rows[1:] if said else rows
    _check_quotes(path, rows, lines, separator)
    return [(begin, row) for begin, _, row in rows]


def _check_quotes(
    path: Path,
    rows: Sequence[tuple[int, int, Sequence[str]]],
    lines: Sequence[str],
    separator: str,
) -> None:
    """Refuse quotes that make one cell of several lines of the table."""
    mend = "close it, or double a quote that is part of a name"
    if (
        rows
        and any("\n" in cell or "\r" in cell for cell in rows[-1][2][-1:])
        and "".join(lines).count('"') % 2
    ):
        raise ConfigError(
            f"{path}:{rows[-1][0]}: a quote is opened and never closed, so that all lines below"
            f" belong to one cell; {mend}"
        )
    # As many separators as most lines have. A remark of several lines is beside one such line.
    counts = Counter(lines[begin - 1].count(separator) for begin, _, _ in rows)
    whole = counts.most_common(1)[0][0] if counts else 0
    for begin, end, _ in rows:
        across = [line for line in lines[begin - 1 : end] if line.count(separator) >= whole]
        if whole and len(across) > 1:
            raise ConfigError(
                f"{path}:{begin}: a quote is opened that is closed in line {end} only, so that"
                f" {end - begin + 1} lines count as one; {mend}"
            )


def number(text: str) -> float | None:
    """A number as spreadsheets write it, with a decimal point or comma; None where it is none."""
    cell = text.strip()
    if not _NUMBER.fullmatch(cell):
        return None
    return float(cell.replace(",", "."))


def _decoded(path: Path) -> str:
    if not (path.is_file() or path.is_fifo()):
        what = "is neither a file nor a pipe" if path.exists() else "does not exist"
        raise ConfigError(f"no file '{path}': it {'is a folder' if path.is_dir() else what}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}") from error
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
