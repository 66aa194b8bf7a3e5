"""Cuts a shape into convex parts: for contacts, where no primitive is the shape.

The inside is sampled on a grid; a part is cut along an axis where the hulls of both halves enclose
least empty space, the emptiest part first, until what is enclosed for nothing is small (after
Mamou and Ghorbel's hierarchical convex decomposition, 2009).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from scipy import spatial

from robolearn.geometry import Vector
from sim.reconstruction.shapes import Cells, Faces, OwnVertices, Vertices, Voxels

_ConvexHull: Any = cast("Any", spatial).ConvexHull

MOST_PARTS = 8
# Empty space in all hulls together, of the shape's volume, that is good enough.
_EMPTY = 0.04
_CELLS = 24
# A cut is tried at so many places along every axis.
_CUTS = 7


def convex_parts(
    vertices: Vertices, faces: Faces, most: int = MOST_PARTS
) -> tuple[OwnVertices, ...]:
    """Corners ``[v, 3]`` of at most ``most`` convex pieces that together are about the shape."""
    grid, low, side = _inside(vertices, faces)
    cells = np.argwhere(grid)
    if len(cells) < 8:
        return (_hull(vertices),)
    parts = [(cells, _waste(cells))]
    while len(parts) < most and sum(w for _, w in parts) > _EMPTY * len(cells):
        worst = max(range(len(parts)), key=lambda k: parts[k][1])
        halves = _cut(*parts[worst])
        if halves is None:
            break
        parts[worst : worst + 1] = halves
    return tuple(_hull(_corners(part) * side + low) for part, _ in parts)


def _inside(vertices: Vertices, faces: Faces) -> tuple[Voxels, Vector, float]:
    """Which cells of a grid are inside, by counting crossings of vertical lines."""
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    side = float((high - low).max()) / _CELLS
    shape = np.maximum(np.ceil((high - low) / side).astype(int), 1)
    # Lines through the cells' middles, a hair off the grid so that no edge is met exactly.
    x = low[0] + side * (np.arange(shape[0]) + 0.5) + 1e-7
    y = low[1] + side * (np.arange(shape[1]) + 0.5) + 1.7e-7
    z = low[2] + side * (np.arange(shape[2]) + 0.5)
    crossings = np.zeros((*shape[:2], shape[2] + 1), dtype=np.int64)
    for a, b, c in vertices[faces]:
        i = np.flatnonzero((x > min(a[0], b[0], c[0])) & (x < max(a[0], b[0], c[0])))
        j = np.flatnonzero((y > min(a[1], b[1], c[1])) & (y < max(a[1], b[1], c[1])))
        if not (len(i) and len(j)):
            continue
        area = (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
        if abs(float(area)) < 1e-16:
            continue
        px, py = np.meshgrid(x[i], y[j], indexing="ij")
        s = ((px - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (py - a[1])) / area
        t = ((b[0] - a[0]) * (py - a[1]) - (px - a[0]) * (b[1] - a[1])) / area
        hit = (s >= 0) & (t >= 0) & (s + t <= 1)
        height = a[2] + s * (b[2] - a[2]) + t * (c[2] - a[2])
        for m, n in zip(*np.nonzero(hit), strict=True):
            crossings[i[m], j[n], int(np.searchsorted(z, height[m, n]))] += 1
    inside = np.cumsum(crossings[:, :, :-1], axis=2) % 2 == 1
    return inside, low, side


def _corners(cells: Cells) -> Vertices:
    """Corners of the cells, as many as their hull needs: both ends of every column. Cells are in
    the order of their numbers, as ``argwhere`` gives them.
    """
    starts = np.any(np.diff(cells[:, :2], axis=0) != 0, axis=1)
    lowest = cells[np.concatenate([[True], starts])]
    highest = cells[np.concatenate([starts, [True]])] + np.array([0, 0, 1])
    ends = np.concatenate([lowest, highest])
    offsets = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    return (ends[:, None] + offsets).reshape(-1, 3).astype(np.float64)


def _waste(cells: Cells) -> float:
    """Empty cells within the hull of cells."""
    return max(0.0, float(_ConvexHull(_corners(cells)).volume) - len(cells))


def _cut(cells: Cells, waste: float) -> list[tuple[Cells, float]] | None:
    """Two halves with the least empty space; None where no cut gains anything."""
    best, least = None, waste - 1.0
    for axis in range(3):
        low, high = int(cells[:, axis].min()), int(cells[:, axis].max())
        for at in np.unique(np.linspace(low + 1, high, _CUTS).astype(int)):
            first = cells[:, axis] < at
            if not 0 < first.sum() < len(cells):
                continue
            halves = [(part, _waste(part)) for part in (cells[first], cells[~first])]
            total = sum(w for _, w in halves)
            if total < least:
                best, least = halves, total
    return best


def _hull(points: Vertices) -> OwnVertices:
    return np.asarray(points[_ConvexHull(points).vertices], dtype=np.float64)
