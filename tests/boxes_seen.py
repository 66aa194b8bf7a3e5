"""Reckons the depth of a box on a table at z = 0, without drawing."""

from __future__ import annotations

import numpy as np

SIZE = (160, 120)
K = np.array([[150.0, 0.0, 79.5], [0.0, 150.0, 59.5], [0.0, 0.0, 1.0]])


def depth_of(
    low: np.ndarray,
    high: np.ndarray,
    T: np.ndarray,
    camera: np.ndarray = K,
    size: tuple[int, int] = SIZE,
) -> np.ndarray:
    """Depth ``[h, w]`` [m] of a camera at ``T`` (+z ahead) of the box ``low`` to ``high`` [m]."""
    v, u = np.mgrid[: size[1], : size[0]].astype(np.float64)
    x, y = (u - camera[0, 2]) / camera[0, 0], (v - camera[1, 2]) / camera[1, 1]
    way = np.stack([x, y, np.ones_like(u)], axis=-1) @ T[:3, :3].T
    way = np.where(np.abs(way) < 1e-9, 1e-9, way)
    eye = T[:3, 3]
    table = np.where(way[..., 2] < 0, -eye[2] / way[..., 2], 0.0)
    one, two = (low - eye) / way, (high - eye) / way
    enters, leaves = np.minimum(one, two).max(axis=-1), np.maximum(one, two).min(axis=-1)
    hit = (enters > 0) & (enters < leaves)
    return np.where(hit, enters, table).astype(np.float32)
