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

from robolearn.arms.compiled.forms import Capsules
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import FloatRows, Floats, Index

Point = tuple[float, float, float]


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
        self._chain = arm.chain
        radius = np.array([c.radius for c in capsules], dtype=np.float64)
        ignored = {frozenset(pair) for pair in apart}
        pairs = [
            (i, j)
            for i, a in enumerate(capsules)
            for j, b in enumerate(capsules[:i])
            if self._steps(a.link, b.link) > 1 and frozenset((a.name, b.name)) not in ignored
        ]
        one, two = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
        above = [i for i, c in enumerate(capsules) if c.link > 1 and c.name not in touching]
        kept_off = np.array(above if table is not None else [], dtype=np.int64)
        height = 0.0 if table is None else table.offset
        normal = np.array((0.0, 0.0, 1.0) if table is None else table.normal, dtype=np.float64)
        link, start, way = self._places()
        # As kernels take them.
        self._things = Capsules(
            *(link, start, way, (way * way).sum(axis=1)),
            *(one, two, radius.take(one) + radius.take(two)),
            *(kept_off, height + radius.take(kept_off), normal),
        )
        # What this calls is compiled now, not in a tick.
        self.distances(np.zeros(arm.dof))

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
        return tuple(zip(self._things.one.tolist(), self._things.two.tolist(), strict=True))

    def _steps(self, one: int, two: int) -> int:
        # The flange (dof + 1) is a place on the last link.
        last = self.arm.dof
        return abs(min(one, last) - min(two, last))

    def distances(self, q: Joints) -> Floats:
        """All distances [m] at joint positions ``q [dof]``: pairs, then the table."""
        return self.distances_rows((q,))[0]

    def distances_rows(self, rows: Sequence[Joints]) -> FloatRows:
        """The same at several joint positions ``[n, distances]``."""
        from robolearn.arms.compiled.collision import distances_at

        own = np.array([self._own(q) for q in rows]).reshape(len(rows), self.arm.dof)
        return distances_at(self._chain, self._things, own)

    def _own(self, q: Joints) -> Joints:
        angles = q.tolist()
        if q.shape != (self.arm.dof,) or not all(map(math.isfinite, angles)):
            raise DataError(f"expected {self.arm.dof} finite joint positions, got {q}")
        return np.array(angles, dtype=np.float64)

    def _places(self) -> tuple[Index, FloatRows, FloatRows]:
        """Link, start and way from start to end of all capsules; the flange is a place on the last
        link.
        """
        last, flange = self.arm.dof, self.arm.flange_in_last
        link: list[int] = []
        start: list[Floats] = []
        way: list[Floats] = []
        for capsule in self.capsules:
            T = flange if capsule.link > last else np.eye(4)
            first, end = ((T @ (*p, 1.0))[:3] for p in (capsule.start, capsule.end))
            link.append(min(capsule.link, last))
            start.append(first)
            way.append(end - first)
        return np.array(link, dtype=np.int64), np.array(start), np.array(way)

    def distance(self, q: Joints) -> float:
        """The smallest of :meth:`distances` (infinite without anything to compare)."""
        return float(self.distances(q).min(initial=np.inf))

    def clearance(self, q: Joints) -> Clearance:
        """The smallest distance and between what."""
        distances = self.distances(q)
        if not len(distances):
            return Clearance(float("inf"), ("", ""))
        at = int(np.argmin(distances))
        things = self._things
        if at < len(things.one):
            first = self.capsules[int(things.two[at])]
            second = self.capsules[int(things.one[at])]
            return Clearance(float(distances[at]), (first.name, second.name))
        near = self.capsules[int(things.above[at - len(things.one)])]
        return Clearance(float(distances[at]), (near.name, "table"))
