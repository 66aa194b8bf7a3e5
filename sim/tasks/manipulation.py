"""Shares what the manipulation tasks need: poses, footprints and starts, grasps, drops, rest.

Everything is judged from signals, as on a real cell: poses ``[7]`` (x y z qw qx qy qz) [m] in the
table frame (z = 0 is the table top), and the gripper's width [m].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Num
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.geometry import Vector, rotation_from_quat
from robolearn.types import Signals
from sim.shapes import PoseValues, TableCorners, Values

TOOL = "tool/pose"
WIDTH = "gripper/width"
GOAL = "goal/pose"

Pose = tuple[float, ...]
Area = tuple[tuple[float, float], tuple[float, float]]
# A pose (or a point) as an array, or its numbers.
PoseLike = Num[NDArray[Any], " values"] | Sequence[Any]

# Below this width [m] the gripper holds nothing: the thinnest part of any scene has 15 mm.
CLOSED_M = 0.008
# An object moves less than this [m] per control tick when it is at rest (0.02 m/s at 20 Hz).
REST_M = 0.001
# A part that is let go this much [m] above its support was dropped.
DROP_M = 0.015
_TRIES = 2000


def level_pose(x: float, y: float, z: float, yaw: float) -> Pose:
    """A pose that is only turned about the vertical; ``qw >= 0``."""
    half = 0.5 * math.remainder(yaw, 2.0 * math.pi)
    return (x, y, z, math.cos(half), 0.0, 0.0, math.sin(half))


def heading(pose: PoseLike) -> float:
    """Yaw [rad] of the object's x axis."""
    qw, qx, qy, qz = (float(v) for v in pose[3:7])
    return math.atan2(2.0 * (qx * qy + qw * qz), 1.0 - 2.0 * (qy * qy + qz * qz))


def tilt(pose: PoseLike) -> float:
    """Angle [rad] between the object's z axis and the vertical."""
    _, qx, qy, _ = (float(v) for v in pose[3:7])
    return math.acos(max(-1.0, min(1.0, 1.0 - 2.0 * (qx * qx + qy * qy))))


def within(parent: PoseValues, point: Values) -> Vector:
    """A point ``[3]`` of the table frame in the frame of ``parent`` (a pose)."""
    R = rotation_from_quat(np.asarray(parent[3:7], dtype=np.float64))
    return R.T @ (np.asarray(point[:3], dtype=np.float64) - parent[:3])


@dataclass(frozen=True, slots=True)
class Footprint:
    """A rectangle on the table: half sides [m] along the object's own x and y, and its middle
    ``(cx, cy)`` in the object's frame.
    """

    hx: float
    hy: float
    cx: float = 0.0
    cy: float = 0.0

    def corners(self, pose: Pose, margin: float = 0.0) -> TableCorners:
        """The four corners ``[4, 2]`` [m] at a pose, ``margin`` further out."""
        yaw = heading(pose)
        c, s = math.cos(yaw), math.sin(yaw)
        hx, hy = self.hx + margin, self.hy + margin
        rows: list[list[float]] = []
        for sx, sy in ((1, 1), (-1, 1), (-1, -1), (1, -1)):
            x, y = self.cx + sx * hx, self.cy + sy * hy
            rows.append([pose[0] + c * x - s * y, pose[1] + s * x + c * y])
        return np.array(rows)


def overlap(a: TableCorners, b: TableCorners) -> bool:
    """True if two rectangles (corners ``[4, 2]``) share area: no side of either separates them."""
    for corners in (a, b):
        for side in (corners[1] - corners[0], corners[2] - corners[1]):
            pa, pb = a @ side, b @ side
            if pa.max() <= pb.min() or pb.max() <= pa.min():
                return False
    return True


def check_apart(poses: Mapping[str, Any], footprints: Mapping[str, Footprint]) -> None:
    """Raise :class:`DataError` if two objects of ``footprints`` that stand on the table overlap."""
    named = [n for n in footprints if n in poses]
    for i, first in enumerate(named):
        for second in named[i + 1 :]:
            a = footprints[first].corners(tuple(map(float, poses[first])))
            b = footprints[second].corners(tuple(map(float, poses[second])))
            if overlap(a, b):
                raise DataError(
                    f"{first} {_short(poses[first])} overlaps {second} {_short(poses[second])};"
                    " put them further apart"
                )


