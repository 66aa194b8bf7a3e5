"""Imports LeRobot v3.0: many episodes in one parquet file and in one video per camera.

meta/info.json, tasks.parquet, episodes/chunk-000/file-000.parquet
data/chunk-000/file-000.parquet
videos/<camera>/chunk-000/file-000.mp4
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.importers.foreign import patterned
from robolearn.data.importers.lerobot_images import image_stream
from robolearn.data.importers.lerobot_table import (
    DatasetInfo,
    EpisodeTable,
    Feature,
    codebase_version,
    read_info,
    read_table,
    task_texts,
)
from robolearn.data.importers.recording import (
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    SourceEpisode,
    episode_ranges,
    make_episode,
)
from robolearn.data.importers.restore import restored
from robolearn.data.importers.video import video_blocks, video_info
from robolearn.errors import DataError

SIDECAR = "meta/robolearn.json"
"""Metadata of episodes that this package exported; LeRobot does not look at it."""
TICKS, PROGRESS = "robolearn.tick_t_ns", "robolearn.progress"
STATE = "obs/state"


@dataclass(frozen=True, slots=True)
class LeRobotV30Recording:
    """An opened dataset; ``rows`` are those of ``meta/episodes``, without statistics."""

    info: DatasetInfo
    rows: tuple[Mapping[str, Any], ...]
    left_out: tuple[str, ...]
    images: bool
    sidecar: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self.info.root

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.rows)

    def episode(self, index: int) -> ImportedEpisode:
        """Read the episode's rows; its frames are decoded when they are written."""
        row = self.rows[index]
        try:
            number, length = int(row["episode_index"]), int(row["length"])
            file = self.file(self.info.data_path, row, "data", "")
            task = task_texts(row["tasks"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self.path}/meta/episodes: row {index} lacks {error}") from error
        rows = read_table(file, number, [c.column for c in self.info.cameras])
        table = EpisodeTable(self.info, number, rows, str(file), length)
        missing = [c.key for c in self.info.cameras if not self.has_pictures(row, c)]
        source = table.source(
            {
                "importer": "lerobot-v3.0",
                "left_out": list(self.left_out),
                "missing_videos": missing,
            },
            task,
        )
        if self.images:
            cameras = [c for c in self.info.cameras if c.key not in missing]
            source = dataclasses.replace(
                source,
                frames=tuple(self._frames(row, camera, length) for camera in cameras),
                cameras=tuple(self.info.camera_spec(c) for c in self.info.cameras),
            )
        if self.sidecar:
            source = self._restored(source, number)
        return make_episode(source)

    def has_pictures(self, row: Mapping[str, Any], camera: Feature) -> bool:
        """Whether the video file is there; pictures in the rows come with them."""
        return camera.dtype == "image" or self.video(row, camera).exists()

    def video(self, row: Mapping[str, Any], camera: Feature) -> Path:
        """The video file that holds the episode."""
        try:
            return self.file(self.info.video_path, row, f"videos/{camera.column}", camera.column)
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.path}/meta/episodes lacks {error} of {camera.key}") from error

    def file(self, pattern: str, row: Mapping[str, Any], part: str, camera: str) -> Path:
        """A file of the data or of a camera."""
        chunk, number = int(row[f"{part}/chunk_index"]), int(row[f"{part}/file_index"])
        fields = {"chunk_index": chunk, "file_index": number, "video_key": camera}
        return patterned(self.info.root, pattern, fields)

    def _frames(self, row: Mapping[str, Any], camera: Feature, length: int) -> FrameStream:
        spec = self.info.camera_spec(camera)
        if camera.dtype == "image":
            data, number = self.file(self.info.data_path, row, "data", ""), row["episode_index"]
            return image_stream(self.path, data, camera.column, spec, int(number), length)
        file = self.video(row, camera)
        info = video_info(file)
        start, end = (float(row[f"videos/{camera.column}/{k}_timestamp"]) for k in ("from", "to"))
        frame_s = 1.0 / self.info.rate_hz
        # The rows say how many frames there are, as for LeRobot itself; 'to' is the time of the
        # last frame in some datasets, that of the frame after it in others.
        first = int(np.searchsorted(info.t_s, start - 0.5 * frame_s))
        mine = info.t_s[first : first + length]
        last = start + (length - 1) * frame_s
        fits = len(mine) == length and abs(mine[-1] - last) < 0.5 * frame_s
        count = round((end - start) / frame_s)
        if not fits or count not in (length - 1, length) or info.shape != spec.shape:
            raise DataError(
                f"{file}: expected {length} frames of {spec.shape} from {start:g} to {end:g} s,"
                f" got {min(len(mine), count)} of {info.shape}; frames and rows would not belong"
                " together"
            )
        return FrameStream(spec, lambda: video_blocks(info, start, length))

    def _restored(self, source: SourceEpisode, number: int) -> SourceEpisode:
        """An episode that this package exported."""
        try:
            raw = self.sidecar["episodes"][number]
            cameras: dict[str, str] = self.sidecar["cameras"]
            wanted: list[str] = self.sidecar["states"]
            sizes = {
                s["name"]: int(np.prod(s["shape"], dtype=np.int64))
                for s in raw["embodiment"]["signals"]
            }
            ends = np.cumsum([sizes[name] for name in wanted])
            ticks, progress = source.signals[f"obs/{TICKS}"], source.signals[f"obs/{PROGRESS}"]
            names = {Feature(key, "video", (), ()).signal: n for key, n in cameras.items()}
            frames = {names[f.spec.name]: f for f in source.frames}
            state = source.signals[STATE] if wanted else np.zeros((len(ticks), 0))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"{self.path}/{SIDECAR} is damaged: {error}") from error
        parts = np.split(state.reshape(len(ticks), -1), ends[:-1], axis=1) if wanted else []
        values = dict(zip(wanted, parts, strict=True))
        return restored(source, raw, values, frames, ticks=ticks, progress=progress)


