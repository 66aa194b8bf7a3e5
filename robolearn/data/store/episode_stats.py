"""Writes statistics of one episode with it and merges them when asked for those of a store.

They are the attributes of the group ``statistics`` of an episode, so they are committed, hashed,
checked, copied and removed with it, and never go stale: an episode does not change.

    {"version": 1,
     "signals": {"arm/joint_position": {"count", "minimum", "maximum", "mean", "m2",
                                        "rank_error", "levels"},     all valid samples
                 "top/image":          {"pixels": [3][256]}},        counts of sampled pixels
     "actions": {"tool/xy_table":      {...}}}                       commanded

``levels`` is the summary of :mod:`robolearn.data.quantiles` (values with nine digits). Of
pictures, every 16th frame counts, on a grid of at most 128 x 128 pixels; other large arrays (depth
maps) have no statistics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.data.store.decoded import ChunkedFrames
from robolearn.data.store.stats import Moments, PixelStats, RunningStats
from robolearn.errors import DataError
from robolearn.shapes import AnyRows, Flags, OwnFlags
from robolearn.spec import EmbodimentSpec, SignalSpec

Key = tuple[str, str, str]

GROUP = "statistics"
VERSION = 1
SKETCH = 64
"""Of the summaries in episodes: exact up to 128 samples, about 60 values per level after that."""
FRAME_STRIDE = 16
GRID = 128


class EpisodeStatistics:
    """Collects what is only there while an episode is being written: its pictures."""

    def __init__(self) -> None:
        self._pixels: dict[str, PixelStats] = {}
        self._frames: dict[str, int] = {}

    def wants_next(self, name: str) -> bool:
        """Whether the next frame of a camera counts."""
        return self._frames.get(name, 0) % FRAME_STRIDE == 0

    def skip(self, name: str) -> None:
        """The next frame of a camera does not count, or is missing."""
        self._frames[name] = self._frames.get(name, 0) + 1

    def move_to(self, name: str, row: int) -> None:
        """The next frame of a camera is ``row``; those between do not count."""
        self._frames[name] = row

    def add_frames(self, spec: SignalSpec, frames: AnyRows, valid: Flags) -> None:
        """The next frames ``[n, h, w, c]`` of a camera; other signals, and depth, are ignored."""
        if not _has_colours(spec):
            return
        seen = self._frames.get(spec.name, 0)
        rows = np.arange(-seen % FRAME_STRIDE, len(frames), FRAME_STRIDE)
        step = max(1, -(-max(spec.shape[:2]) // GRID))
        pixels = self._pixels.setdefault(spec.name, PixelStats(spec.shape[2]))
        pixels.update(frames[rows[valid[rows]], ::step, ::step])
        self._frames[spec.name] = seen + len(frames)

    def finish(self, episode: Episode, large: frozenset[str]) -> dict[str, Any]:
        """Attributes of the group; values of ``large`` signals are not in ``episode`` any more."""
        signals: dict[str, Any] = {}
        for name, block in episode.streams.items():
            spec = episode.meta.embodiment.signal(name)
            if spec.is_depth:
                # Levels of colour say nothing of it, and its mean is that of the room.
                continue
            if spec.is_image:
                if name not in large and name not in self._pixels:
                    self.add_frames(spec, block.value, block.valid)
                pixels = self._pixels.get(name, PixelStats(spec.shape[2]))
                signals[name] = {"pixels": pixels.counts.tolist()}
            elif name not in large:
                signals[name] = _summary(block.value[block.valid])
        for name, pixels in self._pixels.items():
            signals.setdefault(name, {"pixels": pixels.counts.tolist()})
        actions = {name: _summary(values) for name, values in episode.action.items()}
        return {"version": VERSION, "signals": signals, "actions": actions}


def episode_statistics(
    episode: Episode, cameras: Mapping[str, tuple[ChunkedFrames, OwnFlags]]
) -> dict[str, Any]:
    """The same from the data, of an episode that was read without ``cameras`` (frames, validity):
    only the frames that count are decoded, one after the other.
    """
    found = EpisodeStatistics()
    for name, (frames, valid) in cameras.items():
        spec = episode.meta.embodiment.signal(name)
        for row in range(0, len(valid), FRAME_STRIDE):
            number, offset = divmod(row, frames.rows_per_chunk)
            frame = frames.chunk(number)[offset : offset + 1]
            found.add_frames(spec, frame, valid[row : row + 1])
            found.move_to(name, row + FRAME_STRIDE)
    maps = [n for n in episode.streams if _is_map(episode.meta.embodiment.signal(n))]
    return found.finish(episode, frozenset(maps))


def parse_statistics(data: bytes, where: str) -> dict[str, Any] | None:
    """The attributes in ``statistics/zarr.json``; None if of a version that cannot be read."""
    found = json.loads(data)["attributes"]
    if not isinstance(found.get("version"), int):
        raise DataError(f"{where}: these are no statistics of an episode")
    return found if found["version"] == VERSION else None


def differing_statistics(
    stored: Mapping[str, Any], episode: Episode, lossy: frozenset[str]
) -> list[str]:
    """Names of signals and actions whose ``stored`` statistics are not those of the data.

    ``episode`` with all its streams; of ``lossy`` cameras only the number of pixels is compared,
    because theirs were counted before the pictures were encoded.
    """
    maps = [n for n in episode.streams if _is_map(episode.meta.embodiment.signal(n))]
    found = EpisodeStatistics().finish(episode, frozenset(maps))
    wrong: list[str] = []
    for part in ("signals", "actions"):
        for name in sorted({*found[part], *stored[part]} - set(maps)):
            one, other = stored[part].get(name), found[part].get(name)
            if one is None or other is None or not _agree(one, other, name in lossy):
                wrong.append(name if part == "signals" else f"action {name}")
    return wrong


def _agree(one: Mapping[str, Any], other: Mapping[str, Any], lossy: bool) -> bool:
    """Up to rounding: sums depend on the order in which a machine adds."""
    if one.keys() != other.keys():
        return False
    if "pixels" in one:
        a, b = (np.array(v["pixels"], dtype=np.int64) for v in (one, other))
        same = a.shape == b.shape
        return same and bool((a.sum(-1) == b.sum(-1)).all() if lossy else (a == b).all())
    if not one["count"] or one["count"] != other["count"]:
        return bool(one["count"] == other["count"])
    largest = np.maximum(np.abs(other["minimum"]), np.abs(other["maximum"]))
    slack = {"mean": largest * 1e-9, "m2": one["count"] * (largest * 1e-6) ** 2}
    for key in ("minimum", "maximum", "mean", "m2"):
        off = np.abs(np.subtract(one[key], other[key]))
        if not (off <= slack.get(key, 0.0) + 1e-6 * np.abs(other[key])).all():
            return False
    levels = zip(one["levels"], other["levels"], strict=False)
    return len(one["levels"]) == len(other["levels"]) and all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-6, atol=1e-300) for a, b in levels
    )


class MergedStatistics:
    """Statistics of many episodes, by role (``obs``, ``action``), name and unit."""

    def __init__(self) -> None:
        self.running: dict[Key, RunningStats | PixelStats] = {}

    def add(self, found: Mapping[str, Any], embodiment: EmbodimentSpec) -> None:
        """Merge those of one episode in."""
        obs = {s.name: s.unit for s in embodiment.signals}
        commanded = {a.name: a.unit for a in embodiment.actions}
        for role, part, units in (("obs", "signals", obs), ("action", "actions", commanded)):
            for name, raw in found[part].items():
                key = role, name, units[name]
                if "pixels" in raw:
                    self._pixels(key, np.array(raw["pixels"], dtype=np.int64))
                else:
                    self._values(key, raw)

    def _pixels(self, key: Key, counts: NDArray[np.int64]) -> None:
        merged = self.running.setdefault(key, PixelStats(len(counts)))
        if not isinstance(merged, PixelStats) or merged.counts.shape != counts.shape:
            raise DataError(f"{key[1]}: pictures in some episodes, something else in others")
        merged.counts += counts

    def _values(self, key: Key, raw: Mapping[str, Any]) -> None:
        if not raw["count"]:
            return
        minimum, maximum, mean, m2 = (
            np.array(raw[key], dtype=np.float64) for key in ("minimum", "maximum", "mean", "m2")
        )
        merged = self.running.setdefault(key, RunningStats(mean.size))
        if not isinstance(merged, RunningStats) or merged.sketch.size != mean.size:
            raise DataError(f"{key[1]}: of different sizes in different episodes")
        levels = [np.array(v, dtype=np.float64).reshape(-1, mean.size) for v in raw["levels"]]
        moments = Moments(int(raw["count"]), minimum, maximum, mean, m2)
        merged.restore(moments, levels, int(raw["rank_error"]))


def _summary(values: NDArray[Any]) -> dict[str, Any]:
    size = int(np.prod(values.shape[1:], dtype=np.int64))
    running = RunningStats(size, SKETCH)
    running.update(values)
    moments = running.moments()
    if not moments.count:
        return {"count": 0}
    return {
        "count": moments.count,
        "minimum": moments.minimum.tolist(),
        "maximum": moments.maximum.tolist(),
        "mean": moments.mean.tolist(),
        "m2": moments.m2.tolist(),
        "rank_error": running.sketch.rank_error,
        "levels": [_short(level) for level in running.sketch.levels],
    }


def _short(level: NDArray[np.float64]) -> list[list[float]]:
    return [[float(f"{v:.9g}") for v in row] for row in level.tolist()]


def _has_colours(spec: SignalSpec) -> bool:
    return spec.is_image and not spec.is_depth


def _is_map(spec: SignalSpec) -> bool:
    size = int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(spec.dtype).itemsize
    return size >= 4096 and not spec.is_image