def draw_apart(
    rng: np.random.Generator,
    wanted: Mapping[str, Start],
    footprints: Mapping[str, Footprint],
    *,
    gap: float,
    taken: Mapping[str, Pose] | None = None,
) -> dict[str, Pose]:
    """Draw a pose for every object, at least ``gap`` [m] between their footprints.

    ``taken``: objects that stand already. Raises :class:`DataError` when the area is too small.
    """
    for _ in range(_TRIES):
        poses: dict[str, Pose] = {name: start.draw(rng) for name, start in wanted.items()}
        every = {**(taken or {}), **poses}
        corners = [footprints[n].corners(p, 0.5 * gap) for n, p in every.items()]
        if not any(overlap(a, b) for i, a in enumerate(corners) for b in corners[i + 1 :]):
            return poses
    raise DataError(
        f"no room for {sorted(wanted)} with {gap * 1e3:g} mm between them in {_TRIES} draws;"
        " enlarge the area of task.params"
    )


@dataclass(frozen=True, slots=True)
class Start:
    """Where one object may start: an area [m] of the table, a range of yaw [rad], its height."""

    area: Area
    yaw: tuple[float, float]
    z: float

    def draw(self, rng: np.random.Generator) -> Pose:
        """A pose, uniform."""
        (x0, x1), (y0, y1) = self.area
        x, y = rng.uniform(x0, x1), rng.uniform(y0, y1)
        return level_pose(float(x), float(y), self.z, float(rng.uniform(*self.yaw)))


def as_area(raw: Sequence[Sequence[float]]) -> Area:
    """``[[x0, x1], [y0, y1]]`` of ``task.params`` as numbers; :class:`DataError` if not so."""
    (x0, x1), (y0, y1) = ((float(a), float(b)) for a, b in raw)
    if not (x0 < x1 and y0 < y1):
        raise DataError(f"area must be [[x_low, x_high], [y_low, y_high]] [m], got {raw}")
    return ((x0, x1), (y0, y1))


def box_of(sizes_m: Any, signal: str) -> tuple[float, float, float]:
    """Sides [m] of the object behind ``signal``, of a mapping by signals; :class:`DataError` where
    they are not said.
    """
    try:
        sides = [float(v) for v in dict(sizes_m).get(signal, ())]
    except (TypeError, ValueError):
        sides = []
    if len(sides) != 3 or not all(0.0 < v < math.inf for v in sides):
        raise DataError(
            f"sizes_m of task.params: expected the three sides [m] of '{signal}', each above 0, got"
            f" {sizes_m}"
        )
    return (sides[0], sides[1], sides[2])


def outside(pose: PoseLike, bounds: Area, below: float = -0.02) -> bool:
    """True if an object has left the workspace or fallen off the table."""
    (x0, x1), (y0, y1) = bounds
    x, y, z = point_of(pose)
    return not (x0 <= x <= x1 and y0 <= y <= y1) or z < below


def point_of(pose: PoseLike) -> tuple[float, float, float]:
    """x, y, z as plain numbers: several times faster than arrays at this size."""
    x, y, z = pose[:3]
    return float(x), float(y), float(z)


class Still:
    """Whether an object rests: it has moved less than :data:`REST_M` since the last tick."""

    def __init__(self) -> None:
        self._last: tuple[float, float, float] | None = None

    def update(self, pose: PoseLike) -> bool:
        """Tell this tick's pose."""
        last, self._last = self._last, point_of(pose)
        return last is not None and math.dist(self._last, last) < REST_M


class Grasp:
    """Follows one object through the gripper: held, missed, dropped.

    ``reach`` [m]: an object whose middle is nearer than this to the tool's point is between the
    fingers. ``trouble`` is ``missed_grasp`` after the fingers closed on nothing and ``dropped``
    after the object was let go above its support; both are mended by holding it (again).
    """

    def __init__(self, reach: float) -> None:
        self._reach = reach
        self.held, self.trouble = False, ""
        self._height = 0.0

    def update(self, values: Signals, pose: PoseLike, height: float) -> None:
        """Tell this tick's signals, the object's pose, and its height [m] above its support."""
        width = values[WIDTH].item(0)
        near = math.dist(values[TOOL].tolist()[:3], point_of(pose)) < self._reach
        held = near and width > CLOSED_M and height > 0.005
        if held:
            self.trouble = ""
        elif self.held and self._height > DROP_M:
            self.trouble = "dropped"
        elif width < CLOSED_M and not self.trouble:
            self.trouble = "missed_grasp"
        self.held, self._height = held, height


def _short(pose: Any) -> str:
    return "(" + ", ".join(f"{float(v):.3f}" for v in pose[:3]) + ")"
