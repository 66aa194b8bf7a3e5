"""Reads HDF5 files: typed errors, natural order of groups, JSON attributes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.foreign import refuse_pointer, require_plausible
from robolearn.data.importers.recording import BLOCK_ROWS, FrameStream, optional_module
from robolearn.data.store.confine import confined
from robolearn.errors import DataError
from robolearn.shapes import AnyRows
from robolearn.spec import SignalSpec

DEEPEST = 16
"""How deep groups may be nested; a group may be linked into itself."""
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
    refuse_pointer(path)
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
            (0, int(p), "") if p.isdecimal() else (1, 0, p) for p in re.split(r"(\d+)", n)
        ],
    )


def leaves(group: Any, prefix: str = "") -> dict[str, Any]:
    """All datasets below ``group`` by path, in order.

    Links to other files, groups within themselves, arrays without rows and names that are no names
    are a :class:`DataError`.
    """
    found: dict[str, Any] = {}
    if prefix.count("/") > DEEPEST:
        raise DataError(f"{group.file.filename}: groups are nested deeper than {DEEPEST}: {prefix}")
    for name in natural(group):
        path = f"{prefix}{name}"
        where = f"{group.file.filename}: {group.name}/{name}"
        confined(path, where)
        child = own(group, name, where)
        if hasattr(child, "shape"):
            found[path] = child
        else:
            found |= leaves(child, f"{path}/")
    return found


def own(group: Any, name: str, where: str) -> Any:
    """``group[name]`` if its data is in this file; an external link is a :class:`DataError`."""
    h5py = optional_module("h5py", "h5py", "an HDF5 recording")
    link: Any = group.get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        raise DataError(f"{where} is a link to another file, {link.filename}: not followed")
    child = group[name]
    if hasattr(child, "shape"):
        virtual = child.is_virtual and any(s.file_name != "." for s in child.virtual_sources())
        if child.external or virtual:
            raise DataError(f"{where} keeps its data in another file: not followed")
    return child


def subgroups(file: Any, name: str) -> list[str]:
    """Names of the groups in group ``name``; empty where that is absent or an array."""
    group = optional_module("h5py", "h5py", "an HDF5 recording").Group
    if file.get(name, getclass=True) is not group:
        return []
    return natural(n for n in file[name] if file.get(f"{name}/{n}", getclass=True) is group)


def is_picture(dataset: Any) -> bool:
    """``uint8 [T, height, width, channels]``."""
    return len(dataset.shape) == 4 and str(dataset.dtype) == "uint8"


def numbers(dataset: Any, where: str, start: int = 0, end: int | None = None) -> AnyRows:
    """Rows of a dataset of numbers; a size that the file cannot hold is a :class:`DataError`."""
    if dataset.dtype.kind not in "biuf" or not dataset.shape:
        raise DataError(
            f"{where}: expected numbers [rows, ...], got {dataset.dtype} {dataset.shape}"
        )
    rows = range(*slice(start, end).indices(int(dataset.shape[0])))
    row_bytes = math.prod(int(n) for n in dataset.shape[1:]) * int(dataset.dtype.itemsize)
    size, stored = len(rows) * row_bytes, int(dataset.id.get_storage_size())
    require_plausible(size, stored, where, at_once=size)
    return np.asarray(dataset[start:end])


def attribute(holder: Any, name: str) -> Any:
    """An attribute as a JSON value: JSON texts are parsed, arrays become lists; None if absent."""
    value = holder.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
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
