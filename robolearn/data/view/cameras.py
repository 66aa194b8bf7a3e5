"""Decodes the pictures of one camera in one episode when they are asked for."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import dataclasses
from collections.abc import Generator
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.data.store.chunks import StoredArray, read_array
from robolearn.data.store.manifest import EPISODES
from robolearn.data.store.picture_codec import StoredFrames, open_values
from robolearn.data.store.store import EpisodeStore
from robolearn.shapes import AnyArray, Depth, Flags, Index, Picture, Times
from robolearn.types import SampleBlock

# A table's length away: colours are for what is on it [mm].
FAR_MM = 2000.0


@dataclass(frozen=True, slots=True)
class Camera:
    """``N`` frames with their capture times and validity ``[N]``; ``view [T]``: the frame that each
    tick showed.
    """

    name: str
    t_ns: Times
    valid: Flags
    view: Int64[NDArray[np.int64], " t"]
    frames: StoredArray | StoredFrames

    def seen(self, rows: Index) -> Generator[AnyArray]:
        """The frames ``rows`` for a person: depth in colours (:func:`coloured`)."""
        for frame in self.at(rows):
            yield coloured(frame) if frame.ndim == 2 else frame

    def at(self, rows: Index) -> Generator[AnyArray]:
        """The frames ``rows``, ascending, one after the other; a chunk is decoded once."""
        index, chunk = -1, np.zeros(0, dtype=np.uint8)
        for row in rows.tolist():
            if row // self.frames.rows_per_chunk != index:
                index = row // self.frames.rows_per_chunk
                chunk = self.frames.chunk(index)
            yield chunk[row % self.frames.rows_per_chunk]


def coloured(depth: Depth) -> Picture:
    """Depth [mm] for a person: from red (near) to blue (:data:`FAR_MM`), black where nothing was
    measured.
    """
    near = np.clip(255.0 - depth * (255.0 / FAR_MM), 0.0, 255.0).astype(np.uint8)
    bgr = cv2.applyColorMap(near, cv2.COLORMAP_TURBO)
    bgr[depth == 0] = 0
    return np.asarray(bgr[..., ::-1], dtype=np.uint8)


def open_camera(store: EpisodeStore, episode_id: str, name: str) -> Camera:
    """Camera ``name`` of an episode; damage is a :class:`StoreCorruptError`."""
    root, base = store.path / EPISODES / episode_id, f"signals/{name}"
    files = store.manifest(episode_id).by_path()
    t_ns, valid, view = (
        read_array(root, f"{base}/{part}", files)[0] for part in ("t_ns", "valid", "view")
    )
    return Camera(name, t_ns, valid, view, open_values(root, base, files))


def read_without_pictures(store: EpisodeStore, episode_id: str) -> Episode:
    """An episode whose cameras have times, validity and views, but no pictures (0 rows)."""
    info, meta = store.info(episode_id), store.meta(episode_id)
    cameras = [s for s in meta.embodiment.signals if s.is_image and s.name in info.signals]
    names = [c.name for c in cameras]
    episode = store.read(episode_id, [n for n in info.signals if n not in names])
    streams, view = dict(episode.streams), dict(episode.view)
    for spec in cameras:
        camera = open_camera(store, episode_id, spec.name)
        empty = np.zeros((0, *spec.shape), dtype=spec.dtype)
        streams[spec.name] = SampleBlock(camera.t_ns, empty, camera.valid)
        view[spec.name] = camera.view
    return dataclasses.replace(episode, streams=streams, view=view)