class LeRobotV30Importer:
    """``meta/info.json`` with ``codebase_version`` v3.x."""

    looked_for = "meta/info.json with codebase_version v3.0"

    def recognise(self, path: Path) -> bool:
        """Whether the folder says so."""
        return codebase_version(path).startswith("v3")

    def open(self, path: Path, options: ImportOptions) -> LeRobotV30Recording:
        """Read the metadata and look which files are there."""
        info = read_info(path, options.rename)
        files = sorted((path / "meta/episodes").glob("*/*.parquet"))
        if not files:
            raise DataError(
                f"{path}/meta/episodes holds no parquet file; the dataset is incomplete"
            )
        rows: list[dict[str, Any]] = []
        for file in files:
            table = read_table(file)
            wanted = [n for n in table.column_names if not n.startswith("stats/")]
            rows += table.select(wanted).to_pylist()
        rows.sort(key=lambda row: int(row.get("episode_index", -1)))
        if len(rows) != info.episodes:
            raise DataError(
                f"{path}/meta/episodes lists {len(rows)} episodes, info.json says {info.episodes}"
            )
        opened = LeRobotV30Recording(info, tuple(rows), (), options.images, _sidecar(path))
        return dataclasses.replace(opened, left_out=_left_out(opened))


def _sidecar(path: Path) -> dict[str, Any]:
    file = path / SIDECAR
    if not file.exists():
        return {}
    try:
        raw: dict[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} is damaged: {error}; delete it to import without") from error
    return raw


def _left_out(recording: LeRobotV30Recording) -> tuple[str, ...]:
    reasons = list(recording.info.not_read)
    for camera in recording.info.cameras:
        if not recording.images:
            reasons.append(f"{camera.key} (pictures: give --images)")
        gone = [
            int(row["episode_index"])
            for row in recording.rows
            if not recording.has_pictures(row, camera)
        ]
        if gone:
            reasons.append(
                f"{camera.key} of episodes {episode_ranges(gone)}: no video file"
                f" ({len(gone)} of {recording.count} missing)"
            )
    return tuple(reasons)
