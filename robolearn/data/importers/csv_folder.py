"""Imports a folder of CSV files, one per episode, with pictures beside them.

    run_1.csv        t,state.x,state.y,action.x,action.y,reward,camera:top
                     0.0,0.1,0.2,0.1,0.2,0,run_1/000.png
    run_1/000.png

Columns: ``t`` [s] (or ``t_ns``) ascending; ``action.*`` is what was commanded; ``camera:NAME``
holds picture files relative to the folder, an empty cell is a missing frame; ``reward`` and
``success`` (the last row counts) are optional; any other column is a signal, those with the same
name before the dot are its components.
"""

from __future__ import annotations

import csv
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.foreign import nanoseconds
from robolearn.data.importers.recording import (
    BLOCK_ROWS,
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    SourceEpisode,
    make_episode,
)
from robolearn.data.store.confine import confined
from robolearn.errors import DataError
from robolearn.spec import SignalSpec

CAMERA = "camera:"
ACTION = "action"
SPECIAL = ("t", "t_ns", "reward", "success")


@dataclass(frozen=True, slots=True)
class CsvRecording:
    """An opened folder; every file has the columns of the first."""

    path: Path
    files: tuple[Path, ...]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    images: bool
    rate_hz: float | None

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.files)

    def episode(self, index: int) -> ImportedEpisode:
        """Read one file; its pictures are read when they are written."""
        file = self.files[index]
        cells = _cells(file, self.columns)
        if not cells[self.columns[0]]:
            raise DataError(f"{file} has no rows")
        t_ns = _times(cells, file)
        rate = self.rate_hz if self.rate_hz is not None else _rate(t_ns, file)
        values: dict[str, NDArray[np.float64]] = {}
        components: dict[str, tuple[str, ...]] = {}
        for name, members in _groups(self.columns).items():
            values[name] = np.stack([_floats(cells[m], m, file) for m in members], axis=1)
            components[f"obs/{name}"] = tuple(m.partition(".")[2] or m for m in members)
        frames: list[FrameStream] = []
        valid: dict[str, NDArray[np.bool_]] = {}
        for column in [c for c in self.columns if c.startswith(CAMERA)] if self.images else []:
            stream = _frames(self.path, column, cells[column], rate, file)
            frames.append(stream)
            valid[stream.spec.name] = np.array([bool(c) for c in cells[column]], dtype=np.bool_)
        success = cells.get("success")
        return make_episode(
            SourceEpisode(
                source=self.path.name,
                index=index,
                rate_hz=rate,
                signals={f"obs/{n}": v for n, v in values.items() if n != ACTION},
                actions={f"obs/{ACTION}": values[ACTION]},
                provenance={
                    "importer": "csv",
                    "file": file.name,
                    "left_out": list(self.left_out),
                    **({} if t_ns is None else {"times": "column t of the source"}),
                },
                frames=tuple(frames),
                valid=valid,
                components=components,
                t_ns=t_ns,
                reward=_floats(cells["reward"], "reward", file) if "reward" in cells else None,
                success=success is not None and bool(_floats(success, "success", file)[-1]),
            )
        )


class CsvImporter:
    """CSV files with ``action`` columns."""

    looked_for = "a folder of *.csv files (one per episode) with columns action.*"

    def recognise(self, path: Path) -> bool:
        """Whether the first CSV file has an action."""
        files = _files(path)
        return bool(files) and any(_group(c) == ACTION for c in _header(files[0]))

    def open(self, path: Path, options: ImportOptions) -> CsvRecording:
        """Read the headers."""
        files = _files(path)
        if not files:
            raise DataError(f"{path} holds no *.csv files")
        columns = _header(files[0])
        if len(set(columns)) != len(columns) or not any(_group(c) == ACTION for c in columns):
            raise DataError(f"{files[0]}: expected unique columns with action.*, got {columns}")
        for file in files[1:]:
            if _header(file) != columns:
                other = sorted(set(_header(file)) ^ set(columns)) or "in another order"
                raise DataError(f"{file} has other columns than {files[0].name}: {other}")
        if not {"t", "t_ns"} & set(columns) and options.rate_hz is None:
            raise DataError(f"{files[0]} has no column t [s] or t_ns; give --rate-hz")
        cameras = [c for c in columns if c.startswith(CAMERA)]
        left = [] if options.images else [f"{c} (pictures: give --images)" for c in cameras]
        return CsvRecording(path, files, columns, tuple(left), options.images, options.rate_hz)


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        return tuple(sorted(path.glob("*.csv")))
    return (path,) if path.suffix == ".csv" else ()


