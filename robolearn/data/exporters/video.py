"""Encodes pictures as mp4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.importers.recording import optional_module
from robolearn.shapes import Pictures

CODEC, LOSSLESS_CODEC = "libx264", "libx264rgb"
PIXELS, LOSSLESS_PIXELS = "yuv420p", "rgb24"
LOSSY = {"crf": "18", "g": "2", "preset": "fast"}
LOSSLESS = {"qp": "0", "g": "2", "preset": "ultrafast"}


def encode(path: Path, frames: Pictures, rate_hz: int, *, lossless: bool) -> None:
    """Write ``frames [T, height, width, 3]``; lossless ones are H.264 in RGB."""
    av: Any = optional_module("av", "av", "encoding a video")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(
            LOSSLESS_CODEC if lossless else CODEC,
            rate=rate_hz,
            options=LOSSLESS if lossless else LOSSY,
        )
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = LOSSLESS_PIXELS if lossless else PIXELS
        for picture in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
