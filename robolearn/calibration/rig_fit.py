"""Fits lenses and places to board corners: residuals with their slopes, robust steps, intervals.

A corner of the board is seen where lens and places put it,

    pixel = lens(C^-1 B corner)      C = T_base_camera = A X, B = T_base_board = G Y

with A and G the arm's pose where camera or board ride on the flange (else the identity), X and Y
what is looked for. Places are moved by rotation vectors along their parent's axes, so that slopes
are exact and intervals are about axes that people know. Steps are Levenberg's and Marquardt's on
Huber's loss (1964). Intervals are cluster-robust (CR3, Bell and McCaffrey 2002), a picture a
cluster: errors of an arm's pose are the same for all corners of a picture. Boards in somebody's
hand have a place of their own per moment, which is projected out of their cluster first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.calibration.boards import View
from robolearn.calibration.hand_eye import moved
from robolearn.geometry import Pose, Rotations, VectorRows, XYRows
from robolearn.shapes import Floats

# fx, fy, cx, cy [px], k1, k2, p1, p2 (OpenCV's).
LensNumbers = Float64[NDArray[np.float64], "8"]
Slopes = Float64[NDArray[np.float64], "n 2 _"]
# Any matrix of the solution.
Matrix = Float64[NDArray[np.float64], "p q"]
Square = Float64[NDArray[np.float64], "p p"]

LENS, PLACE = 8, 6
_STEPS, _ENOUGH = 60, 1e-9
# Beyond so many standard deviations a corner counts linearly.
_HUBER = 2.5
# Median of the length of two normal components, in standard deviations (Rayleigh).
_RAYLEIGH = 1.1774
_LEAST_SIGMA_PX = 1e-4


@dataclass(frozen=True, slots=True)
class Chain:
    """How a picture hangs together: names of the lens, of the camera's place X and of the board's
    Y, and the arm's poses ``A`` and ``G`` (identity where nothing rides on the flange).
    """

    view: View
    lens: str
    camera: str
    board: str
    A: Pose
    G: Pose


@dataclass(frozen=True, slots=True)
class State:
    """Lenses and places by name; those that ``fixed`` names are kept."""

    lenses: Mapping[str, LensNumbers]
    places: Mapping[str, Pose]
    fixed: frozenset[str]

    def columns(self) -> dict[str, slice]:
        """Where the numbers of each are in a step; lenses are ``lens NAME``."""
        out: dict[str, slice] = {}
        at = 0
        sizes = [(f"lens {n}", LENS) for n in self.lenses] + [(n, PLACE) for n in self.places]
        for name, size in sizes:
            if name not in self.fixed:
                out[name] = slice(at, at + size)
                at += size
        return out

    def stepped(self, step: Floats, columns: Mapping[str, slice]) -> State:
        """Moved by a step."""
        lenses, places = dict(self.lenses), dict(self.places)
        for name, at in columns.items():
            if name.startswith("lens "):
                lenses[name[5:]] = lenses[name[5:]] + step[at]
            else:
                places[name] = moved(places[name], step[at])
        return replace(self, lenses=lenses, places=places)


@dataclass(frozen=True, slots=True)
class Linear:
    """Residuals ``[n, 2]`` [px] of one picture, as predicted less as seen, and slopes by name."""

    left: XYRows
    slopes: Mapping[str, Slopes]


@dataclass(frozen=True, slots=True)
class Spread:
    """Covariance of all numbers that are shared by pictures, by ``columns``, and what it would be
    were every corner's noise its own (``by_pixels``); ``clusters`` that each name is seen in; per
    picture the residual's root mean square [px] as fitted, and as predicted by the others.
    """

    columns: Mapping[str, slice]
    covariance: Square
    by_pixels: Square
    clusters: Mapping[str, int]
    rms_px: Floats
    held_out_px: Floats


def linear(chain: Chain, state: State) -> Linear:
    """Residuals and slopes of a picture."""
    X, Y = state.places[chain.camera], state.places[chain.board]
    C, G = chain.A @ X, chain.G
    corners = chain.view.points
    on_board = corners @ Y[:3, :3].T
    world = (on_board + Y[:3, 3]) @ G[:3, :3].T + G[:3, 3]
    in_camera = (world - C[:3, 3]) @ C[:3, :3]
    seen, by_lens, by_point = project(in_camera, state.lenses[chain.lens])
    slopes: dict[str, Slopes] = {}
    if f"lens {chain.lens}" not in state.fixed:
        slopes[f"lens {chain.lens}"] = by_lens
    if chain.camera not in state.fixed:
        # In the parent's frame: the point from the camera.
        from_camera = in_camera @ X[:3, :3].T
        back = X[:3, :3].T
        turned = back @ _skews(from_camera)
        here = np.concatenate([np.broadcast_to(-back, turned.shape), turned], axis=2)
        slopes[chain.camera] = by_point @ here
    if chain.board not in state.fixed:
        forth = C[:3, :3].T @ G[:3, :3]
        turned = -forth @ _skews(on_board)
        here = np.concatenate([np.broadcast_to(forth, turned.shape), turned], axis=2)
        slopes[chain.board] = by_point @ here
    return Linear(seen - chain.view.pixels, slopes)


def project(points: VectorRows, lens: LensNumbers) -> tuple[XYRows, Slopes, Slopes]:
    """Pixels ``[n, 2]`` of points before the camera, slopes by the lens ``[n, 2, 8]`` and by the
    points ``[n, 2, 3]``.
    """
    fx, fy, cx, cy, k1, k2, p1, p2 = (float(v) for v in lens)
    far = np.where(np.abs(points[:, 2]) < 1e-6, 1e-6, points[:, 2])
    x, y = points[:, 0] / far, points[:, 1] / far
    r2 = x * x + y * y
    radial, slope = 1.0 + k1 * r2 + k2 * r2 * r2, 2.0 * k1 + 4.0 * k2 * r2
    xd = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    yd = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    zero, one = np.zeros_like(x), np.ones_like(x)
    by_lens = np.stack(
        [
            np.stack([xd, zero, one, zero, fx * x * r2, fx * x * r2 * r2,
                      fx * 2 * x * y, fx * (r2 + 2 * x * x)], axis=1),
            np.stack([zero, yd, zero, one, fy * y * r2, fy * y * r2 * r2,
                      fy * (r2 + 2 * y * y), fy * 2 * x * y], axis=1),
        ],
        axis=1,
    )  # fmt: skip
    cross = x * y * slope + 2 * p1 * x + 2 * p2 * y
    xx = fx * (radial + x * x * slope + 2 * p1 * y + 6 * p2 * x)
    yy = fy * (radial + y * y * slope + 6 * p1 * y + 2 * p2 * x)
    xy, yx = fx * cross, fy * cross
    by_point = np.stack(
        [
            np.stack([xx, xy, -(xx * x + xy * y)], axis=1),
            np.stack([yx, yy, -(yx * x + yy * y)], axis=1),
        ],
        axis=1,
    ) / far[:, None, None]  # fmt: skip
    return np.column_stack([fx * xd + cx, fy * yd + cy]), by_lens, by_point


def fitted(chains: Sequence[Chain], state: State) -> State:
    """Lenses and places that explain the pictures best, from a start that is about right."""
    columns = state.columns()
    damping = 1e-3
    parts = [linear(c, state) for c in chains]
    for _ in range(_STEPS):
        sigma = noise_px(parts)
        H, slope = _normal(parts, columns, sigma)
        before = _loss(parts, sigma)
        while True:
            step = np.linalg.solve(H + damping * np.diag(np.diag(H) + 1e-12), -slope)
            there = state.stepped(step, columns)
            parts_there = [linear(c, there) for c in chains]
            after = _loss(parts_there, sigma)
            if after <= before or damping > 1e9:
                break
            damping *= 10.0
        if after > before:
            break
        state, parts, damping = there, parts_there, max(damping / 10.0, 1e-9)
        if before - after <= _ENOUGH * before:
            break
    return state


def noise_px(parts: Sequence[Linear]) -> float:
    """Standard deviation of a corner's component [px], by the corner in the middle."""
    far = np.concatenate([np.linalg.norm(p.left, axis=1) for p in parts])
    return max(float(np.median(far)) / _RAYLEIGH, _LEAST_SIGMA_PX)


