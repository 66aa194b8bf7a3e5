"""Writes files so that a reader sees the old or the new one, never half, also after a power cut."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Generator
from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by ``content`` (text as UTF-8); its folder must exist. OSError as usual."""
    with replacing(path) as fresh:
        fresh.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path, None, None]:
    """A path beside ``path`` to write to; it takes its place when the block ends without an error.

    The name ends like ``path``'s, for writers that choose a format by it. After an error what was
    written is removed and ``path`` is as before.
    """
    # Not by tempfile: its files are private to their maker, and results are there to be shared.
    fresh = path.with_name(f".{uuid.uuid4().hex[:12]}-{path.name}")
    try:
        yield fresh
        _sync(fresh)
        fresh.replace(path)
        _sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
