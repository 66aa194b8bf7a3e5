"""Fuses depth pictures in a box of voxels: truncated signed distances (Curless and Levoy 1996).

A voxel's number is the mean of how far it lies before (+) or behind (-) the surfaces that were
seen, along the cameras' axes, in units of the truncation: 1 is free space. What no camera has seen
is solid: the inside of things, and what is hidden under them. Behind a surface the weight falls off
(Bylow et al. 2013), so that thin walls are not eaten from behind.
"""

from __future__ import annotations

import numpy as np

from robolearn.errors import DataError, MissingDependencyError
from robolearn.geometry import CameraMatrix, Pose, Vector, inverse
from robolearn.shapes import Floats
from sim.reconstruction.shapes import Depth, Faces, Field, Vertices, Voxels

# Voxels that are projected at a time; bounds the memory besides the volume's own.
_SLAB = 400_000
MOST_VOXELS = 30_000_000


class Volume:
    """A box of cubic voxels; number ``[i, j, k]`` is centred at ``low + voxel * (i, j, k)`` [m]."""

    def __init__(self, low: Vector, high: Vector, voxel_m: float, truncation_m: float) -> None:
        shape = np.maximum(np.ceil((high - low) / voxel_m).astype(int) + 1, 2)
        if int(shape.prod()) > MOST_VOXELS:
            raise DataError(
                f"a volume of {shape.tolist()} voxels is too large (at most {MOST_VOXELS:,}):"
                " give a smaller workspace in capture.yaml"
            )
        self.low, self.voxel_m, self.truncation_m = low.copy(), voxel_m, truncation_m
        self._sum = np.zeros(tuple(shape), dtype=np.float32)
        self._weight = np.zeros(tuple(shape), dtype=np.float32)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of voxels along x, y, z."""
        x, y, z = self._sum.shape
        return (x, y, z)

    @property
    def seen(self) -> Voxels:
        """Which voxels some camera has seen ``[x, y, z]``."""
        return self._weight > 0

    @property
    def weight(self) -> Field:
        """By about how many pictures every voxel was seen ``[x, y, z]``; less behind surfaces."""
        return self._weight.copy()

    def centres(self, axis: int) -> Floats:
        """Where the voxels' centres are along an axis ``[n]`` [m]."""
        return self.low[axis] + self.voxel_m * np.arange(self.shape[axis])

    def integrate(self, depth: Depth, K: CameraMatrix, T_volume_camera: Pose) -> None:
        """Add a depth picture ``[h, w]`` [m] (0: nothing measured) of an undistorted camera."""
        T = inverse(T_volume_camera)
        P = (K @ T[:3]).astype(np.float32)
        x, y, z = (self.centres(axis).astype(np.float32) for axis in range(3))
        nx, ny, nz = self.shape
        step = max(1, _SLAB // (ny * nz))
        for first in range(0, nx, step):
            part = slice(first, min(first + step, nx))
            u, v, far = (
                (P[r, 0] * x[part])[:, None, None]
                + ((P[r, 1] * y)[:, None] + (P[r, 2] * z + P[r, 3]))[None]
                for r in range(3)
            )
            self._add(part, depth, u, v, far)

    def _add(self, part: slice, depth: Depth, u: Field, v: Field, far: Field) -> None:
        height, width = depth.shape
        ahead = far > 1e-3
        scale = 1.0 / np.where(ahead, far, 1.0)
        column, row = np.rint(u * scale).astype(np.int32), np.rint(v * scale).astype(np.int32)
        inside = ahead & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        at = np.where(inside, row * width + column, 0)
        measured = np.where(inside, depth.reshape(-1)[at], 0.0)
        off = measured - far
        update = (measured > 0) & (off > -self.truncation_m)
        distance = np.clip(off / self.truncation_m, -1.0, 1.0)
        # Full weight up to a voxel behind the surface, then less and less.
        share = self.voxel_m / self.truncation_m
        weight = np.where(distance > -share, 1.0, (1.0 + distance) / (1.0 - share))
        weight = np.where(update, weight, 0.0).astype(np.float32)
        self._sum[part] += weight * distance
        self._weight[part] += weight

    def field(self) -> Field:
        """Mean distances in units of the truncation ``[x, y, z]``; unseen voxels are solid (-1)."""
        seen = self._weight > 1e-6
        return np.where(seen, self._sum / np.where(seen, self._weight, 1.0), -1.0).astype(
            np.float32
        )

    def solid(self) -> Voxels:
        """Which voxels are in, or behind, what was seen."""
        return self.field() < 0


def surface(field: Field, low: Vector, voxel_m: float) -> tuple[Vertices, Faces]:
    """The closed surface where a field is zero, as vertices [m] and faces that face outwards.

    Marching cubes (Lewiner et al. 2003); the field's rim counts as free, which closes the surface.
    """
    try:
        from skimage.measure import marching_cubes  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingDependencyError(
            f"surfaces are found by scikit-image ({error}); run: pip install -c constraints.txt"
            " 'robolearn[reconstruct]'"
        ) from error
    # Not exactly zero anywhere: that would make faces without area.
    clear = np.where(np.abs(field) < 1e-5, np.float32(1e-5), field)
    padded = np.pad(clear, 1, constant_values=1.0)
    if not (field < 0).any():
        raise DataError("the volume holds no surface: nothing was seen in it")
    vertices, faces, _, _ = marching_cubes(padded, 0.0, gradient_direction="ascent")
    points = low + voxel_m * (vertices.astype(np.float64) - 1.0)
    # Its own order of corners turns faces inwards.
    return points, faces[:, ::-1].astype(np.int64)
