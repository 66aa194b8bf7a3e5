"""Reading HDF5 files: typed errors, natural order of groups, JSON attributes."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.recording import BLOCK_ROWS, FrameStream, optional_module
from robolearn.errors import DataError
from robolearn.spec import SignalSpec

SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Path) -> bool:
    """Whether the file starts like an HDF5 file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE


@contextmanager
def opened(path: Path) -> Generator[Any]:
    """An open ``h5py.File``; what cannot be read inside the block is a :class:`DataError`."""
    h5py = optional_module("h5py", "h5py", "an HDF5 recording")
    try:
        with h5py.File(str(path), "r") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except (OSError, KeyError, RuntimeError) as error:
        raise DataError(f"{path} cannot be read (truncated?): {error}") from error


def names_in(path: Path) -> frozenset[str]:
    """Names at the root; empty for what is no HDF5 file."""
    if not is_hdf5(path):
        return frozenset()
    with opened(path) as file:
        return frozenset(str(name) for name in file)


def natural(names: Any) -> list[str]:
    """``demo_2`` before ``demo_10``."""
    return sorted(
        (str(n) for n in names),
        key=lambda n: [
            (0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", n)
        ],
    )


def leaves(group: Any, prefix: str = "") -> dict[str, Any]:
    """All datasets below ``group`` by path, in order."""
    found: dict[str, Any] = {}
    for name in natural(group):
        child = group[name]
        path = f"{prefix}{name}"
        if hasattr(child, "shape"):
            found[path] = child
        else:
            found |= leaves(child, f"{path}/")
    return found


def subgroups(file: Any, name: str) -> list[str]:
    """Names of the groups in group ``name``; empty where that is absent or an array."""
    group = optional_module("h5py", "h5py", "an HDF5 recording").Group
    if file.get(name, getclass=True) is not group:
        return []
    return natural(n for n in file[name] if file.get(f"{name}/{n}", getclass=True) is group)


def is_picture(dataset: Any) -> bool:
    """``uint8 [T, height, width, channels]``."""
    return len(dataset.shape) == 4 and str(dataset.dtype) == "uint8"


def numbers(dataset: Any, where: str, start: int = 0, end: int | None = None) -> NDArray[Any]:
    """Rows of a dataset of numbers."""
    values = np.asarray(dataset[start:end])
    if values.dtype.kind not in "biuf":
        raise DataError(f"{where}: expected numbers, got {dataset.dtype}")
    return values


def attribute(holder: Any, name: str) -> Any:
    """An attribute as a JSON value: JSON texts are parsed, arrays become lists; None if absent."""
    value = holder.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value.tolist() if hasattr(value, "tolist") else value


def frames_of(
    path: Path, dataset: str, name: str, shape: tuple[int, ...], rate_hz: float, rows: slice
) -> FrameStream:
    """Pictures of a dataset, read block by block from the file."""

    def blocks() -> Generator[NDArray[np.uint8]]:
        with opened(path) as file:
            for at in range(rows.start, rows.stop, BLOCK_ROWS):
                yield np.asarray(file[dataset][at : min(at + BLOCK_ROWS, rows.stop)])

    return FrameStream(SignalSpec(name, shape, rate_hz=rate_hz, dtype="uint8"), blocks)


def signal_name(path: str) -> str:
    """A dataset's path as ``part/name``: ``obs/a`` stays, ``a`` and ``a/b/c`` go below ``obs``."""
    return path if path.count("/") == 1 else f"obs/{path.replace('/', '.')}"
