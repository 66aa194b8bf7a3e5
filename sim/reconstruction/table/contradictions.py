"""Names what makes pictures of a table contradict each other, by what would make them agree.

A lens of another picture size, depth along the ray, depth that is off, poses on another scale,
pictures that are turned, poses of the picture before or after: each bends or tilts every picture's
table in its own way, and undoing the right one lays all of them into one plane. Pictures that are
mirrored keep the table; what stands on it then stands elsewhere in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.geometry import Vector, VectorRows
from robolearn.shapes import Floats
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.shapes import OwnPoints, OwnPoses, Points

# Points of a picture, planes that are tried, and points that choose among them.
_POINTS, _TRIES, _CHOOSING = 250, 120, 1500
# Distances from the plane count up to here [m].
_MOST_M = 0.03
# Focal lengths, and distances of cameras from each other, times what they are; depth off by [m].
_ZOOMED, _SCALED, _OFF_M = (0.4, 2.5), (0.7, 1.4), 0.08
# Undoing a cause leaves at most this share of what was left over before.
_EXPLAINS = 0.5
# What stands is as high [m], and lies in cells of [m]; this share of the cells is in two pictures
# in three when pictures agree, and so many times as large as before.
_HIGH_M, _CELL_M, _AGREES, _MORE = 0.015, 0.012, 0.25, 2.5

# From x/z, y/z, z of pictures to the same as they would be.
_Change = Callable[[VectorRows], VectorRows]


@dataclass(frozen=True, slots=True)
class _Rays:
    """Points of pictures as their cameras see them, ``[n, 3]``: x/z, y/z and z [m]; whose they are
    ``[n]``, and ``T_table_camera [m, 4, 4]`` of all pictures.
    """

    seen: VectorRows
    of: Floats
    poses: OwnPoses

    def points(self, change: _Change, scale: float = 1.0, later: int = 0) -> OwnPoints:
        """In the table's frame, with the rays changed, places of the cameras on another scale, or
        the poses of ``later`` pictures.
        """
        x, y, z = change(self.seen).T
        local = np.column_stack([x * z, y * z, z])
        T = self.poses[np.clip(self.of.astype(np.intp) + later, 0, len(self.poses) - 1)]
        return np.einsum("nij,nj->ni", T[:, :3, :3], local) + scale * T[:, :3, 3]


def contradiction(frames: Sequence[PosedFrame]) -> str:
    """The cause that explains why pictures see several tables, as a sentence with what to do; ""
    where none does.
    """
    rays = _rays(frames)
    given = _left_over(rays.points(_same))
    best, what = _EXPLAINS * given, ""
    for text, left in (*_by_numbers(rays), *_by_mistakes(rays)):
        if left < best:
            best, what = left, text
    return what


def _by_numbers(rays: _Rays) -> Iterator[tuple[str, float]]:
    """What a wrong number would explain, and what is left over with the best one [m]."""
    log, left = _best(lambda s: _left_over(rays.points(_zoomed(s))), *np.log(_ZOOMED))
    text = (
        "the lens is that of other pictures: the table is one plane when focal lengths are"
        f" {np.exp(log):.3g} times what they are taken for (intrinsics of another picture size, a"
        " crop or a zoom)"
    )
    yield text, left
    log, left = _best(lambda s: _left_over(rays.points(_same, float(np.exp(s)))), *np.log(_SCALED))
    text = (
        "poses and depth have different scales: the table is one plane when the cameras' places are"
        f" {np.exp(log):.3g} times as far apart (poses of an app that guesses metres, or"
        " depth.scale_m)"
    )
    yield text, left
    off_m, left = _best(lambda m: _left_over(rays.points(_farther(m))), -_OFF_M, _OFF_M)
    text = (
        f"depth is off: the table is one plane when it is {1e3 * abs(off_m):.0f} mm"
        f" {'farther' if off_m > 0 else 'nearer'} (the camera's depth is not calibrated, or its"
        " place is that of another of its sensors)"
    )
    yield text, left


def _by_mistakes(rays: _Rays) -> Iterator[tuple[str, float]]:
    """What a mistake would explain, and what is left over without it [m]."""
    text = (
        "depth is the distance along the ray, not along the optical axis: multiply it by the cosine"
        " of the ray's angle (docs/capture_format.md)"
    )
    yield text, _left_over(rays.points(_along_axis))
    text = (
        "pictures are turned by 180 degrees against their poses: the camera hangs upside down, or"
        " somebody turned the files; turn the poses about the optical axis, too"
    )
    yield text, _left_over(rays.points(_turned))
    for rows, word in ((1, "before"), (-1, "after")):
        text = (
            f"every picture has the pose of the one {word} it: pictures and poses are shifted by a"
            " row, or out of step"
        )
        yield text, _left_over(rays.points(_same, later=rows))


def mirrored(frames: Sequence[PosedFrame], low: Vector, high: Vector) -> str:
    """Why nothing stands in the workspace on which pictures agree, where they agree as mirror
    images; "" where they do not.
    """
    rays = _rays(frames, high=True)
    if not len(rays.of):
        return ""
    given = _agreement(rays.points(_same), rays.of, len(frames), low, high)
    other = _agreement(rays.points(_mirrored), rays.of, len(frames), low, high)
    if other < _AGREES or other < _MORE * given:
        return ""
    return (
        "; but in mirror images of the pictures it does: pictures and depth have left and right"
        " exchanged (no view of any camera), or the poses' y axis points up"
    )


def _rays(frames: Sequence[PosedFrame], *, high: bool = False) -> _Rays:
    """Some points of every picture; ``high``: all of a coarser picture."""
    rng = np.random.default_rng(0)
    seen: list[VectorRows] = []
    of: list[Floats] = []
    for k, f in enumerate(frames):
        stride = max(1, f.frame.camera.size[0] // 160) if high else 1
        depth = f.depth_m()[::stride, ::stride]
        rows, columns = np.nonzero(depth > 0)
        if not high and len(rows) > _POINTS:
            some = rng.choice(len(rows), _POINTS, replace=False)
            rows, columns = rows[some], columns[some]
        z = depth[rows, columns].astype(np.float64)
        x = (columns * stride - f.K[0, 2]) / f.K[0, 0]
        y = (rows * stride - f.K[1, 2]) / f.K[1, 1]
        seen.append(np.column_stack([x, y, z]))
        of.append(np.full(len(rows), float(k)))
    poses = np.stack([f.T_table_camera for f in frames])
    return _Rays(np.concatenate(seen), np.concatenate(of), poses)


def _same(seen: VectorRows) -> VectorRows:
    return seen


def _zoomed(log_factor: float) -> _Change:
    across = np.exp(-log_factor)
    return lambda seen: seen * np.array([across, across, 1.0])


def _farther(by_m: float) -> _Change:
    return lambda seen: seen + np.array([0.0, 0.0, by_m])


def _along_axis(seen: VectorRows) -> VectorRows:
    x, y, z = seen.T
    return np.column_stack([x, y, z / np.sqrt(1.0 + x**2 + y**2)])


def _turned(seen: VectorRows) -> VectorRows:
    return seen * np.array([-1.0, -1.0, 1.0])


def _mirrored(seen: VectorRows) -> VectorRows:
    return seen * np.array([-1.0, 1.0, 1.0])


def _left_over(points: Points) -> float:
    """How far points lie from the plane that most of them lie near [m], mean up to a limit."""
    rng = np.random.default_rng(0)
    some = points[rng.choice(len(points), min(len(points), _CHOOSING), replace=False)]
    a, b, c = some[rng.integers(len(some), size=(3, _TRIES))]
    normals = np.cross(b - a, c - a)
    lengths: Floats = np.linalg.norm(normals, axis=1)
    planes = lengths > 1e-6
    if not planes.any():
        return np.inf
    normals = normals[planes] / lengths[planes, None]
    far = np.abs(some @ normals.T - (a[planes] * normals).sum(axis=1))
    return float(np.minimum(far, _MOST_M).mean(axis=0).min())


def _best(cost: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Where a cost is least between two values, by a grid that becomes finer."""
    at, least = 0.0, np.inf
    for _ in range(3):
        step = (high - low) / 14
        values = [low + k * step for k in range(15)]
        costs = [cost(v) for v in values]
        k = int(np.argmin(costs))
        if costs[k] < least:
            at, least = values[k], costs[k]
        low, high = at - 1.5 * step, at + 1.5 * step
    return at, least


def _agreement(points: Points, of: Floats, count: int, low: Vector, high: Vector) -> float:
    """Of the cells in which pictures see something standing, the share that two in three see."""
    inside = (points[:, 2] > _HIGH_M) & (points[:, 2] < high[2])
    inside &= ((points[:, :2] > low[:2]) & (points[:, :2] < high[:2])).all(axis=1)
    if not inside.any():
        return 0.0
    cells = np.floor(points[inside, :2] / _CELL_M).astype(np.int64)
    seen = np.unique(np.column_stack([cells, of[inside].astype(np.int64)]), axis=0)
    _, times = np.unique(seen[:, :2], axis=0, return_counts=True)
    return float((3 * times >= 2 * count).mean())
