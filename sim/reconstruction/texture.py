"""Lays the colours of a surface into one picture: charts of faces that look along one axis.

Neighbouring faces whose normals are nearest to the same axis of the table's frame make a chart and
are projected along it; charts are packed on shelves. Between charts the picture goes on in the
colour of the nearest one, so that blending at their rims does not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from robolearn.geometry import XY
from robolearn.shapes import OwnIndex, Picture
from sim.reconstruction.appearance import Spots, filled, filled_picture
from sim.reconstruction.shapes import Corners, Faces, OwnPoints, TexturePoints, Vertices

_connected: Any = csgraph.connected_components
_sparse: Any = sparse

# Around every chart, and the longest side of a picture [px].
_RIM, _WIDEST = 2, 2048


@dataclass(frozen=True, slots=True)
class Texture:
    """A picture and, for every corner of every face, where it lies in it: ``[3 f, 2]``, u to the
    right and v upwards, 0 to 1. ``seen``: the share of it that photographs showed.
    """

    picture: Picture
    coordinates: TexturePoints
    seen: float


@dataclass(frozen=True, slots=True)
class Atlas:
    """Where the corners of every face lie in the picture ``[3 f, 2]`` [px] (x, y downwards), the
    picture's size, and of every texel on a face its place and its spot.
    """

    corners: TexturePoints
    width: int
    height: int
    rows: OwnIndex
    columns: OwnIndex
    spots: Spots


def lay_out(vertices: Vertices, faces: Faces, texel_m: float) -> Atlas:
    """Charts of a mesh in the table's frame, a texel for every ``texel_m``."""
    triangles = vertices[faces]
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    axis = np.abs(normals).argmax(axis=1)
    side = 2 * axis + (normals[np.arange(len(faces)), axis] < 0)
    chart = _charts(faces, side)
    others = np.array([[1, 2], [0, 2], [0, 1]])[axis]
    flat = np.take_along_axis(triangles, others[:, None, :], axis=2)
    low = np.full((int(chart.max()) + 1, 2), np.inf)
    high = -low
    np.minimum.at(low, chart, flat.min(axis=1))
    np.maximum.at(high, chart, flat.max(axis=1))
    while True:
        sizes = np.ceil((high - low) / texel_m).astype(np.int64) + 1 + 2 * _RIM
        first, width, height = _packed(sizes)
        if max(width, height) <= _WIDEST:
            break
        texel_m *= 1.3
    at = (flat - low[chart][:, None]) / texel_m + (first[chart] + _RIM)[:, None]
    rows, columns, points, face = _texels(at, triangles)
    spots = Spots(points, normals[face])
    return Atlas(at.reshape(-1, 2), width, height, rows, columns, spots)


def textured(atlas: Atlas, colours: OwnPoints) -> Texture:
    """The picture of what ``painted`` found for the atlas's spots."""
    grid = np.full((atlas.height, atlas.width, 3), np.nan)
    grid[atlas.rows, atlas.columns] = filled(atlas.spots.points, colours)
    # A corner at the middle of a texel lies half a texel into it.
    at = (atlas.corners + 0.5) / [atlas.width, atlas.height]
    at[:, 1] = 1.0 - at[:, 1]
    return Texture(filled_picture(grid), at, float(np.isfinite(colours[:, 0]).mean()))


def flat_spots(low: XY, high: XY, texel_m: float) -> tuple[Spots, tuple[int, int]]:
    """Texels of a level rectangle at z = 0 from its far left corner on, row by row (y falls), and
    how many rows and columns they are.
    """
    columns, rows = (max(2, int(np.ceil((high[k] - low[k]) / texel_m))) for k in range(2))
    x = low[0] + (np.arange(columns) + 0.5) * (high[0] - low[0]) / columns
    y = high[1] - (np.arange(rows) + 0.5) * (high[1] - low[1]) / rows
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    points = np.column_stack([grid, np.zeros(len(grid))])
    return Spots(points, np.tile([0.0, 0.0, 1.0], (len(grid), 1))), (rows, columns)


def _charts(faces: Faces, side: OwnIndex) -> OwnIndex:
    """Which chart every face belongs to: neighbours that look to the same side."""
    count = len(faces)
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    owner = np.tile(np.arange(count), 3)
    order = np.lexsort(edges.T)
    edges, owner = edges[order], owner[order]
    shared = (edges[1:] == edges[:-1]).all(axis=1) & (side[owner[1:]] == side[owner[:-1]])
    one, other = owner[1:][shared], owner[:-1][shared]
    graph = _sparse.coo_matrix((np.ones(len(one)), (one, other)), (count, count))
    return np.asarray(_connected(graph, directed=False)[1], dtype=np.int64)


def _texels(at: Any, triangles: Any) -> tuple[OwnIndex, OwnIndex, OwnPoints, OwnIndex]:
    """Texels whose middle lies in a triangle ``[f, 3, 2]`` [px]: row, column, place [m], face."""
    rows: list[Any] = []
    columns: list[Any] = []
    points: list[Any] = []
    owner: list[Any] = []
    for face, (a, b, c) in enumerate(at):
        low = np.floor(np.minimum(np.minimum(a, b), c)).astype(np.int64)
        high = np.ceil(np.maximum(np.maximum(a, b), c)).astype(np.int64)
        area = (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
        if abs(float(area)) < 1e-9:
            continue
        x, y = np.arange(low[0], high[0] + 1)[None], np.arange(low[1], high[1] + 1)[:, None]
        s = ((x - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (y - a[1])) / area
        t = ((b[0] - a[0]) * (y - a[1]) - (x - a[0]) * (b[1] - a[1])) / area
        inside = (s >= -1e-9) & (t >= -1e-9) & (s + t <= 1.0 + 1e-9)
        if not inside.any():
            continue
        s, t = s[inside][:, None], t[inside][:, None]
        A, B, C = triangles[face]
        row, column = np.nonzero(inside)
        rows.append(row + low[1])
        columns.append(column + low[0])
        points.append(A + s * (B - A) + t * (C - A))
        owner.append(np.full(len(s), face))
    if not rows:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, np.zeros((0, 3)), nothing
    return (
        np.concatenate(rows),
        np.concatenate(columns),
        np.concatenate(points),
        np.concatenate(owner),
    )


def _packed(sizes: Corners) -> tuple[Corners, int, int]:
    """Left upper corners of rectangles on shelves, highest first, and the picture's sides."""
    width = max(16, int(sizes[:, 0].max()), int(np.ceil(np.sqrt(1.2 * sizes.prod(axis=1).sum()))))
    corner = np.zeros((len(sizes), 2), dtype=np.int64)
    x = y = shelf = 0
    for k in np.argsort(-sizes[:, 1], kind="stable"):
        w, h = (int(v) for v in sizes[k])
        if x + w > width:
            x, y, shelf = 0, y + shelf, 0
        corner[k] = (x, y)
        x, shelf = x + w, max(shelf, h)
    return corner, width, y + shelf
