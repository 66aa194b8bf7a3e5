"""Moves pictures onto what all of them together saw: frame-to-model registration.

All pictures are fused; every one is then moved so that its points lie on the fused surface (Gauss
and Newton on the signed distances, as Bylow et al. 2013 track a camera), drawn back to the pose it
was given by what poses are usually off. What the surface does not fix, such as sliding over an
empty table, therefore stays. Half of the points move the pictures, the other half judges: where
those do not lie closer than before, the poses stay as they were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from robolearn.geometry import Pose, Vector, inverse, pose, pose_error, rotation_from_rotvec
from robolearn.shapes import Floats, OwnFloats
from sim.reconstruction.frames import PosedFrame, points_of
from sim.reconstruction.shapes import OwnPoints, Points
from sim.reconstruction.volume import Volume

_ndimage: Any = ndimage

_ROUNDS, _STEPS = 3, 4
_VOXEL_M, _VOXELS = 0.004, 900_000
# Points of a picture; half of them on what stands on the table, where it shows so many.
_POINTS, _CLEAR_M = 3000, 0.008
# What poses are usually off, and more than which no picture is moved: [m], [rad].
_USUAL, _MOST = (0.005, np.deg2rad(1.0)), (0.020, np.deg2rad(4.0))
# Neighbouring points say nearly the same: so many count as one.
_ALIKE = 10.0
# The points that judge must lie closer by this share: rays that are a part of a pixel off agree
# a little better after any fit, at poses that are worse.
_LEAST_GAIN = 0.2


@dataclass(frozen=True, slots=True)
class Registered:
    """Pictures where they were moved to, or as they were given.

    ``before_m``, ``after_m``: how far points that moved nothing lie from the fused surface (RMS);
    ``note``: what was done, in a sentence.
    """

    frames: tuple[PosedFrame, ...]
    changed: bool
    before_m: float
    after_m: float
    note: str
    # What to look at when pictures had to be moved by more than poses are usually off.
    doubt: str = ""


def register(
    frames: Sequence[PosedFrame],
    fused: Sequence[PosedFrame],
    low: Vector,
    high: Vector,
    noise_m: float,
) -> Registered:
    """``frames`` in the table's frame, moved onto what ``fused`` (some of them) saw within the
    workspace ``low`` to ``high`` [m].
    """
    names = {f.name for f in fused}
    clouds = {f.name: _Cloud(f, low, high) for f in frames}
    given = {f.name: f.T_table_camera for f in frames}
    poses = dict(given)
    before = after = np.inf
    for turn in range(_ROUNDS + 1):
        model = _Model([f for f in frames if f.name in names], poses, low, high, noise_m)
        off = _rms([model.distances(clouds[n].judging(poses[n])) for n in poses if n in names])
        if turn == 0:
            before = off
        after = off
        if turn == _ROUNDS:
            break
        for name, cloud in clouds.items():
            poses[name] = _moved(model, cloud, given[name], poses[name], noise_m)
        poses = _centred(poses, given)
    moves = np.array([pose_error(given[n], poses[n]) for n in poses])
    figures = (
        f"points of the pictures lie {1e3 * before:.2f} mm from the fused surface as given,"
        f" {1e3 * after:.2f} mm when every picture is moved onto it"
    )
    if not after < (1.0 - _LEAST_GAIN) * before:
        note = f"poses as given: {figures}, which gains nothing"
        return Registered(tuple(frames), False, before, before, note)
    note = (
        f"poses registered: {figures} (by {1e3 * np.median(moves[:, 0]):.1f} mm and"
        f" {np.degrees(np.median(moves[:, 1])):.2f} degrees, median; at most"
        f" {1e3 * moves[:, 0].max():.1f} mm and {np.degrees(moves[:, 1].max()):.2f})"
    )
    move_m, turn_rad = (float(v) for v in np.median(moves, axis=0))
    doubt = ""
    if move_m > _USUAL[0] or turn_rad > _USUAL[1]:
        doubt = (
            f"pictures had to be moved by {1e3 * move_m:.1f} mm and {np.degrees(turn_rad):.1f}"
            " degrees (median) to agree: check the lens, the camera's place and the clocks; sizes"
            " may be off by as much"
        )
    placed = tuple(f.moved(poses[f.name] @ inverse(given[f.name])) for f in frames)
    return Registered(placed, True, before, after, note, doubt)


class _Cloud:
    """Points of a picture in its camera's frame; even ones move it, odd ones judge."""

    def __init__(self, f: PosedFrame, low: Vector, high: Vector) -> None:
        T = f.T_table_camera
        points = points_of(f.depth_m(), f.K, T, 2)
        inside = ((points > low - [0.03, 0.03, 0.02]) & (points < high + 0.03)).all(axis=1)
        points = points[inside]
        rng = np.random.default_rng(0)
        standing = points[:, 2] > _CLEAR_M
        parts = [
            part[rng.choice(len(part), min(len(part), _POINTS // 2), replace=False)]
            for part in (points[standing], points[~standing])
        ]
        T_camera_table = inverse(T)
        chosen = np.concatenate(parts)
        self._local = chosen @ T_camera_table[:3, :3].T + T_camera_table[:3, 3]

    def moving(self, T: Pose) -> OwnPoints:
        """Of the table's frame."""
        return self._local[::2] @ T[:3, :3].T + T[:3, 3]

    def judging(self, T: Pose) -> OwnPoints:
        """Of the table's frame."""
        return self._local[1::2] @ T[:3, :3].T + T[:3, 3]


class _Model:
    """Signed distances of what pictures saw."""

    def __init__(
        self,
        frames: Sequence[PosedFrame],
        poses: dict[str, Pose],
        low: Vector,
        high: Vector,
        noise_m: float,
    ) -> None:
        below = np.array([low[0], low[1], -0.024])
        voxel = max(_VOXEL_M, float((high - below).prod() / _VOXELS) ** (1 / 3))
        volume = Volume(below, high, voxel, max(5 * voxel, 4 * noise_m))
        for f in frames:
            volume.integrate(f.depth_m(), f.K, poses[f.name])
        self._low, self._voxel = below, voxel
        self._field = volume.field() * np.float32(volume.truncation_m)
        self._seen = volume.seen
        self._far = 0.9 * volume.truncation_m

    def distances(self, points: Points) -> Floats:
        """Of points near a surface [m]; NaN elsewhere."""
        at = ((points - self._low) / self._voxel).T
        nearest = np.rint(at).astype(np.int64)
        shape = np.array(self._field.shape)[:, None]
        inside = ((nearest > 0) & (nearest < shape - 1)).all(axis=0)
        i, j, k = np.where(inside, nearest, 0)
        value = _ndimage.map_coordinates(self._field, at, order=1, mode="nearest")
        good = inside & self._seen[i, j, k] & (np.abs(value) < self._far)
        return np.where(good, value, np.nan).astype(np.float64)

    def gradients(self, points: Points) -> Points:
        """Of the distances, ``[n, 3]``, NaN where they are."""
        h = 0.75 * self._voxel * np.eye(3)
        parts = [self.distances(points + e) - self.distances(points - e) for e in h]
        return np.stack(parts, axis=1) / (1.5 * self._voxel)


def _moved(model: _Model, cloud: _Cloud, given: Pose, start: Pose, noise_m: float) -> Pose:
    """The pose at which a picture's points lie on the surface, as far as that says anything."""
    T, sigma = start, max(noise_m, 0.001)
    prior = np.array([_USUAL[1]] * 3 + [_USUAL[0]] * 3) ** -2.0
    for _ in range(_STEPS):
        points = cloud.moving(T)
        r, g = model.distances(points), model.gradients(points)
        good = np.isfinite(r) & np.isfinite(g).all(axis=1)
        if good.sum() < 100:
            return start
        r, g, about = r[good], g[good], points[good].mean(axis=0)
        J = np.concatenate([np.cross(points[good] - about, g), g], axis=1)
        # Huber's weights: what is far off belongs to something else.
        weight = np.minimum(1.0, 2.0 * sigma / np.maximum(np.abs(r), 1e-9)) / sigma**2 / _ALIKE
        H = J.T @ (weight[:, None] * J) + np.diag(prior)
        pull = prior * _apart(given, T, about)
        step = np.linalg.solve(H, -J.T @ (weight * r) - pull)
        turn = rotation_from_rotvec(step[:3])
        T = pose(turn, about - turn @ about + step[3:]) @ T
    moved, turned = pose_error(given, T)
    return T if moved < _MOST[0] and turned < _MOST[1] else given


def _apart(given: Pose, T: Pose, about: Vector) -> Floats:
    """How far ``T`` is from where it was given: rotation vector, then the move of ``about``."""
    D = T @ inverse(given)
    R = D[:3, :3] - D[:3, :3].T
    turn = 0.5 * np.array([R[2, 1], R[0, 2], R[1, 0]])
    back = inverse(D)
    return np.concatenate([turn, about - (back[:3, :3] @ about + back[:3, 3])])


def _centred(poses: dict[str, Pose], given: dict[str, Pose]) -> dict[str, Pose]:
    """The same poses, moved together so that the table does not turn or slide in its plane: the
    pictures were right on average.
    """
    D = [T @ inverse(given[n]) for n, T in poses.items()]
    yaw = float(np.mean([0.5 * (d[1, 0] - d[0, 1]) for d in D]))
    x, y = np.mean([d[:2, 3] for d in D], axis=0)
    back = inverse(pose(rotation_from_rotvec(np.array([0.0, 0.0, yaw])), (x, y, 0.0)))
    return {n: back @ T for n, T in poses.items()}


def _rms(parts: Sequence[OwnFloats]) -> float:
    every = np.concatenate(parts)
    known = every[np.isfinite(every)]
    return float(np.sqrt((known**2).mean())) if len(known) else np.inf
