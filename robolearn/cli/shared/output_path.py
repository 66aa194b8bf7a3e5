"""Checks where results go before any work is done for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from robolearn.errors import ConfigError

# What a folder is, by a file that nothing else has.
MARKS = {
    "store.json": "an episode store",
    "weights.safetensors": "a run",
    "provenance.json": "a run",
    "scene.yaml": "a scene package",
    "summary.json": "results of 'robolearn evaluate'",
    "demo.json": "a demo",
    "sweep.jsonl": "a sweep",
    "success.json": "a success classifier",
    # Whatever stood there by names would pass for their result.
    "key.sealed": "blinded trials",
}


def output_file(path: Path, option: str, suffixes: Sequence[str] = ()) -> Path:
    """``path`` if a file can be written there; else :class:`ConfigError` says why."""
    if path.is_dir():
        raise ConfigError(f"{option}: '{path}' is a folder; give the name of a file in it")
    if suffixes and path.suffix.lower() not in suffixes:
        raise ConfigError(f"{option}: '{path}' must end in one of {', '.join(suffixes)}")
    _writable(path.parent, option)
    return path


def output_folder(path: Path, option: str, kind: str) -> Path:
    """``path`` if results of ``kind`` (a value of :data:`MARKS`) may go there: absent, empty, of
    that kind already, or a folder of nothing that is known.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{option}: '{path}' is a file; give a folder")
    found = {what for name, what in MARKS.items() if (path / name).is_file()}
    if found and kind not in found:
        raise ConfigError(
            f"{option}: '{path}' is {min(found)}; choose another folder, or a new one inside it"
        )
    _writable(path, option)
    return path


def _writable(folder: Path, option: str) -> None:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise ConfigError(f"{option}: '{existing}' is a file, not a folder; choose another place")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{option}: '{existing}' is read-only for you; choose another place")
