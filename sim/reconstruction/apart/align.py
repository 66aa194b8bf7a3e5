"""Finds where an object whose whole surface is known stands, from what a scan saw of it.

Iterated closest points (Besl and McKay 1992), trimmed, as a scan sees only a part and closes the
rest by guess (Chetverikov et al. 2002), from many starts, as turning a thing round leaves its box
much the same. What was guessed of either surface, and what lies there on the other, tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from scipy import spatial

from robolearn.geometry import Pose, Rotation, inverse, pose, rot_x, rot_y, rot_z
from robolearn.shapes import Floats, OwnFlags, OwnIndex
from sim.reconstruction.shapes import OwnPoints, Points

_KDTree: Any = cast("Any", spatial).cKDTree

# Share of the points, the nearest, that a pose is found and judged by.
_TRIMMED = 0.85
# Points and rounds of a first look from every start, and of a last one from the best of them.
_FIRST, _LAST, _BEST = (250, 12), (1500, 40), 4
# Starts about the vertical.
_TURNS = 24


# A smaller share of a surface that lies where the other was seen does not tell both alike.
_JUDGED = 0.4


@dataclass(frozen=True, slots=True)
class Surface:
    """Points of a surface that were ``seen [n, 3]``, and those of what it was closed by."""

    seen: OwnPoints
    guessed: OwnPoints = field(default_factory=lambda: np.zeros((0, 3)))


@dataclass(frozen=True, slots=True)
class Aligned:
    """``T_seen_model``, and how far both surfaces lie apart where both were seen [m] (RMS of the
    trimmed points, of the worse direction).
    """

    T: Pose
    off_m: float


def align(model: Surface, part: Surface, *, upright: bool) -> Aligned:
    """The pose of a surface ``model`` at which it lies on ``part``, another of the same thing [m].
    ``upright``: turned about z and moved along x and y only.
    """
    rng = np.random.default_rng(0)
    turns = [rot_z(2 * np.pi * k / _TURNS) for k in range(_TURNS)]
    if not upright:
        turns = [up @ turn for up in _sides() for turn in turns[:: _TURNS // 8]]
    onto = _Onto(model)
    few, many = (_some(part.seen, count, rng) for count, _ in (_FIRST, _LAST))
    starts = [_start(model.seen, part.seen, R, upright=upright) for R in turns]
    found = [_closest(onto, few, T, _FIRST[1], upright=upright) for T in starts]
    best = sorted(found, key=lambda T: onto.apart(few, T))[:_BEST]
    judged = [_closest(onto, many, T, _LAST[1], upright=upright) for T in best]
    back, whole = _some(model.seen, _LAST[0], rng), _Onto(part)
    ends = [Aligned(T, max(onto.apart(many, T), whole.apart(back, inverse(T)))) for T in judged]
    return min(ends, key=lambda a: a.off_m)


class _Onto:
    """A surface that points are laid onto."""

    def __init__(self, surface: Surface) -> None:
        self.points = surface.seen
        self._seen = _KDTree(surface.seen)
        self._guessed = _KDTree(surface.guessed) if len(surface.guessed) else None

    def nearest(self, points: Points) -> tuple[Floats, OwnIndex, OwnFlags]:
        """How far the nearest of its points is from each of ``points``, which one, and whether it
        was seen there.
        """
        away, at = self._seen.query(points)
        if self._guessed is None:
            return away, at, np.ones(len(points), dtype=np.bool_)
        return away, at, away <= self._guessed.query(points)[0]

    def apart(self, points: Points, T: Pose) -> float:
        """RMS distance of the nearest share of ``points`` from it, when it is moved by ``T`` [m];
        infinite where too few lie where it was seen.
        """
        away, _, seen = self.nearest(_moved(points, inverse(T)))
        if seen.mean() < _JUDGED:
            return np.inf
        sorted_m = np.sort(away[seen])
        near = sorted_m[: max(8, int(_TRIMMED * len(sorted_m)))]
        return float(np.sqrt((near**2).mean()))


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


def _closest(onto: _Onto, points: OwnPoints, start: Pose, rounds: int, *, upright: bool) -> Pose:
    T = start
    for _ in range(rounds):
        away, at, seen = onto.nearest(_moved(points, inverse(T)))
        away = np.where(seen, away, np.inf) if seen.mean() >= _JUDGED else away
        count = int(np.isfinite(away).sum())
        near = np.argsort(away)[: max(8, int(_TRIMMED * count))]
        T = _fitted(onto.points[at[near]], points[near], upright=upright)
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


def _moved(points: Points, T: Pose) -> OwnPoints:
    return points @ T[:3, :3].T + T[:3, 3]


def _some(points: Points, count: int, rng: np.random.Generator) -> OwnPoints:
    return points[rng.choice(len(points), min(count, len(points)), replace=False)]