def _header(file: Path) -> tuple[str, ...]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            first: list[str] = next(csv.reader(lines), list[str]())
            return tuple(cell.strip() for cell in first)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as CSV: {error}") from error


def _cells(file: Path, columns: tuple[str, ...]) -> dict[str, list[str]]:
    cells: dict[str, list[str]] = {c: [] for c in columns}
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines)
            next(rows, None)
            for number, row in enumerate(rows, start=2):
                if len(row) != len(columns):
                    raise DataError(
                        f"{file}: line {number} has {len(row)} cells, expected {len(columns)}"
                    )
                for column, cell in zip(columns, row, strict=True):
                    cells[column].append(cell.strip())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as CSV: {error}") from error
    return cells


def _floats(cells: list[str], column: str, file: Path) -> NDArray[np.float64]:
    try:
        return np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{file}: column {column}: {error}") from error


def _group(column: str) -> str:
    return column.partition(".")[0]


def _groups(columns: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for column in columns:
        if column not in SPECIAL and not column.startswith(CAMERA):
            found.setdefault(_group(column), []).append(column)
    return found


def _times(cells: dict[str, list[str]], file: Path) -> NDArray[np.int64] | None:
    if "t_ns" in cells:
        try:
            t_ns = np.array([int(c) for c in cells["t_ns"]], dtype=np.int64)
        except (ValueError, OverflowError) as error:
            raise DataError(f"{file}: column t_ns: {error}") from error
    elif "t" in cells:
        seconds = _floats(cells["t"], "t", file)
        if not np.isfinite(seconds).all():
            raise DataError(f"{file}: column t is not finite")
        t_ns = nanoseconds(seconds - seconds[0], f"{file}: column t")
    else:
        return None
    return t_ns - t_ns[0]


def _rate(t_ns: NDArray[np.int64] | None, file: Path) -> float:
    """The median rate of the ticks."""
    if t_ns is None or len(t_ns) < 2 or bool((np.diff(t_ns) <= 0).any()):
        raise DataError(f"{file}: the rate cannot be told (time does not ascend); give --rate-hz")
    return round(1e9 / float(np.median(np.diff(t_ns))), 6)


def _frames(root: Path, column: str, cells: list[str], rate_hz: float, file: Path) -> FrameStream:
    named = [c for c in cells if c]
    if not named:
        raise DataError(f"{file}: column {column} names no picture")
    first = _picture(root, named[0], file)
    spec = SignalSpec(
        f"{column.removeprefix(CAMERA)}/image", first.shape, rate_hz=rate_hz, dtype="uint8"
    )

    def blocks() -> Generator[NDArray[np.uint8]]:
        for at in range(0, len(cells), BLOCK_ROWS):
            part = [
                _picture(root, cell, file) if cell else np.zeros(first.shape, dtype=np.uint8)
                for cell in cells[at : at + BLOCK_ROWS]
            ]
            if any(p.shape != first.shape for p in part):
                raise DataError(f"{file}: pictures of {column} differ in size near row {at}")
            yield np.stack(part)

    return FrameStream(spec, blocks)


def _picture(root: Path, name: str, file: Path) -> NDArray[np.uint8]:
    import cv2

    path = (root if root.is_dir() else root.parent) / confined(name, file)
    bgr: Any = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if bgr is None:
        raise DataError(f"{file} names {name}, which is missing or no picture")
    return np.ascontiguousarray(bgr[..., ::-1], dtype=np.uint8)
