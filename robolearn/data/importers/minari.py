"""Imports Minari datasets as they lie on disk (read without the ``minari`` package).

    <dataset>/data/main_data.hdf5    attributes of the file or data/metadata.json
      episode_0/                     observations [T + 1, ...] (or groups of them)
        actions, rewards, terminations, truncations [T, ...], infos/
    <dataset>/data/metadata.json

Format: Minari ``docs/content/dataset_standards``. The last observation has no action: it is kept
as a sample after the last tick.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.hdf5 import (
    attribute,
    frames_of,
    is_picture,
    leaves,
    names_in,
    natural,
    numbers,
    opened,
)
from robolearn.data.importers.recording import (
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    SourceEpisode,
    make_episode,
)
from robolearn.errors import DataError

DEFAULT_RATE_HZ = 20.0
FILES = ("main_data.hdf5", "data/main_data.hdf5")
EPISODE = "episode_"


@dataclass(frozen=True, slots=True)
class MinariRecording:
    """An opened dataset."""

    path: Path
    episodes: tuple[str, ...]
    metadata: dict[str, Any]
    rate_hz: float
    left_out: tuple[str, ...]
    images: bool

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.episodes)

    def episode(self, index: int) -> ImportedEpisode:
        """Read one episode; pictures are read when they are written."""
        name = self.episodes[index]
        where = f"{self.path}: {name}"
        signals: dict[str, NDArray[Any]] = {}
        actions: dict[str, NDArray[Any]] = {}
        frames: list[FrameStream] = []
        with opened(self.path) as file:
            group = file[name]
            found = leaves(group)
            lengths = {p: len(d) for p, d in found.items() if _part(p) == "actions" and d.shape}
            if len(set(lengths.values())) != 1 or not lengths:
                raise DataError(f"{where}: expected actions of one length, got {lengths}")
            rows = next(iter(lengths.values()))
            for path, dataset in found.items():
                if _part(path) == "actions":
                    actions[_name(path)] = _rows(numbers(dataset, where))
                elif _part(path) == "observations" and not is_picture(dataset):
                    signals[_name(path)] = _rows(numbers(dataset, where))
                elif _part(path) == "observations" and self.images:
                    shape, size = tuple(dataset.shape[1:]), slice(0, int(dataset.shape[0]))
                    full = f"{name}/{path}"
                    frames.append(
                        frames_of(self.path, full, _name(path), shape, self.rate_hz, size)
                    )
            reward, ended, cut = (_flags(found, k, rows, where) for k in FLAGS)
            kept = {str(k): attribute(group, str(k)) for k in group.attrs}
        t_ns = np.round(np.arange(rows + 1) * (1e9 / self.rate_hz)).astype(np.int64)
        return make_episode(
            SourceEpisode(
                source=str(self.metadata.get("dataset_id") or self.path.name),
                index=index,
                rate_hz=self.rate_hz,
                signals=signals,
                actions=actions,
                provenance={
                    "importer": "minari",
                    "metadata": self.metadata,
                    "attributes": kept,
                    "truncation": bool(cut[-1:].any()),
                    "left_out": list(self.left_out),
                },
                frames=tuple(frames),
                times=dict.fromkeys([*signals, *(f.spec.name for f in frames)], t_ns),
                reward=reward,
                terminal=bool(ended[-1:].any()),
                kind="rollout",
                agent=str(self.metadata.get("algorithm_name") or "unknown"),
            )
        )


FLAGS = ("rewards", "terminations", "truncations")


class MinariImporter:
    """``main_data.hdf5`` with ``episode_0``."""

    looked_for = "data/main_data.hdf5 (or an HDF5 file) with episode_0/actions"

    def recognise(self, path: Path) -> bool:
        """Whether there are episodes."""
        return any(n.startswith(EPISODE) for n in names_in(_file(path)))

    def open(self, path: Path, options: ImportOptions) -> MinariRecording:
        """Look at the names and the metadata."""
        source = _file(path)
        with opened(source) as file:
            episodes = tuple(n for n in natural(file) if n.startswith(EPISODE))
            if not episodes:
                raise DataError(f"{source}: expected episode_0, found {sorted(file)}")
            metadata: dict[str, Any] = {str(k): attribute(file, str(k)) for k in file.attrs}
            found = leaves(file[episodes[0]])
            other = sorted({_part(p) for p in found} - {"actions", "observations", *FLAGS})
            pictures = [p for p, d in found.items() if is_picture(d)]
        beside = source.parent / "metadata.json"
        try:
            if beside.is_file():
                metadata |= json.loads(beside.read_bytes())
        except (ValueError, TypeError, RecursionError) as error:
            raise DataError(f"{beside} is damaged: {error}") from error
        reasons = [] if options.images else [f"{p} (pictures: give --images)" for p in pictures]
        rate = DEFAULT_RATE_HZ if options.rate_hz is None else options.rate_hz
        if options.rate_hz is None:
            metadata["rate"] = f"{rate:g} Hz assumed: the format does not say it (--rate-hz)"
        return MinariRecording(source, episodes, metadata, rate, (*other, *reasons), options.images)


def _file(path: Path) -> Path:
    for name in FILES if path.is_dir() else ():
        if (path / name).is_file():
            return path / name
    return path


def _part(path: str) -> str:
    return path.split("/", maxsplit=1)[0]


def _name(path: str) -> str:
    part, _, rest = path.partition("/")
    plain = {"actions": "action", "observations": "state"}[part]
    return f"obs/{plain}" if not rest else f"obs/{rest.replace('/', '.')}"


def _rows(values: NDArray[Any]) -> NDArray[Any]:
    """Discrete values ``[T]`` as ``[T, 1]``."""
    return values[:, None] if values.ndim == 1 else values


def _flags(found: dict[str, Any], name: str, rows: int, where: str) -> NDArray[np.float64]:
    if name not in found:
        raise DataError(f"{where}: expected '{name}', found {sorted(found)}")
    values = numbers(found[name], where).astype(np.float64)
    if values.shape != (rows,):
        raise DataError(f"{where}: {name} has shape {values.shape}, expected ({rows},)")
    return values
