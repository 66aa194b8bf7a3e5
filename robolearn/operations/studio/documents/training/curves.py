"""Reads the log of a training while it grows, from a byte of the file on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from robolearn.shapes import Floats
from robolearn.training.log import JOURNAL

MOST_BYTES = 1 << 20
"""What one part holds at most: some ten thousand lines."""
_MARK_BYTES = 256


@dataclass(frozen=True, slots=True)
class CurvePart:
    """Lines of a log. Whoever asks again with ``next`` and ``mark`` gets those that came since.

    ``columns``: a value per line and figure ``[k]``, NaN where a line has none; ``fresh``: the log
    is another one than before (a training went on from an earlier checkpoint): what was read is to
    be forgotten; ``more``: further lines are there already; ``damaged``: lines that do not read.
    """

    next: int
    mark: int
    fresh: bool
    more: bool
    columns: Mapping[str, Floats]
    damaged: int


def curve_part(run: Path, since: int = 0, mark: int = 0) -> CurvePart:
    """The lines of a run's log from byte ``since`` on, at most :data:`MOST_BYTES`.

    ``since``, ``mark``: as the part before said; 0 for the whole log. Half a line at the end is
    left for the next call. OSError where there is no log.
    """
    with (run / JOURNAL).open("rb") as stream:
        size = stream.seek(0, 2)
        same = 0 <= since <= size and _mark(stream, since) == mark
        start = since if same else 0
        stream.seek(start)
        data = stream.read(MOST_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == MOST_BYTES:
            # No log has such a line; without a step beyond it nothing after it would be read.
            whole = data
        end = start + len(whole)
        lines = [line for raw in whole.splitlines() if (line := _line(raw)) is not None]
        return CurvePart(
            next=end,
            mark=_mark(stream, end),
            fresh=not same,
            more=len(data) == MOST_BYTES and end < size,
            columns=_columns(lines),
            damaged=sum(1 for raw in whole.splitlines() if raw.strip()) - len(lines),
        )


def _mark(stream: Any, at: int) -> int:
    """A checksum of what stands before a byte: tells another log of the same length or more."""
    first = max(0, at - _MARK_BYTES)
    stream.seek(first)
    return zlib.crc32(stream.read(at - first))


def _line(raw: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    usable = isinstance(found, dict) and _number(cast("dict[str, Any]", found).get("step"))
    return cast("Mapping[str, Any]", found) if usable else None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _columns(lines: list[Mapping[str, Any]]) -> dict[str, Floats]:
    names = dict.fromkeys(k for line in lines for k, v in line.items() if _number(v))
    return {
        name: np.array(
            [line[name] if _number(line.get(name)) else np.nan for line in lines], dtype=np.float64
        )
        for name in names
    }
