"""The pictures of one camera in one episode, decoded when asked for."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.store.chunks import StoredArray, read_array
from robolearn.data.store.manifest import EPISODES
from robolearn.data.store.picture_codec import StoredFrames, open_values
from robolearn.data.store.store import EpisodeStore


@dataclass(frozen=True, slots=True)
class Camera:
    """``N`` frames with their capture times and validity ``[N]``; ``view [T]``: the frame that each
    tick showed.
    """

    name: str
    t_ns: NDArray[np.int64]
    valid: NDArray[np.bool_]
    view: NDArray[np.int64]
    frames: StoredArray | StoredFrames

    def at(self, rows: NDArray[np.int64]) -> Generator[NDArray[Any]]:
        """The frames ``rows``, ascending, one after the other; a chunk is decoded once."""
        index, chunk = -1, np.zeros(0, dtype=np.uint8)
        for row in rows.tolist():
            if row // self.frames.rows_per_chunk != index:
                index = row // self.frames.rows_per_chunk
                chunk = self.frames.chunk(index)
            yield chunk[row % self.frames.rows_per_chunk]


def open_camera(store: EpisodeStore, episode_id: str, name: str) -> Camera:
    """Camera ``name`` of an episode; damage is a :class:`StoreCorruptError`."""
    root, base = store.path / EPISODES / episode_id, f"signals/{name}"
    files = store.manifest(episode_id).by_path()
    t_ns, valid, view = (
        read_array(root, f"{base}/{part}", files)[0] for part in ("t_ns", "valid", "view")
    )
    return Camera(name, t_ns, valid, view, open_values(root, base, files))
