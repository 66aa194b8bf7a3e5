"""Finds what a scan has not seen yet of what stands on a table, and from where it would be seen.

Pictures are fused as a reconstruction fuses them. Behind and under what was seen lies what nobody
saw, which a reconstruction takes for solid: where that meets free space a wall may be anywhere
behind. A picture from the free side tells where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from robolearn.geometry import CameraMatrix, Pose, Vector, inverse
from robolearn.shapes import OwnFlags
from sim.reconstruction.shapes import Depth, OwnPoints, Voxels
from sim.reconstruction.volume import Volume

_ndimage: Any = ndimage

_VOXEL_M, _HEIGHT_M = 0.006, 0.3
# Seen by fewer pictures is not seen: one may be kept back, or show an edge.
_SEEN = 1.5
# Higher than this something stands on the table; walls that are not seen are looked for so near to
# what is [m].
_CLEAR_M, _NEAR_M = 0.01, 0.05
# Smaller things are specks, fewer places nothing to look for.
_LEAST_M3, _LEAST = 1.5e-6, 20
# A wall that is seen flatter than this (cosine) tells little; at the rim of a picture nothing does.
_FLAT, _RIM = 0.25, 0.04
# Voxels along a ray in which something may stand before a place.
_FAR = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """Something on the table: its box [m]."""

    low: Vector
    high: Vector

    @property
    def middle(self) -> Vector:
        """Of its box."""
        return 0.5 * (self.low + self.high)

    @property
    def radius_m(self) -> float:
        """Of the circle around its box from above."""
        return 0.5 * float(np.linalg.norm((self.high - self.low)[:2]))


@dataclass(frozen=True, slots=True)
class Rims:
    """Places ``at [n, 3]`` where free space ends at what nobody saw, which way it is free, and the
    voxels of a box from ``low`` on that may hide them.
    """

    at: OwnPoints
    out: OwnPoints
    hiding: Voxels
    low: Vector

    def shown(self, K: CameraMatrix, size: tuple[int, int], T_table_camera: Pose) -> int:
        """How many of them a picture from there would show."""
        away = T_table_camera[:3, 3] - self.at
        far = np.linalg.norm(away, axis=1)
        facing = (away * self.out).sum(axis=1) > _FLAT * far
        T = inverse(T_table_camera)
        local = self.at @ T[:3, :3].T + T[:3, 3]
        ahead = local[:, 2] > 1e-3
        pixels = (local @ K.T)[:, :2] / np.where(ahead, local[:, 2], 1.0)[:, None]
        margin = _RIM * np.array(size)
        inside = ahead & ((pixels > margin) & (pixels < np.array(size) - margin)).all(axis=1)
        chosen = np.flatnonzero(facing & inside)
        if not len(chosen):
            return 0
        return int(self._clear(self.at[chosen], away[chosen] / far[chosen, None]).sum())

    def _clear(self, at: OwnPoints, way: OwnPoints) -> OwnFlags:
        """Whether nothing stands in the way from there, as far as the box reaches."""
        shape = np.array(self.hiding.shape)
        steps = _VOXEL_M * np.arange(2.5, _FAR, 1.0)
        cells = np.rint((at[:, None] + steps[:, None] * way[:, None] - self.low) / _VOXEL_M)
        inside = ((cells >= 0) & (cells < shape)).all(axis=2)
        i, j, k = np.where(inside[..., None], cells, 0).astype(np.int64).transpose(2, 0, 1)
        return ~(self.hiding[i, j, k] & inside).any(axis=1)


class Looked:
    """What pictures saw within ``reach_m`` around the origin of a table's frame (z up, 0 on it)."""

    def __init__(self, reach_m: float) -> None:
        low = np.array([-reach_m, -reach_m, -2.0 * _VOXEL_M])
        self._volume = Volume(
            low, np.array([reach_m, reach_m, _HEIGHT_M]), _VOXEL_M, 4.0 * _VOXEL_M
        )
        self._low = low

    def add(self, depth: Depth, K: CameraMatrix, T_table_camera: Pose) -> None:
        """A straight picture's depth ``[h, w]`` [m] (0: nothing measured)."""
        self._volume.integrate(depth, K, T_table_camera)

    def standing(self) -> list[Standing]:
        """What stands on the table, as far as it was seen."""
        labels, _ = _ndimage.label(_ndimage.binary_closing(self._surface()))
        found: list[Standing] = []
        for k, box in enumerate(_ndimage.find_objects(labels), 1):
            cells = np.argwhere(labels[box] == k) + [s.start for s in box]
            if len(cells) * _VOXEL_M**3 < _LEAST_M3:
                continue
            at = self._low + _VOXEL_M * cells
            low, high = at.min(axis=0) - 0.5 * _VOXEL_M, at.max(axis=0) + 0.5 * _VOXEL_M
            found.append(Standing(np.array([low[0], low[1], 0.0]), high))
        return found

    def rims(self) -> Rims:
        """Where what stands on the table may have walls that nobody saw."""
        known, solid = self._volume.weight >= _SEEN, self._surface()
        free = known & (self._volume.field() > 0)
        away = _ndimage.distance_transform_edt(~solid, sampling=_VOXEL_M)
        unknown = ~known & (away < _NEAR_M)
        rim = unknown & _ndimage.binary_dilation(free)
        rim[:, :, self._volume.centres(2) < _CLEAR_M] = False
        # Specks are noise.
        labels, count = _ndimage.label(rim, structure=np.ones((3, 3, 3)))
        sizes = np.bincount(labels.ravel(), minlength=count + 1)
        cells = np.argwhere(rim & (sizes >= _LEAST)[labels])
        smooth = _ndimage.gaussian_filter(free.astype(np.float32), 1.5)
        out = np.stack(np.gradient(smooth), axis=-1)[tuple(cells.T)].astype(np.float64)
        length = np.linalg.norm(out, axis=1, keepdims=True)
        at = self._low + _VOXEL_M * cells
        return Rims(at, out / np.maximum(length, 1e-9), solid | unknown, self._low)

    def _surface(self) -> Voxels:
        """What is seen to be solid over the table."""
        volume = self._volume
        solid = volume.seen & (volume.field() < 0)
        solid[:, :, volume.centres(2) < _CLEAR_M] = False
        return solid


def eyes(rims: Rims, rng: np.random.Generator, nearest_m: float) -> Iterator[tuple[Vector, Vector]]:
    """Places of a camera and what it looks at, each before one of ``rims``: for ever."""
    middle = rims.at.mean(axis=0)
    while True:
        k = int(rng.integers(len(rims.at)))
        way = rims.out[k] + 0.5 * rng.normal(size=3)
        level = float(np.linalg.norm(way[:2]))
        up = np.clip(np.arctan2(way[2], level), np.radians(20.0), np.radians(78.0))
        turn = np.arctan2(way[1], way[0])
        out = np.array([np.cos(up) * np.cos(turn), np.cos(up) * np.sin(turn), np.sin(up)])
        target = 0.5 * (middle + rims.at[k])
        yield target + rng.uniform(nearest_m, nearest_m + 0.15) * out, target
