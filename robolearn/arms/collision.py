"""Measures distances of an arm to itself, to a table and to fixed obstacles, on capsules.

A capsule is every point within a radius of a segment, and the distance of two is that of their
segments less both radii: exact, cheap and never an iteration that may not converge, which suits a
supervisor's loop. What the capsules leave out of a housing is covered by the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import VectorRows
from robolearn.shapes import AnyFloats, FloatRows, Floats

Point = tuple[float, float, float]

# Squared lengths below this count as zero (a capsule that is a sphere) [m^2].
_TINY = 1e-18


@dataclass(frozen=True, slots=True)
class Capsule:
    """``start`` to ``end`` [m] in the frame of ``link`` (0: base, dof: last link, dof + 1: flange),
    ``radius`` [m]. ``name`` is what messages say.
    """

    link: int
    start: Point
    end: Point
    radius: float
    name: str

    def __post_init__(self) -> None:
        if not (self.radius > 0.0 and np.isfinite([*self.start, *self.end, self.radius]).all()):
            raise ConfigError(f"capsule '{self.name}': radius must be positive, ends finite")


@dataclass(frozen=True, slots=True)
class Plane:
    """All points with ``normal . p = offset`` [m] in the base frame; free space lies above."""

    normal: Point
    offset: float


@dataclass(frozen=True, slots=True)
class Clearance:
    """The smallest distance [m] (negative: overlap) and between what."""

    distance_m: float
    between: tuple[str, str]


class CollisionModel:
    """An arm's capsules, those of its tool and of fixed obstacles (``link`` 0), and a table.

    Links next to each other are not compared, nor what stands on the base with the table;
    ``touching`` names capsules that may come near the table (a tool at work).
    """

    def __init__(
        self,
        arm: SerialArm,
        capsules: Sequence[Capsule],
        *,
        table: Plane | None = None,
        touching: Sequence[str] = (),
        apart: Sequence[tuple[str, str]] = (),
    ) -> None:
        if not capsules:
            raise ConfigError(f"no capsules describe the arm '{arm.name}'")
        outside = [c.name for c in capsules if not 0 <= c.link <= arm.dof + 1]
        if outside:
            raise ConfigError(f"capsules {outside} belong to links that {arm.name} does not have")
        self.arm, self._table = arm, table
        self.capsules: tuple[Capsule, ...] = tuple(capsules)
        self._link = np.array([c.link for c in capsules])
        ends = np.array([[*c.start, 1.0, *c.end, 1.0] for c in capsules]).reshape(-1, 2, 4)
        self._ends = ends.transpose(0, 2, 1).copy()
        self._radius = np.array([c.radius for c in capsules])
        ignored = {frozenset(pair) for pair in apart}
        pairs = [
            (i, j)
            for i, a in enumerate(capsules)
            for j, b in enumerate(capsules[:i])
            if self._steps(a.link, b.link) > 1 and frozenset((a.name, b.name)) not in ignored
        ]
        self._one, self._two = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self._reach = self._radius[self._one] + self._radius[self._two]
        above = [i for i, c in enumerate(capsules) if c.link > 1 and c.name not in touching]
        self._above = np.array(above if table is not None else [], dtype=np.int64)
        self._normal = np.array((0.0, 0.0, 1.0) if table is None else table.normal)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The capsules whose distance is measured, by their indices."""
        return tuple(zip(self._one.tolist(), self._two.tolist(), strict=True))

    def _steps(self, one: int, two: int) -> int:
        # The flange (dof + 1) is a place on the last link.
        last = self.arm.dof
        return abs(min(one, last) - min(two, last))

    def distances(self, q: Joints) -> Floats:
        """All distances [m] at joint positions ``q [dof]``: pairs, then the table."""
        return self.distances_rows((q,))[0]

    def distances_rows(self, rows: Sequence[Joints]) -> FloatRows:
        """The same at several joint positions ``[n, distances]``, at little more than the cost of
        one: numpy's calls are what takes the time.
        """
        ends = np.array([self._ends_at(q) for q in rows])
        starts, stops = ends[..., 0], ends[..., 1]
        pairs = (
            side[:, k].reshape(-1, 3) for k in (self._one, self._two) for side in (starts, stops)
        )
        between = segment_distance(*pairs).reshape(len(rows), -1) - self._reach
        if self._table is None or not len(self._above):
            return between
        height = np.minimum(starts @ self._normal, stops @ self._normal)[:, self._above]
        over = height - self._table.offset - self._radius[self._above]
        return np.concatenate([between, over], axis=1)

    def _ends_at(self, q: Joints) -> AnyFloats:
        """Both ends of every capsule ``[capsules, 3, 2]`` in the base frame."""
        if q.shape != (self.arm.dof,) or not np.all(np.isfinite(q)):
            raise DataError(f"expected {self.arm.dof} finite joint positions, got {q}")
        frames = self.arm.frames(q)
        frames = np.concatenate([frames, (frames[-1] @ self.arm.flange_in_last)[None]])
        return (frames[self._link] @ self._ends)[:, :3]

    def distance(self, q: Joints) -> float:
        """The smallest of :meth:`distances` (infinite without anything to compare)."""
        return float(self.distances(q).min(initial=np.inf))

    def clearance(self, q: Joints) -> Clearance:
        """The smallest distance and between what."""
        distances = self.distances(q)
        if not len(distances):
            return Clearance(float("inf"), ("", ""))
        at = int(np.argmin(distances))
        if at < len(self._one):
            first = self.capsules[int(self._two[at])]
            second = self.capsules[int(self._one[at])]
            return Clearance(float(distances[at]), (first.name, second.name))
        near = self.capsules[int(self._above[at - len(self._one)])]
        return Clearance(float(distances[at]), (near.name, "table"))


def segment_distance(p1: VectorRows, q1: VectorRows, p2: VectorRows, q2: VectorRows) -> Floats:
    """Distances ``[n]`` of the segments p1-q1 and p2-q2, each ``[n, 3]``.

    The closest points of Ericson, "Real-Time Collision Detection" (2005), 5.1.9.
    """
    d1, d2, r = q1 - p1, q2 - p2, p1 - p2
    a, e = _dot(d1, d1), _dot(d2, d2)
    b, c, f = _dot(d1, d2), _dot(d1, r), _dot(d2, r)
    denominator = a * e - b * b
    parallel = denominator <= 1e-12 * a * e + _TINY
    s = np.where(parallel, 0.0, (b * f - c * e) / np.where(parallel, 1.0, denominator))
    s = np.minimum(1.0, np.maximum(0.0, s))
    t = np.minimum(1.0, np.maximum(0.0, (b * s + f) / np.maximum(e, _TINY)))
    s = np.minimum(1.0, np.maximum(0.0, (b * t - c) / np.maximum(a, _TINY)))
    gap = r + s[:, None] * d1 - t[:, None] * d2
    return np.sqrt(_dot(gap, gap))


def _dot(a: VectorRows, b: VectorRows) -> Floats:
    return np.asarray((a * b).sum(axis=1), dtype=np.float64)
