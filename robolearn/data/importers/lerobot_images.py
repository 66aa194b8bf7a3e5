"""Reads LeRobot features of dtype ``image``: a picture file in every row, as bytes or as a path."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.foreign import refuse_pointer
from robolearn.data.importers.recording import BLOCK_ROWS, FrameStream, optional_module
from robolearn.data.store.confine import confined
from robolearn.data.store.picture_codec import decode_frame
from robolearn.errors import DataError, StoreCorruptError
from robolearn.spec import SignalSpec


def image_stream(
    root: Path, file: Path, key: str, spec: SignalSpec, episode: int, length: int
) -> FrameStream:
    """Column ``key`` of the rows of ``episode`` in ``file``; a few rows are in memory at a time.

    A picture that is absent, damaged or of another size is a :class:`DataError`, as is a number of
    rows other than ``length``.
    """

    def blocks() -> Generator[NDArray[np.uint8]]:
        seen = 0
        for cells in _cells(file, key, episode):
            decoded = [
                _decode(root, cell, spec, f"{file}: {key}, frame {seen + i}")
                for i, cell in enumerate(cells)
            ]
            seen += len(cells)
            if decoded:
                yield np.stack(decoded)
        if seen != length:
            raise DataError(f"{file}: {key}: expected {length} pictures, got {seen}")

    return FrameStream(spec, blocks)


def _cells(file: Path, key: str, episode: int) -> Generator[list[Any]]:
    """The column's cells, at most ``BLOCK_ROWS`` at a time, without reading the others."""
    dataset = optional_module("pyarrow.dataset", "pyarrow", "LeRobot data")
    arrow = optional_module("pyarrow", "pyarrow", "LeRobot data")
    try:
        rows = dataset.dataset(str(file), format="parquet")
        mine = None
        if "episode_index" in rows.schema.names:
            mine = dataset.field("episode_index") == episode
        # Few rows at a time and none read ahead: a row can be a megabyte.
        for batch in rows.to_batches(
            columns=[key],
            filter=mine,
            batch_size=BLOCK_ROWS,
            batch_readahead=0,
            fragment_readahead=0,
        ):
            yield batch.column(key).to_pylist()
    except (OSError, KeyError, arrow.ArrowException) as error:
        raise DataError(f"{file}: {key} cannot be read: {str(error).splitlines()[0]}") from error


def _decode(root: Path, cell: Any, spec: SignalSpec, where: str) -> NDArray[np.uint8]:
    found = cast("dict[str, Any]", cell) if isinstance(cell, dict) else {"bytes": cell}
    data, name = found.get("bytes"), found.get("path")
    if data is None and name:
        path = root / confined(name, where)
        refuse_pointer(path)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"{where}: {path} cannot be read: {error.strerror}") from error
    if not isinstance(data, bytes) or not data:
        raise DataError(f"{where}: no picture in this row")
    try:
        return decode_frame(np.frombuffer(data, dtype=np.uint8), spec.shape, where)
    except StoreCorruptError as error:
        raise DataError(str(error)) from error
