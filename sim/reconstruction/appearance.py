"""Takes the colours of objects and table from the pictures that see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robolearn.geometry import CameraMatrix, Pose, inverse
from robolearn.shapes import Flags, FloatRows, Floats, Index, Picture
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.shapes import Depth, Points

RGB = tuple[float, float, float]
Rows = Index

# What a picture's depth may differ from a point's for the point to be visible [m].
_VISIBLE_M = 0.006
_VIEWS = 12
GREY: RGB = (0.7, 0.7, 0.7)


def pixels_of(points: Points, K: CameraMatrix, T_table_camera: Pose) -> tuple[FloatRows, Floats]:
    """Where a straight camera sees points ``[n, 3]``: pixels ``[n, 2]`` and distances along its
    axis ``[n]`` [m].
    """
    T = inverse(T_table_camera)
    local = points @ T[:3, :3].T + T[:3, 3]
    far = np.where(local[:, 2] > 1e-6, local[:, 2], np.inf)
    rays = local[:, :2] / far[:, None]
    return rays * [K[0, 0], K[1, 1]] + [K[0, 2], K[1, 2]], local[:, 2]


def colours_of(surfaces: Mapping[str, Points], frames: Sequence[PosedFrame]) -> dict[str, RGB]:
    """The usual colour of every surface (points of the table's frame), 0 to 1; grey for what no
    picture shows.
    """
    seen: dict[str, list[FloatRows]] = {name: [] for name in surfaces}
    for f in frames[:: max(1, len(frames) // _VIEWS)]:
        picture, depth = f.picture(), f.depth_m()
        for name, points in surfaces.items():
            visible, row, column = visible_at(points, f, depth)
            seen[name].append(_colours(picture, row[visible], column[visible]))
    out: dict[str, RGB] = {}
    for name, parts in seen.items():
        every = np.concatenate(parts) if parts else np.zeros((0, 3))
        r, g, b = np.median(every, axis=0).tolist() if len(every) else GREY
        out[name] = (r, g, b)
    return out


def visible_at(points: Points, f: PosedFrame, depth: Depth) -> tuple[Flags, Rows, Rows]:
    """Which points ``[n]`` a picture shows, and the rows and columns of their pixels."""
    at, far = pixels_of(points, f.K, f.T_table_camera)
    height, width = depth.shape
    column, row = (np.rint(np.nan_to_num(at[:, k], posinf=-1.0)) for k in range(2))
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height) & (far > 0)
    column = np.where(inside, column, 0).astype(np.int64)
    row = np.where(inside, row, 0).astype(np.int64)
    return inside & (np.abs(depth[row, column] - far) < _VISIBLE_M), row, column


def _colours(picture: Picture, row: Rows, column: Rows) -> FloatRows:
    return picture[row, column].astype(np.float64) / 255.0
