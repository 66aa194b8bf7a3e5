"""Handles files that somebody else wrote: typed errors, plain names, sizes before memory.

A foreign file is material to judge: what it says about its own size, names and types is checked
before anything is allocated, opened or decoded by it.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.store.confine import confined
from robolearn.errors import DataError, RobolearnError
from robolearn.shapes import Floats, OwnTimes

COMPRESSION = 2000
"""No codec makes more of a byte than this many (deflate: 1032)."""
SMALL_BYTES = 1 << 26
LONGEST_S = 1e8
"""Of an episode [s]; three years."""
LFS = b"version https://git-lfs.github.com/spec/"
FIELDS = r"\{(?:episode_chunk|episode_index|chunk_index|file_index|video_key)(?::0?\d{1,2}d?)?\}"
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    NotImplementedError,
    MemoryError,
    AssertionError,
    EOFError,
    RuntimeError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What libraries raise over a file that is not what its format promises."""


@contextmanager
def reading(where: object) -> Generator[None]:
    """Whatever goes wrong inside the block is a :class:`DataError` that names ``where``."""
    try:
        yield
    except RobolearnError:
        raise
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:300] or "no reason given"
        raise DataError(
            f"{where} cannot be read: its contents are not what the format promises"
            f" ({type(error).__name__}: {reason})"
        ) from error


def guarded(where: object, blocks: Iterable[Any]) -> Generator[Any]:
    """``blocks`` one after the other, each made inside :func:`reading`."""
    made = iter(blocks)
    while True:
        with reading(where):
            block = next(made, None)
        if block is None:
            return
        yield block


def nanoseconds(seconds: Floats, where: object) -> OwnTimes:
    """Times ``[n]`` since the first [s] in whole nanoseconds; :class:`DataError` for what lasts
    longer than :data:`LONGEST_S`: a conversion would make nonsense of it without a word.
    """
    if not bool((np.abs(seconds) <= LONGEST_S).all()):
        raise DataError(
            f"{where}: expected times in seconds, of less than {LONGEST_S / 86400:.0f} days, got"
            f" {seconds[np.abs(seconds).argmax()]:.3g} s; are they in another unit?"
        )
    return np.round(seconds * 1e9).astype(np.int64)


def refuse_pointer(path: Path) -> None:
    """Raise :class:`DataError` for a Git LFS pointer that stands in for the file itself, and for a
    pipe or a device, which would keep its reader for ever.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is no file; do not use this data before you know who wrote it")
    try:
        with path.open("rb") as file:
            pointer = file.read(len(LFS)) == LFS
    except OSError:
        return  # Absent or a folder: whoever reads it says so.
    if pointer:
        raise DataError(
            f"{path} is a Git LFS pointer, not the file itself; run 'git lfs pull' in the dataset"
        )


def patterned(root: Path, pattern: str, fields: Mapping[str, Any]) -> Path:
    """The file that a path pattern of ``meta/info.json`` names, below ``root``.

    A pattern with other fields, or one that leads out of the dataset, is a :class:`DataError`.
    """
    where = f"{root}/meta/info.json"
    if set("{}") & set(re.sub(FIELDS, "", pattern)):
        raise DataError(
            f"{where}: bad path pattern '{pattern}': expected fields such as {{episode_index:06d}}"
        )
    try:
        name = pattern.format(**fields)
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"{where}: bad path pattern '{pattern}': {error}") from error
    return root / confined(name, where)


def require_plausible(declared: int, stored: int, where: object, *, at_once: int = 0) -> None:
    """Raise :class:`DataError` for an array that cannot be in the bytes that are there.

    ``declared``: its size [bytes]; ``stored``: the bytes on disk that hold it; ``at_once``: how
    much of it will be in memory together.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if declared > max(SMALL_BYTES, COMPRESSION * stored) or at_once > memory // 2:
        raise DataError(
            f"{where}: declares an array of {declared / 1e9:.3g} GB, stores {stored} bytes of it;"
            f" expected at most {COMPRESSION} times what is stored, and half of this machine's"
            f" memory ({memory / 1e9:.0f} GB)"
        )
