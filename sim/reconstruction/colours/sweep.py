"""Computes depth of pictures whose places are known: planes are swept through what they show.

For every picture, planes at many distances are drawn into it from its neighbours (Collins 1996);
the plane on which most of the neighbours agree, by zero-mean normalised cross-correlation, is the
pixel's distance. What neighbours do not confirm from their side is not depth: nothing is invented
where there is no texture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from robolearn.geometry import CameraMatrix, Pose, inverse
from robolearn.shapes import Floats
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.shapes import Depth, Mask, Points

Grey = Float32[NDArray[np.float32], "h w"]
OwnGrey = Float32[NDArray[np.float32], "_ _"]
Scores = Float32[NDArray[np.float32], "n h w"]

# Pictures that a pixel is looked for in; angles between both views, and the best one [rad].
_NEIGHBOURS, _ANGLES = 4, (float(np.deg2rad(3.0)), float(np.deg2rad(40.0)))
_BEST_ANGLE = float(np.deg2rad(13.0))
# Planes, and the side of the window that is compared [px].
_PLANES, _WINDOW = (24, 192), 7
# Windows agree above this correlation; flatter ones (deviation of grey levels) tell nothing.
_AGREES, _FLAT = 0.6, 2.0
# Depth of neighbours agrees within this share; so many must.
_SHARE, _CONFIRMED = 0.01, 2


@dataclass(frozen=True, slots=True)
class Swept:
    """Depth [m] of every picture (0: none), and the standard deviation of a pixel [m] by what
    neighbours say of it.
    """

    depths: tuple[Depth, ...]
    noise_m: float

    @property
    def share(self) -> float:
        """Of all pixels that have depth."""
        return float(np.mean([(d > 0).mean() for d in self.depths]))


def sweep(frames: Sequence[PosedFrame], points: Points) -> Swept:
    """Depth of every picture; ``points [n, 3]`` of what they show say between which distances."""
    greys = [cv2.cvtColor(f.picture(), cv2.COLOR_RGB2GRAY).astype(np.float32) for f in frames]
    beside = [_neighbours(frames, k, points) for k in range(len(frames))]
    raw = [_swept(frames, greys, k, beside[k], points) for k in range(len(frames))]
    depths: list[Depth] = []
    apart: list[Floats] = []
    for k, f in enumerate(frames):
        kept, off = _confirmed(f, raw[k], [(frames[j], raw[j]) for j in beside[k]])
        depths.append(kept)
        apart.append(off)
    every = np.concatenate(apart) if apart else np.zeros(0)
    # Of two that scatter alike.
    noise = 1.48 * float(np.median(every)) / 2.0**0.5 if len(every) else float("nan")
    return Swept(tuple(depths), noise)


def _neighbours(frames: Sequence[PosedFrame], k: int, points: Points) -> list[int]:
    """Those that see the same from a little aside."""
    middle = np.median(points, axis=0)
    rays = np.stack([f.T_table_camera[:3, 3] - middle for f in frames])
    far = np.linalg.norm(rays, axis=1)
    angle = np.arccos(np.clip(rays @ rays[k] / (far * far[k]), -1.0, 1.0))
    axes = np.stack([f.T_table_camera[:3, 2] for f in frames])
    looks = np.arccos(np.clip(axes @ axes[k], -1.0, 1.0))
    fits = (angle > _ANGLES[0]) & (angle < _ANGLES[1]) & (looks < 2 * _ANGLES[1])
    order = np.argsort(np.abs(np.log(np.maximum(angle, 1e-6) / _BEST_ANGLE)))
    return [int(j) for j in order if fits[j] and j != k][:_NEIGHBOURS]


def _swept(
    frames: Sequence[PosedFrame],
    greys: Sequence[OwnGrey],
    k: int,
    beside: Sequence[int],
    points: Points,
) -> Depth:
    f, grey = frames[k], greys[k]
    T = inverse(f.T_table_camera)
    z = points @ T[2, :3] + T[2, 3]
    pixels = (points @ T[:3, :3].T + T[:3, 3]) @ f.K.T
    at = pixels[:, :2] / np.maximum(pixels[:, 2:], 1e-9)
    width, height = f.frame.camera.size
    inside = (z > 0.02) & (at > 0).all(axis=1) & (at < [width, height]).all(axis=1)
    if len(beside) < _CONFIRMED or inside.sum() < 10:
        return np.zeros_like(grey)
    near, far = np.quantile(z[inside], [0.02, 0.98]) * [0.85, 1.2]
    base = max(
        float(np.linalg.norm(frames[j].T_table_camera[:3, 3] - f.T_table_camera[:3, 3]))
        for j in beside
    )
    count = int(np.clip(f.K[0, 0] * base * (1 / near - 1 / far), *_PLANES))
    inverses = np.linspace(1 / far, 1 / near, count)
    mean, spread = _moments(grey)
    scores = np.full((count, height, width), -1.0, dtype=np.float32)
    for n, inv in enumerate(inverses):
        each = [
            _agreement(grey, mean, spread, _drawn(f, frames[j], greys[j], 1.0 / inv))
            for j in beside
        ]
        # The better half: the others may be hidden.
        best = np.sort(np.stack(each), axis=0)[-max(2, (len(each) + 1) // 2) :]
        scores[n] = best.mean(axis=0)
    return _peaks(scores, inverses, spread > _FLAT)


def _drawn(f: PosedFrame, other: PosedFrame, grey: OwnGrey, far: float) -> OwnGrey:
    """The other picture as it would look from here, were everything on a plane ``far`` ahead [m];
    NaN beyond its border.
    """
    T: Pose = inverse(other.T_table_camera) @ f.T_table_camera
    plane = np.outer(T[:3, 3], [0.0, 0.0, 1.0 / far])
    H: CameraMatrix = other.K @ (T[:3, :3] + plane) @ np.linalg.inv(f.K)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    drawn = cv2.warpPerspective(
        grey,
        H,
        f.frame.camera.size,
        flags=flags,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(-1e4, 0.0, 0.0, 0.0),
    )
    return np.asarray(drawn, dtype=np.float32)


def _moments(grey: OwnGrey) -> tuple[OwnGrey, OwnGrey]:
    side = (_WINDOW, _WINDOW)
    mean = cv2.boxFilter(grey, cv2.CV_32F, side)
    square = cv2.boxFilter(grey * grey, cv2.CV_32F, side)
    spread = np.sqrt(np.maximum(square - mean * mean, 1e-3))
    return np.asarray(mean, dtype=np.float32), np.asarray(spread, dtype=np.float32)


def _agreement(grey: OwnGrey, mean: OwnGrey, spread: OwnGrey, drawn: OwnGrey) -> OwnGrey:
    """Correlation of the windows about every pixel, -1 to 1."""
    other_mean, other_spread = _moments(drawn)
    both = cv2.boxFilter(grey * drawn, cv2.CV_32F, (_WINDOW, _WINDOW))
    score = (both - mean * other_mean) / (spread * other_spread)
    outside = (drawn < -1.0) | (other_mean < 0.0) | (other_spread < _FLAT)
    return np.where(outside, np.float32(-1.0), np.clip(score, -1.0, 1.0)).astype(np.float32)


def _peaks(scores: Scores, inverses: Floats, textured: Mask) -> Depth:
    """Distances of the best planes, between planes by a parabola."""
    best = scores.argmax(axis=0)
    inner = np.clip(best, 1, len(scores) - 2)
    rows, columns = np.indices(best.shape)
    a, b, c = (scores[inner + d, rows, columns] for d in (-1, 0, 1))
    bend = a - 2 * b + c
    shift = np.where(bend < -1e-6, 0.5 * (a - c) / np.where(bend < -1e-6, bend, 1.0), 0.0)
    at = inverses[inner] + np.clip(shift, -0.5, 0.5) * (inverses[1] - inverses[0])
    good = (best == inner) & (b > _AGREES) & textured
    return np.where(good, 1.0 / at, 0.0).astype(np.float32)


def _confirmed(
    f: PosedFrame, depth: Depth, beside: Sequence[tuple[PosedFrame, Depth]]
) -> tuple[Depth, Floats]:
    """Depth that enough neighbours confirm, and how far theirs is from it [m]."""
    height, width = depth.shape
    rows, columns = np.nonzero(depth > 0)
    far = depth[rows, columns].astype(np.float64)
    local = np.column_stack([columns, rows, np.ones(len(rows))]) @ np.linalg.inv(f.K).T
    points = (local * far[:, None]) @ f.T_table_camera[:3, :3].T + f.T_table_camera[:3, 3]
    agree = np.zeros(len(rows), dtype=np.int64)
    off: list[Floats] = []
    for other, theirs in beside:
        T = inverse(other.T_table_camera)
        there = points @ T[:3, :3].T + T[:3, 3]
        z = np.maximum(there[:, 2], 1e-6)
        at = np.rint((there / z[:, None]) @ other.K.T).astype(np.int64)[:, :2]
        inside = (there[:, 2] > 0) & (at >= 0).all(axis=1) & (at < [width, height]).all(axis=1)
        x, y = np.where(inside[:, None], at, 0).T
        measured = np.where(inside, theirs[y, x], 0.0)
        near = (measured > 0) & (np.abs(measured - z) < _SHARE * z)
        agree += near
        off.append(np.abs(measured - z)[near])
    good = agree >= min(_CONFIRMED, max(1, len(beside)))
    out = np.zeros_like(depth)
    out[rows[good], columns[good]] = depth[rows[good], columns[good]]
    return out, np.concatenate(off) if off else np.zeros(0)
