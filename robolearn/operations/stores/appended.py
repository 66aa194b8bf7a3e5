"""Opens a store to append to, and takes it back where nothing came into it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator
from pathlib import Path

from robolearn.data.store.store import EpisodeStore


@contextlib.contextmanager
def appended(out: Path) -> Generator[EpisodeStore]:
    """The store at ``out``; one that was made here goes again if nothing came into it."""
    existed, files = out.exists(), _files(out)
    store = EpisodeStore.open_or_create(out)
    made = _files(out)
    try:
        yield store
    finally:
        if not files and _files(out) == made and not store.ids():
            for path in out.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not existed:
                out.rmdir()


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
