"""Imports LeRobot v2.1: a parquet file and a video per camera for every episode.

meta/info.json, episodes.jsonl, tasks.jsonl
data/chunk-000/episode_000000.parquet
videos/chunk-000/<camera>/episode_000000.mp4
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.importers.foreign import patterned
from robolearn.data.importers.lerobot_images import image_stream
from robolearn.data.importers.lerobot_table import (
    DatasetInfo,
    EpisodeTable,
    Feature,
    codebase_version,
    read_info,
    read_lines,
    read_table,
    task_texts,
)
from robolearn.data.importers.recording import (
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    episode_ranges,
    make_episode,
)
from robolearn.data.importers.video import video_blocks, video_info
from robolearn.errors import DataError


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """A line of ``meta/episodes.jsonl``."""

    index: int
    length: int
    task: str


@dataclass(frozen=True, slots=True)
class LeRobotV21Recording:
    """An opened dataset."""

    info: DatasetInfo
    rows: tuple[EpisodeRow, ...]
    left_out: tuple[str, ...]
    images: bool

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self.info.root

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.rows)

    def episode(self, index: int) -> ImportedEpisode:
        """Read one parquet file; its videos are decoded when they are written."""
        row = self.rows[index]
        file = self._file(self.info.data_path, row.index, "")
        rows = read_table(file, leave_out=[c.column for c in self.info.cameras])
        table = EpisodeTable(self.info, row.index, rows, str(file), row.length)
        missing = [c.key for c in self.info.cameras if not self.has_pictures(row.index, c)]
        provenance = {
            "importer": "lerobot-v2.1",
            "left_out": list(self.left_out),
            "missing_videos": missing,
        }
        source = table.source(provenance, row.task)
        if not self.images:
            return make_episode(source)
        frames = tuple(
            self._frames(row, camera) for camera in self.info.cameras if camera.key not in missing
        )
        specs = tuple(self.info.camera_spec(camera) for camera in self.info.cameras)
        return make_episode(dataclasses.replace(source, frames=frames, cameras=specs))

    def has_pictures(self, episode: int, camera: Feature) -> bool:
        """Whether the video file is there; pictures in the rows come with them."""
        return camera.dtype == "image" or self._video(episode, camera).exists()

    def _frames(self, row: EpisodeRow, camera: Feature) -> FrameStream:
        spec = self.info.camera_spec(camera)
        if camera.dtype == "image":
            file = self._file(self.info.data_path, row.index, "")
            return image_stream(self.path, file, camera.column, spec, row.index, row.length)
        file = self._video(row.index, camera)
        info = video_info(file)
        if len(info.t_s) != row.length or info.shape != spec.shape:
            raise DataError(
                f"{file}: expected {row.length} frames of {spec.shape}, got {len(info.t_s)} of"
                f" {info.shape}; frames and rows would not belong together"
            )
        return FrameStream(spec, lambda: video_blocks(info))

    def _video(self, episode: int, camera: Feature) -> Path:
        return self._file(self.info.video_path, episode, camera.column)

    def _file(self, pattern: str, episode: int, camera: str) -> Path:
        fields = {
            "episode_chunk": episode // self.info.chunks_size,
            "episode_index": episode,
            "video_key": camera,
        }
        return patterned(self.info.root, pattern, fields)


class LeRobotV21Importer:
    """``meta/info.json`` with ``codebase_version`` v2.x."""

    looked_for = "meta/info.json with codebase_version v2.1 (or v2.0)"

    def recognise(self, path: Path) -> bool:
        """Whether the folder says so."""
        return codebase_version(path).startswith("v2")

    def open(self, path: Path, options: ImportOptions) -> LeRobotV21Recording:
        """Read the metadata and look which files are there."""
        info = read_info(path, options.rename)
        file = path / "meta/episodes.jsonl"
        try:
            rows = tuple(
                EpisodeRow(int(r["episode_index"]), int(r["length"]), task_texts(r["tasks"]))
                for r in read_lines(file)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{file} is damaged: {type(error).__name__} {error}") from error
        if len(rows) != info.episodes:
            raise DataError(f"{file} lists {len(rows)} episodes, info.json says {info.episodes}")
        opened = LeRobotV21Recording(info, rows, (), options.images)
        return dataclasses.replace(opened, left_out=_left_out(opened))


def _left_out(recording: LeRobotV21Recording) -> tuple[str, ...]:
    info = recording.info
    reasons = list(info.not_read)
    for camera in info.cameras:
        if not recording.images:
            reasons.append(f"{camera.key} (pictures: give --images)")
        gone = [r.index for r in recording.rows if not recording.has_pictures(r.index, camera)]
        if gone:
            reasons.append(
                f"{camera.key} of episodes {episode_ranges(gone)}: no video file"
                f" ({len(gone)} of {recording.count} missing)"
            )
    return tuple(reasons)
