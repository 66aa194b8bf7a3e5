"""Finds where an object whose whole surface is known stands, from what a scan saw of it.

Iterated closest points (Besl and McKay 1992), trimmed, as a scan sees only a part and closes the
rest by guess (Chetverikov et al. 2002), from many starts, as turning a thing round leaves its box
much the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import spatial

from robolearn.geometry import Pose, Rotation, inverse, pose, rot_x, rot_y, rot_z
from robolearn.shapes import Floats
from sim.reconstruction.shapes import OwnPoints, Points

_KDTree: Any = cast("Any", spatial).cKDTree

# Share of the points, the nearest, that a pose is found and judged by.
_TRIMMED = 0.85
# Points and rounds of a first look from every start, and of a last one from the best of them.
_FIRST, _LAST, _BEST = (250, 12), (1500, 40), 4
# Starts about the vertical.
_TURNS = 24


@dataclass(frozen=True, slots=True)
class Aligned:
    """``T_seen_model``, and how far both surfaces lie apart [m] (RMS of the trimmed points, of the
    worse direction).
    """

    T: Pose
    off_m: float


def align(model: Points, seen: OwnPoints, *, upright: bool) -> Aligned:
    """The pose of a surface ``model [n, 3]`` at which it lies on points ``seen [m, 3]`` of its
    visible part [m]. ``upright``: turned about z and moved along x and y only.
    """
    rng = np.random.default_rng(0)
    turns = [rot_z(2 * np.pi * k / _TURNS) for k in range(_TURNS)]
    if not upright:
        turns = [up @ turn for up in _sides() for turn in turns[:: _TURNS // 8]]
    tree = _KDTree(model)
    few, many = (_some(seen, count, rng) for count, _ in (_FIRST, _LAST))
    starts = [_start(model, seen, R, upright=upright) for R in turns]
    found = [_closest(tree, model, few, T, _FIRST[1], upright=upright) for T in starts]
    best = sorted(found, key=lambda T: _apart(tree, few, T))[:_BEST]
    judged = [_closest(tree, model, many, T, _LAST[1], upright=upright) for T in best]
    back = _some(model, _LAST[0], rng)
    whole = _KDTree(seen)
    ends = [
        Aligned(T, max(_apart(tree, many, T), _apart(whole, _moved(back, T), np.eye(4))))
        for T in judged
    ]
    return min(ends, key=lambda a: a.off_m)


def _sides() -> list[Rotation]:
    """Each of the six sides up."""
    flat = [rot_x(k * np.pi / 2) for k in range(4)]
    return [*flat, rot_y(np.pi / 2), rot_y(-np.pi / 2)]


def _start(model: Points, seen: OwnPoints, R: Rotation, *, upright: bool) -> Pose:
    """Turned, and with the middles of both boxes together."""
    turned = model @ R.T
    middles = [0.5 * (p.min(axis=0) + p.max(axis=0)) for p in (seen, turned)]
    away = middles[0] - middles[1]
    return pose(R, (away[0], away[1], 0.0) if upright else away)


def _closest(
    tree: Any, model: Points, seen: OwnPoints, start: Pose, rounds: int, *, upright: bool
) -> Pose:
    T = start
    for _ in range(rounds):
        local = _moved(seen, inverse(T))
        away, at = tree.query(local)
        near = np.argsort(away)[: max(8, int(_TRIMMED * len(away)))]
        T = _fitted(model[at[near]], seen[near], upright=upright)
    return T


def _fitted(model: Points, seen: OwnPoints, *, upright: bool) -> Pose:
    """The move of least squares of points onto points (Kabsch)."""
    a, b = model.mean(axis=0), seen.mean(axis=0)
    H = (model - a).T @ (seen - b)
    if upright:
        angle = float(np.arctan2(H[0, 1] - H[1, 0], H[0, 0] + H[1, 1]))
        R = rot_z(angle)
        move = b - R @ a
        return pose(R, (move[0], move[1], 0.0))
    u, _, vt = np.linalg.svd(H)
    flip = np.diag([1.0, 1.0, float(np.sign(np.linalg.det(vt.T @ u.T)))])
    R = vt.T @ flip @ u.T
    return pose(R, b - R @ a)


def _apart(tree: Any, points: Points, T: Pose) -> float:
    """RMS distance of the nearest share of ``points`` from a surface that is moved by ``T`` [m]."""
    away: Floats = np.sort(tree.query(_moved(points, inverse(T)))[0])
    near = away[: max(8, int(_TRIMMED * len(away)))]
    return float(np.sqrt((near**2).mean()))


def _moved(points: Points, T: Pose) -> OwnPoints:
    return points @ T[:3, :3].T + T[:3, 3]


def _some(points: Points, count: int, rng: np.random.Generator) -> OwnPoints:
    return points[rng.choice(len(points), min(count, len(points)), replace=False)]
