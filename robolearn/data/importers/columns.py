"""Reads low-dimensional arrays of a zarr recording block by block: they may exceed memory."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.foreign import require_plausible
from robolearn.errors import DataError
from robolearn.shapes import AnyRows

BLOCK_BYTES = 4 * 2**20


def check_array(array: Any, where: str, folder: Path) -> None:
    """Raise :class:`DataError` for an array that must not or cannot be read.

    That is: other than real numbers ``[rows, ...]``, a codec that unpickles (it would run what the
    file says), or a size that the files in ``folder`` cannot hold.
    """
    shape, dtype = tuple(int(n) for n in array.shape), array.dtype
    if not shape or min(shape) < 0 or dtype.kind not in "biuf":
        raise DataError(f"{where}: expected numbers [rows, ...], got {dtype} {shape}")
    packing = {k: v for k, v in array.metadata.to_dict().items() if k != "attributes"}
    if "pickle" in str(packing).lower():
        raise DataError(f"{where} is packed with pickle, which runs what the file says: refused")
    stored = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    chunk = math.prod(int(n) for n in array.chunks) * int(dtype.itemsize)
    declared = max(math.prod(shape) * int(dtype.itemsize), chunk)
    require_plausible(declared, stored, where, at_once=chunk)


class Column:
    """``data/<key>`` ``[N, ...]`` of a recording; one block of whole chunks is kept decoded."""

    def __init__(self, array: Any, key: str, path: Path) -> None:
        self.array, self._where = array, f"{path}: data/{key}"
        row = int(np.prod(array.shape[1:], dtype=np.int64)) * int(array.dtype.itemsize)
        chunk = max(1, int(array.chunks[0]))
        self._rows = chunk * max(1, BLOCK_BYTES // max(1, chunk * row))
        self._kept: tuple[int, NDArray[Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, ...)``."""
        return tuple(int(n) for n in self.array.shape)

    def read(self, start: int, end: int) -> AnyRows:
        """Rows ``start`` to ``end``; :class:`DataError` if they cannot be decoded."""
        numbers = range(start // self._rows, -(-end // self._rows))
        parts = [
            self._block(n)[max(0, start - n * self._rows) : end - n * self._rows] for n in numbers
        ]
        return np.concatenate(parts) if parts else self._block(0)[:0]

    def require_finite(self) -> None:
        """Look at every row once; :class:`DataError` for NaN or infinity."""
        for at, values in self._blocks():
            if values.dtype.kind == "f" and not bool(np.isfinite(values).all()):
                row = at + int(np.argwhere(~np.isfinite(values))[0][0])
                raise DataError(f"{self._where} has NaN or infinity at row {row}")

    def _blocks(self) -> Generator[tuple[int, NDArray[Any]]]:
        for number in range(-(-self.shape[0] // self._rows)):
            yield number * self._rows, self._block(number)

    def _block(self, number: int) -> NDArray[Any]:
        if self._kept is None or self._kept[0] != number:
            at = number * self._rows
            try:
                values = np.asarray(self.array[at : at + self._rows])
            except (OSError, ValueError, RuntimeError) as error:
                raise DataError(f"{self._where} cannot be decoded: {error}") from error
            self._kept = number, values
        return self._kept[1]