def information(chains: Sequence[Chain], state: State, sigma_px: float) -> Square:
    """What pictures tell of all numbers of the state, by ``state.columns()``, were every corner's
    noise its own: the inverse of the covariance.
    """
    parts = [linear(c, state) for c in chains]
    return _normal(parts, state.columns(), sigma_px)[0] / sigma_px**2


def spread(chains: Sequence[Chain], state: State, own: frozenset[str]) -> Spread:
    """How well everything is known; ``own``: places that only one moment's pictures have."""
    every = state.columns()
    names = [n for n in every if n not in own]
    columns: dict[str, slice] = {}
    for name in names:
        at = max((s.stop for s in columns.values()), default=0)
        columns[name] = slice(at, at + every[name].stop - every[name].start)
    parts = [linear(c, state) for c in chains]
    sigma = noise_px(parts)
    groups: dict[str, list[int]] = {}
    for i, chain in enumerate(chains):
        groups.setdefault(chain.board if chain.board in own else f"picture {i}", []).append(i)
    reduced = [_reduced([parts[i] for i in rows], columns, own, sigma) for rows in groups.values()]
    H = np.linalg.pinv(sum((J.T @ J for J, _ in reduced), np.zeros((_width(columns),) * 2)))
    meat = np.zeros_like(H)
    rms, held_out = np.zeros(len(chains)), np.zeros(len(chains))
    for rows, (J, left) in zip(groups.values(), reduced, strict=True):
        away = np.linalg.pinv(np.eye(len(left)) - J @ H @ J.T) @ left
        score = J.T @ away
        meat += np.outer(score, score)
        held_out[rows] = _length(away)
        rms[rows] = _length(left)
    count = len(groups)
    clusters = {
        name: sum(any(name in parts[i].slopes for i in rows) for rows in groups.values())
        for name in names
    }
    covariance = H @ meat @ H * (count - 1) / max(count, 1)
    return Spread(columns, covariance, H * sigma**2, clusters, rms, held_out)


