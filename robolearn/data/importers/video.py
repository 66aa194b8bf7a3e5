"""Reads frames of a video file, a few in memory at a time, with the times of the container."""

from __future__ import annotations

import functools
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.foreign import refuse_pointer
from robolearn.data.importers.recording import BLOCK_ROWS, optional_module
from robolearn.errors import DataError
from robolearn.shapes import Floats, Pictures


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Presentation times ``t_s [n]`` in seconds, ascending, and the shape of a frame."""

    path: Path
    t_s: Floats
    shape: tuple[int, int, int]

    @property
    def rate_hz(self) -> float:
        """Frames per second over the whole video."""
        if len(self.t_s) < 2:
            return 0.0
        return float((len(self.t_s) - 1) / (self.t_s[-1] - self.t_s[0]))


def video_info(path: Path) -> VideoInfo:
    """Times and shape without decoding a picture."""
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read as a video: {error}") from error
    refuse_pointer(path)
    return _video_info(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=8)
def _video_info(path: Path, changed_ns: int, size: int) -> VideoInfo:
    """Remembered while the file is the same: one file may hold hundreds of episodes."""
    del changed_ns, size
    av = _av()
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            base = float(stream.time_base)
            pts = [p.pts for p in container.demux(stream) if p.pts is not None and p.size]
            shape = (int(stream.height), int(stream.width), 3)
    except (av.FFmpegError, OSError, IndexError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a video: {error}") from error
    if not pts:
        raise DataError(f"{path} has no video frames")
    return VideoInfo(path, np.sort(np.asarray(pts, dtype=np.float64)) * base, shape)


def video_blocks(
    info: VideoInfo, start_s: float = 0.0, count: int | None = None
) -> Generator[Pictures]:
    """``count`` RGB frames (None: all) from time ``start_s`` on, in blocks of at most 16.

    A video that ends early or does not decode is a :class:`DataError`.
    """
    av = _av()
    begin = int(np.searchsorted(info.t_s, start_s - _half_frame(info)))
    wanted = len(info.t_s) - begin if count is None else count
    given = 0
    try:
        with av.open(str(info.path)) as container:
            stream = container.streams.video[0]
            if begin:
                container.seek(int(info.t_s[begin] / float(stream.time_base)), stream=stream)
            block: list[NDArray[np.uint8]] = []
            for frame in container.decode(stream):
                if frame.time < start_s - _half_frame(info):
                    continue
                block.append(np.asarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8))
                given += 1
                if len(block) == BLOCK_ROWS or given == wanted:
                    yield np.stack(block)
                    block = []
                if given == wanted:
                    break
            if block:
                yield np.stack(block)
    except (av.FFmpegError, OSError) as error:
        raise DataError(f"{info.path} cannot be decoded after frame {given}: {error}") from error
    if given != wanted:
        raise DataError(f"{info.path}: expected {wanted} frames from {start_s:g} s, got {given}")


def _half_frame(info: VideoInfo) -> float:
    return 0.5 / info.rate_hz if info.rate_hz else 0.0


def _av() -> Any:
    return optional_module("av", "av", "decoding a video")
