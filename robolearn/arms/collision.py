"""Measures distances of an arm to itself, to a table and to fixed obstacles, on capsules.

A capsule is every point within a radius of a segment, and the distance of two is that of their
segments less both radii: exact, cheap and never an iteration that may not converge, which suits a
supervisor's loop. What the capsules leave out of a housing is covered by the margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.arms.chain import chain_of
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import AnyFloats, FloatRows, Floats, Index

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

    def __post_init__(self) -> None:
        if not abs(math.hypot(*self.normal) - 1.0) < 1e-6:
            raise ConfigError(f"plane: its normal must have length 1, got {self.normal}")


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
        self._touching, self._apart = tuple(touching), tuple(apart)
        self.capsules: tuple[Capsule, ...] = tuple(capsules)
        self._chain = chain_of(arm, np.eye(4), arm.flange_in_last)
        self._places = self._weights()
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
        self._segments = _SegmentPairs(self._one, self._two, self.capsules)
        above = [i for i, c in enumerate(capsules) if c.link > 1 and c.name not in touching]
        self._above = np.array(above if table is not None else [], dtype=np.int64)
        height = 0.0 if table is None else table.offset
        self._over = height + self._radius[self._above]
        self._normal = np.array((0.0, 0.0, 1.0) if table is None else table.normal)
        # What this calls is compiled now, not in a tick.
        self._frames_at(np.zeros(arm.dof))

    def beside(self, things: Sequence[Capsule]) -> CollisionModel:
        """The same, with more that stands in the way."""
        return CollisionModel(
            self.arm,
            (*self.capsules, *things),
            table=self._table,
            touching=self._touching,
            apart=self._apart,
        )

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The capsules whose distance is measured, by their indices."""
        return tuple(zip(self._one.tolist(), self._two.tolist(), strict=True))

    @property
    def normal(self) -> Floats:
        """Of the table, away from which is free space ``[3]``."""
        return self._normal

    @property
    def above(self) -> tuple[int, ...]:
        """The capsules whose distance to the table is measured, by their indices."""
        return tuple(self._above.tolist())

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
        places = self._places_at(rows)
        between = self._segments.distances(places) - self._reach
        if not len(self._above):
            return between
        return np.concatenate([between, self._heights(places)], axis=1)

    def between(self, q: Joints) -> Floats:
        """Distances of the pairs alone, as in :meth:`distances`."""
        return (self._segments.distances(self._places_at((q,))) - self._reach)[0]

    def over_table(self, q: Joints) -> Floats:
        """Of the table, as in :meth:`distances`, first those of all starts, then those of all ends;
        a third of the cost.
        """
        places = self._places_at((q,))[0]
        start, way = (self._normal @ places).reshape(2, -1).take(self._above, axis=1)
        return np.concatenate([start - self._over, start + way - self._over])

    def _places_at(self, rows: Sequence[Joints]) -> AnyFloats:
        """Starts and ways (end less start) of all capsules ``[n, 3, 2 capsules]``: linear in the
        axes and places of the links' frames.
        """
        at = np.array([self._frames_at(q) for q in rows]).reshape(len(rows), -1, 3)
        return at.transpose(0, 2, 1) @ self._places

    def _heights(self, places: AnyFloats) -> FloatRows:
        start, way = (self._normal @ places).reshape(len(places), 2, -1).swapaxes(0, 1)
        height = (start + np.minimum(way, 0.0)).take(self._above, axis=1)
        return height - self._over

    def _frames_at(self, q: Joints) -> FloatRows:
        """Of the base and of every link ``[dof + 1, 12]``, in the base frame."""
        from robolearn.arms.compiled.chain import frames_at

        angles = q.tolist()
        if q.shape != (self.arm.dof,) or not all(map(math.isfinite, angles)):
            raise DataError(f"expected {self.arm.dof} finite joint positions, got {q}")
        return frames_at(self._chain, np.array(angles, dtype=np.float64))

    def _weights(self) -> FloatRows:
        """``[4 (dof + 1), 2 capsules]``: shares of each link's axes and place in every start, then
        in every way from start to end.
        """
        last = self.arm.dof
        out = np.zeros((last + 1, 4, 2, len(self.capsules)))
        for k, capsule in enumerate(self.capsules):
            T = self.arm.flange_in_last if capsule.link > last else np.eye(4)
            start, end = (T @ (*p, 1.0) for p in (capsule.start, capsule.end))
            out[min(capsule.link, last), :, 0, k] = start
            out[min(capsule.link, last), :, 1, k] = end - start
        return out.reshape(4 * (last + 1), -1)

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


class _SegmentPairs:
    """Distances of pairs of segments whose lengths never change.

    The closest points of Ericson, "Real-Time Collision Detection" (2005), 5.1.9.
    """

    def __init__(self, one: Index, two: Index, capsules: Sequence[Capsule]) -> None:
        ways = np.array([np.subtract(c.end, c.start) for c in capsules])
        squares = (ways * ways).sum(axis=1)
        n, self._pairs = len(capsules), len(one)
        # What two products and one difference of whole blocks make dots of, see below.
        blocks = (two, two, one + n, one + n, two + n, two + n, one, one)
        self._blocks = np.concatenate(blocks)
        self._a, self._e = squares[one], squares[two]
        self._a_least, self._e_least = np.maximum(self._a, _TINY), np.maximum(self._e, _TINY)
        self._ae = self._a * self._e
        self._parallel = 1e-12 * self._ae + _TINY

    def distances(self, places: AnyFloats) -> FloatRows:
        """``[n, pairs]`` from starts and ways ``[n, 3, 2 capsules]``."""
        m = self._pairs
        # p2, p2, d1, d1, d2, d2, p1, p1; the last two become r = p1 - p2.
        block = places.take(self._blocks, axis=2)
        block[:, :, 6 * m :] -= block[:, :, : 2 * m]
        # d1 . d2, d1 . r, d2 . r
        products = block[:, :, 2 * m : 5 * m] * block[:, :, 5 * m :]
        dots = products[:, 0] + products[:, 1] + products[:, 2]
        b, c, f = dots[:, :m], dots[:, m : 2 * m], dots[:, 2 * m :]
        denominator = self._ae - b * b
        # Of parallel segments any point of the first will do: its start.
        denominator[denominator <= self._parallel] = np.inf
        s = _share((b * f - c * self._e) / denominator)
        t = _share((b * s + f) / self._e_least)
        s = _share((b * t - c) / self._a_least)
        gap = block[:, :, 6 * m : 7 * m] + s[:, None] * block[:, :, 2 * m : 3 * m]
        gap -= t[:, None] * block[:, :, 4 * m : 5 * m]
        gap *= gap
        return np.sqrt(gap[:, 0] + gap[:, 1] + gap[:, 2])


def _share(value: FloatRows) -> FloatRows:
    """To 0 to 1, in place."""
    np.maximum(value, 0.0, out=value)
    return np.minimum(value, 1.0, out=value)