def _length(left: Floats) -> float:
    """Root mean square of a corner's distance [px] from components."""
    return float(np.sqrt(2.0 * (left * left).mean())) if len(left) else 0.0


def _reduced(
    parts: Sequence[Linear], columns: Mapping[str, slice], own: frozenset[str], sigma: float
) -> tuple[Matrix, Floats]:
    """Slopes by shared numbers and residuals of the pictures of a moment, without what the board's
    own place explains.
    """
    weight = np.concatenate([np.repeat(_weights(p.left, sigma), 2) for p in parts])
    J = np.concatenate([_dense(p, columns) for p in parts]) * weight[:, None]
    left = np.concatenate([p.left.ravel() for p in parts]) * weight
    names = {n for p in parts for n in p.slopes if n in own}
    if not names:
        return J, left
    (name,) = names
    mine = np.concatenate([p.slopes[name].reshape(-1, PLACE) for p in parts]) * weight[:, None]
    Q, _ = np.linalg.qr(mine, mode="complete")
    rest = np.asarray(Q[:, PLACE:], dtype=np.float64)
    return rest.T @ J, rest.T @ left


def _dense(part: Linear, columns: Mapping[str, slice]) -> Matrix:
    out = np.zeros((2 * len(part.left), _width(columns)))
    for name, slopes in part.slopes.items():
        if name in columns:
            out[:, columns[name]] = slopes.reshape(-1, slopes.shape[2])
    return out


def _width(columns: Mapping[str, slice]) -> int:
    return max((s.stop for s in columns.values()), default=0)


def _normal(
    parts: Sequence[Linear], columns: Mapping[str, slice], sigma: float
) -> tuple[Square, Floats]:
    """Normal equations; only the numbers that a picture depends on are touched."""
    width = _width(columns)
    H, slope = np.zeros((width, width)), np.zeros(width)
    for part in parts:
        weight = np.repeat(_weights(part.left, sigma), 2)
        names = list(part.slopes)
        slopes = [part.slopes[n].reshape(len(weight), -1) for n in names]
        J = np.concatenate(slopes, axis=1) * weight[:, None]
        at = np.array([i for n in names for i in range(columns[n].start, columns[n].stop)])
        H[np.ix_(at, at)] += J.T @ J
        slope[at] += J.T @ (part.left.ravel() * weight)
    return H, slope


def _weights(left: XYRows, sigma: float) -> Floats:
    """Roots of Huber's weights, of every corner."""
    far = np.linalg.norm(left, axis=1) / sigma
    return np.sqrt(np.minimum(1.0, _HUBER / np.maximum(far, 1e-12)))


def _loss(parts: Sequence[Linear], sigma: float) -> float:
    far = np.concatenate([np.linalg.norm(p.left, axis=1) for p in parts]) / sigma
    inside = far <= _HUBER
    return float(np.where(inside, 0.5 * far**2, _HUBER * (far - 0.5 * _HUBER)).sum())


def _skews(v: VectorRows) -> Rotations:
    """``skew(v) @ u == cross(v, u)`` of every row."""
    out = np.zeros((len(v), 3, 3))
    out[:, 0, 1], out[:, 0, 2], out[:, 1, 2] = -v[:, 2], v[:, 1], -v[:, 0]
    return out - out.transpose(0, 2, 1)
