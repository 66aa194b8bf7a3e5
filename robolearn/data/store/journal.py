"""Keeps beside the draft what a recording is recovered from when it is killed.

    tmp/3f2a.tmp/signals/top/image/value/c.0.0.0.0    frames in chunks, durable at each flush
    tmp/3f2a.journal/header.json                      metadata, with its own checksum
    tmp/3f2a.journal/000000.npz, 000001.npz, ...      ticks and samples of each flush

A flush is whole or not there: each file is made durable under another name and renamed, and a zip
archive carries a checksum of every array. The journal is removed when its draft is committed or
discarded; a journal without a draft means nothing.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import EpisodeMeta
from robolearn.data.store.chunks import fsync_path, json_bytes
from robolearn.data.store.confine import confined
from robolearn.data.store.layout import meta_from_json, meta_to_json
from robolearn.data.store.manifest import parse_record, replace_file, sha256
from robolearn.errors import StoreCorruptError
from robolearn.shapes import AnyArray
from robolearn.types import Signals

HEADER = "header.json"


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal in ``folder`` (``<name>.journal``, beside ``<name>.tmp``)."""

    folder: Path

    @property
    def draft(self) -> Path:
        """The folder with the frames."""
        return self.folder.with_suffix(".tmp")

    @property
    def flushed(self) -> bool:
        """Whether there is something to recover."""
        return self.draft.is_dir() and (self.folder / "000000.npz").exists()

    def append(self, meta: EpisodeMeta, segment: Signals) -> None:
        """Add one flush, durably; the first one brings the header."""
        if not self.folder.exists():
            self.folder.mkdir()
            raw = meta_to_json(meta)
            data = json_bytes({"meta": raw, "sha256": sha256(json_bytes(raw))})
            replace_file(self.folder / HEADER, data, self.folder / "writing")
            fsync_path(self.folder.parent)
        buffer = io.BytesIO()
        np.savez(buffer, **segment)
        target = self.folder / f"{len(self._segments()):06d}.npz"
        replace_file(target, buffer.getvalue(), self.folder / "writing")

    def read(self) -> tuple[EpisodeMeta, dict[str, AnyArray]]:
        """The metadata and all arrays, up to the first segment that is missing or damaged.

        A damaged header or first segment raises :class:`StoreCorruptError`.
        """
        meta = self._meta()
        parts: list[dict[str, NDArray[Any]]] = []
        for number, path in enumerate(self._segments()):
            try:
                if path.name != f"{number:06d}.npz":
                    break
                data = io.BytesIO(path.read_bytes())
                with np.load(data, allow_pickle=False) as archive:
                    parts.append({name: archive[name] for name in archive.files})
            except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
                if not parts:
                    raise StoreCorruptError(f"{path} is damaged: {error}") from error
                break
        names = dict.fromkeys(name for part in parts for name in part)
        return meta, {n: np.concatenate([p[n] for p in parts if n in p]) for n in names}

    def remove(self) -> None:
        """Remove the journal; safe to call twice."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.npz"))

    def _meta(self) -> EpisodeMeta:
        path = self.folder / HEADER
        for folder in (self.folder, self.draft):
            self._plain(folder)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreCorruptError(f"{path} cannot be read: {error.strerror}") from error

        def build() -> EpisodeMeta:
            raw: dict[str, Any] = json.loads(data)
            if sha256(json_bytes(raw["meta"])) != raw["sha256"]:
                raise ValueError("checksum")
            meta = meta_from_json(raw["meta"])
            for spec in meta.embodiment.signals:
                confined(spec.name, path)
            return meta

        return parse_record(build, str(path))

    def _plain(self, folder: Path) -> None:
        parse_record(
            lambda: confined(folder.name, self.folder, below=folder.parent, whole=True),
            str(folder),
        )


def recoverable(temporary: Path) -> tuple[Journal, ...]:
    """Journals of drafts that are there with at least one flush."""
    found = (Journal(p) for p in sorted(temporary.glob("*.journal")))
    return tuple(journal for journal in found if journal.flushed)
