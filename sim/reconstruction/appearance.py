"""Takes colours from the pictures that see a surface: the least oblique, unoccluded views of every
point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
from scipy import spatial

from robolearn.geometry import CameraMatrix, Pose, inverse
from robolearn.shapes import FloatRows, Floats, Picture
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.shapes import ColourGrid, Depth, Mask, OwnPoints, Points

_KDTree: Any = cast("Any", spatial).cKDTree

RGB = tuple[float, float, float]
GREY: RGB = (0.7, 0.7, 0.7)

# What a picture's depth may differ from a point's for the point to be visible [m]; within a pixel
# of a larger step of depth, one cannot tell which side a pixel is of [m].
_VISIBLE_M, _STEP_M = 0.006, 0.015
# Views that a point's colour is blended from, and how much the best one counts more.
_BLENDED, _SHARP = 3, 8.0
# Known spots among which the nearest is looked for, at most about so many.
_SOME = 15_000
# Flatter views are not believed (cosine between ray and normal).
_FLATTEST = 0.2


@dataclass(frozen=True, slots=True)
class Spots:
    """Points of a surface in the table's frame ``[n, 3]`` [m] and where it faces ``[n, 3]``."""

    points: OwnPoints
    normals: OwnPoints


def pixels_of(points: Points, K: CameraMatrix, T_table_camera: Pose) -> tuple[FloatRows, Floats]:
    """Where a straight camera sees points ``[n, 3]``: pixels ``[n, 2]`` and distances along its
    axis ``[n]`` [m].
    """
    T = inverse(T_table_camera)
    local = points @ T[:3, :3].T + T[:3, 3]
    far = np.where(local[:, 2] > 1e-6, local[:, 2], np.inf)
    rays = local[:, :2] / far[:, None]
    return rays * [K[0, 0], K[1, 1]] + [K[0, 2], K[1, 2]], local[:, 2]


def painted(spots: Mapping[str, Spots], frames: Sequence[PosedFrame]) -> dict[str, OwnPoints]:
    """The colour of every spot by surface ``[n, 3]``, 0 to 1; NaN for what no picture shows."""
    best = {name: _Best(len(s.points)) for name, s in spots.items()}
    for f in frames:
        picture, depth = f.picture(), f.depth_m()
        clear = _clear(depth)
        for name, s in spots.items():
            best[name].add(s, f, picture, np.where(clear, depth, 0.0).astype(np.float32))
    return {name: b.blended() for name, b in best.items()}


def usual(colours: OwnPoints) -> RGB:
    """The median of colours ``[n, 3]``; grey where none is known."""
    known = colours[np.isfinite(colours[:, 0])]
    r, g, b = np.median(known, axis=0).tolist() if len(known) else GREY
    return (r, g, b)


def filled(points: OwnPoints, colours: OwnPoints) -> OwnPoints:
    """What no picture shows takes the colour of the nearest spot that one does."""
    known = np.isfinite(colours[:, 0])
    if known.all() or not known.any():
        return np.where(known[:, None], colours, GREY)
    out = colours.copy()
    some = np.flatnonzero(known)[:: max(1, int(known.sum()) // _SOME)]
    _, nearest = _KDTree(points[some]).query(points[~known])
    out[~known] = colours[some][nearest]
    return out


def filled_picture(colours: ColourGrid) -> Picture:
    """A picture of colours ``[rows, columns, 3]``, 0 to 1; NaN takes the nearest known one."""
    known = np.isfinite(colours[..., 0])
    if not known.any():
        return np.full(colours.shape, round(255 * GREY[0]), dtype=np.uint8)
    _, labels = cv2.distanceTransformWithLabels(
        (~known).astype(np.uint8), cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL
    )
    of_label = np.zeros((int(labels.max()) + 1, 3))
    of_label[labels[known]] = colours[known]
    return np.rint(255 * np.clip(of_label[labels], 0.0, 1.0)).astype(np.uint8)


class _Best:
    """The best views of every spot so far."""

    def __init__(self, count: int) -> None:
        self._score = np.zeros((count, _BLENDED))
        self._colour = np.zeros((count, _BLENDED, 3))

    def add(self, spots: Spots, f: PosedFrame, picture: Picture, depth: Depth) -> None:
        """A picture with its depth (0 where one cannot tell what a pixel shows)."""
        points = spots.points
        at, far = pixels_of(points, f.K, f.T_table_camera)
        height, width = depth.shape
        inside = (far > 0) & (at >= 0).all(axis=1) & (at <= [width - 1, height - 1]).all(axis=1)
        rows = np.flatnonzero(inside)
        ray = f.T_table_camera[:3, 3] - points[rows]
        ray /= np.linalg.norm(ray, axis=1, keepdims=True)
        facing = np.einsum("ij,ij->i", ray, spots.normals[rows])
        column, row = np.rint(at[rows]).astype(np.int64).T
        seen = (np.abs(depth[row, column] - far[rows]) < _VISIBLE_M) & (facing > _FLATTEST)
        rows = rows[seen]
        # What a picture resolves of the surface: its slant, and how far away it is.
        score = facing[seen] / far[rows]
        worst = self._score[rows].argmin(axis=1)
        better = score > self._score[rows, worst]
        rows, worst = rows[better], worst[better]
        self._score[rows, worst] = score[better]
        self._colour[rows, worst] = _sampled(picture, at[rows])

    def blended(self) -> OwnPoints:
        """Colours ``[n, 3]``; NaN without a view."""
        top = self._score.max(axis=1, keepdims=True)
        weight = (self._score / np.where(top > 0, top, 1.0)) ** _SHARP
        total = weight.sum(axis=1, keepdims=True)
        mean = (weight[..., None] * self._colour).sum(axis=1) / np.where(total > 0, total, 1.0)
        return np.where(total > 0, mean, np.nan)


def _clear(depth: Depth) -> Mask:
    """Pixels away from steps of depth."""
    kernel = np.ones((3, 3), np.uint8)
    return (cv2.dilate(depth, kernel) - cv2.erode(depth, kernel)) < _STEP_M


def _sampled(picture: Picture, at: FloatRows) -> OwnPoints:
    """Bilinear, 0 to 1."""
    height, width = picture.shape[:2]
    x0 = np.clip(np.floor(at[:, 0]).astype(np.int64), 0, width - 2)
    y0 = np.clip(np.floor(at[:, 1]).astype(np.int64), 0, height - 2)
    x, y = (at[:, 0] - x0)[:, None], (at[:, 1] - y0)[:, None]
    upper = (1 - x) * picture[y0, x0] + x * picture[y0, x0 + 1]
    lower = (1 - x) * picture[y0 + 1, x0] + x * picture[y0 + 1, x0 + 1]
    return ((1 - y) * upper + y * lower) / 255.0
