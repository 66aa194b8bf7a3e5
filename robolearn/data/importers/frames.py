"""Reads the pictures of a zarr recording, a chunk at a time, and turns them into uint8."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.shapes import Frames
from robolearn.spec import SignalSpec
from robolearn.types import SampleBlock

SIGNAL_OF = {"img": "top/image"}


@dataclass(frozen=True, slots=True)
class FrameSource:
    """A lazy array ``[N, height, width, channels]`` and the signal that it becomes."""

    spec: SignalSpec
    array: Any

    @staticmethod
    def of(key: str, array: Any, rate_hz: float) -> FrameSource:
        """The source for ``data/<key>``."""
        shape = tuple(int(n) for n in array.shape[1:])
        name = SIGNAL_OF.get(key, f"obs/{key}")
        return FrameSource(SignalSpec(name, shape, rate_hz=rate_hz, dtype="uint8"), array)

    def no_rows(self) -> Frames:
        """An empty array of this shape: the frames themselves are streamed."""
        return np.zeros((0, *self.spec.shape), dtype=np.uint8)


def frame_blocks(source: FrameSource, start: int, end: int) -> Generator[SampleBlock]:
    """Rows ``start`` to ``end`` as uint8, at most one source chunk at a time (times are zero)."""
    per_chunk = int(source.array.chunks[0])
    name = source.spec.name
    at = start
    while at < end:
        stop = min(end, (at // per_chunk + 1) * per_chunk)
        try:
            rows = np.asarray(source.array[at:stop])
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(f"{name}: rows {at} to {stop} cannot be decoded: {error}") from error
        times = np.zeros(len(rows), dtype=np.int64)
        yield SampleBlock(times, _as_uint8(rows, name, at), np.ones(len(rows), dtype=np.bool_))
        at = stop


def _as_uint8(rows: NDArray[Any], name: str, at: int) -> NDArray[np.uint8]:
    if rows.dtype == np.uint8:
        return rows
    low, high = float(rows.min()), float(rows.max())
    whole = rows.astype(np.uint8) if low >= 0 and high <= 255 else np.zeros(0, dtype=np.uint8)
    if whole.shape != rows.shape or not np.array_equal(whole, rows):
        raise DataError(
            f"{name}: frames near row {at} range from {low:g} to {high:g} ({rows.dtype});"
            " expected whole numbers 0..255"
        )
    return whole
