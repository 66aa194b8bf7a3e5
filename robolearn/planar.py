"""Moves a table as a whole: rotations, shifts and reflections of everything that lies on it.

    about a centre c:   p' = M (p - c) + c + shift        M: rotation, or reflection at a line
                        heading' = turn + heading         reflection: turn - heading
                        R' = M R S                        S: identity, or the objects' own symmetry

Whether a task looks the same afterwards is not said here: goal, walls and arm may not move along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.errors import SpecMismatchError
from robolearn.geometry import (
    Rotations,
    names_rotation,
    quat_from_rotation,
    rot_z,
    rotation_from_quat,
)
from robolearn.shapes import FloatRows, Floats
from robolearn.spec import ActionSpec, SignalSpec

# Values of one signal or action: any number of rows of them.
Values = Float64[NDArray[np.float64], "... n"]
Places = Float64[NDArray[np.float64], "... 2"]
Kind = Literal["xy", "xyz", "xy_yaw", "xyz_yaw", "pose", "still"]

_KINDS: dict[tuple[tuple[int, ...], tuple[str, ...]], Kind] = {
    ((2,), ("m",)): "xy",
    ((3,), ("m",)): "xyz",
    ((3,), ("m", "m", "rad")): "xy_yaw",
    ((4,), ("m", "m", "m", "rad")): "xyz_yaw",
    ((7,), ("m", "quaternion wxyz")): "pose",
}


def kind_of(spec: SignalSpec | ActionSpec) -> Kind:
    """What the numbers of a signal are on the table; ``still``: they do not say where something is
    (joints, widths, velocities, pictures).
    """
    units = tuple(unit.strip() for unit in spec.unit.split(","))
    return _KINDS.get((spec.shape, units), "still")


@dataclass(frozen=True, slots=True)
class PlanarMove:
    """A rotation about ``centre`` [m] by ``turn`` [rad] and a ``shift`` [m]; with ``reflected`` a
    reflection at a line through ``centre`` instead, of objects that are symmetric themselves.

    ``turn`` of a reflection is what a heading of 0 becomes, ``axis`` [rad] the line's direction.
    """

    turn: float
    centre: tuple[float, float] = (0.0, 0.0)
    shift: tuple[float, float] = (0.0, 0.0)
    reflected: bool = False
    axis: float = 0.0

    @staticmethod
    def reflection(
        point: Sequence[float], axis_deg: float, body_axis_deg: float = 0.0
    ) -> PlanarMove:
        """At the line through ``point`` [m] along ``axis_deg``, of objects whose own axis of
        symmetry is ``body_axis_deg`` in their frame (both counter-clockwise from x).
        """
        two = 2 * math.radians(axis_deg)
        # A direction phi goes to 2 axis - phi; the body's axis is at its heading + body_axis.
        turn = two - 2 * math.radians(body_axis_deg)
        centre = (float(point[0]), float(point[1]))
        return PlanarMove(turn, centre, reflected=True, axis=math.radians(axis_deg))

    @property
    def matrix(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """``M``, rows first."""
        if self.reflected:
            two = 2 * self.axis
            return ((math.cos(two), math.sin(two)), (math.sin(two), -math.cos(two)))
        c, s = math.cos(self.turn), math.sin(self.turn)
        return ((c, -s), (s, c))

    def points(self, xy: Places, *, steps: bool = False) -> Places:
        """Places ``[..., 2]``; ``steps``: ways from one place to another, which are only turned."""
        matrix = np.array(self.matrix).T
        if steps:
            return np.matmul(xy, matrix)
        centre = np.array(self.centre)
        return np.matmul(xy - centre, matrix) + centre + np.array(self.shift)

    def rotations(self, R: Rotations) -> Rotations:
        """Attitudes ``[..., 3, 3]``."""
        if not self.reflected:
            return rot_z(self.turn) @ R
        M = np.eye(3)
        M[:2, :2] = self.matrix
        body = 2 * self.axis - self.turn
        S = np.eye(3)
        S[:2, :2] = [[math.cos(body), math.sin(body)], [math.sin(body), -math.cos(body)]]
        return M @ R @ S

    def apply(self, spec: SignalSpec | ActionSpec, values: Values) -> Values:
        """Values ``[..., n]`` of a signal or an action, moved; those that are ``still`` stay.

        Raises :class:`SpecMismatchError` for commands that cannot be moved: joints, and relative
        ones that turn.
        """
        kind = kind_of(spec)
        relative = isinstance(spec, ActionSpec) and spec.mode == "relative"
        if isinstance(spec, ActionSpec) and _immovable(spec, kind):
            raise SpecMismatchError(
                f"action '{spec.name}' {spec.shape} [{spec.unit}] cannot be moved over a table;"
                " places, planar poses and poses (x y z qw qx qy qz) can"
            )
        if kind == "still":
            return values
        moved = np.array(values, dtype=np.float64)
        if kind == "pose" and not relative and not names_rotation(moved[..., 3:]).all():
            return self._moved_named(spec, moved)
        moved[..., :2] = self.points(moved[..., :2], steps=relative)
        if kind in ("xy_yaw", "xyz_yaw"):
            heading = moved[..., -1]
            turned = self.turn - heading if self.reflected else self.turn + heading
            moved[..., -1] = np.remainder(turned + math.pi, 2 * math.pi) - math.pi
        if kind == "pose":
            R = self.rotations(rotation_from_quat(moved[..., 3:]))
            moved[..., 3:] = quat_from_rotation(R)
        return moved

    def _moved_named(self, spec: SignalSpec | ActionSpec, values: Values) -> Values:
        """Poses of which some are nobody's: a goal that was not named lies nowhere."""
        rows = values.reshape(-1, values.shape[-1])
        named = names_rotation(rows[:, 3:])
        rows[named] = self.apply(spec, rows[named])
        return rows.reshape(values.shape)


def blend(kind: Kind, before: FloatRows, after: FloatRows, share: Floats) -> FloatRows:
    """Rows ``[n, k]`` from ``before`` (``share [n]`` 0) to ``after`` (1), angles the short way."""
    way = after - before
    if kind in ("xy_yaw", "xyz_yaw"):
        way[..., -1] = np.remainder(way[..., -1] + math.pi, 2 * math.pi) - math.pi
    mixed = before + share[:, None] * way
    if kind == "pose":
        # Of a goal that nobody named nothing is left to be made a rotation.
        near = np.where((before[..., 3:] * after[..., 3:]).sum(axis=-1, keepdims=True) < 0, -1, 1)
        q = before[..., 3:] + share[:, None] * (near * after[..., 3:] - before[..., 3:])
        length = np.linalg.norm(q, axis=-1, keepdims=True)
        mixed[..., 3:] = q / np.where(length > 0.0, length, 1.0)
    return mixed


def _immovable(spec: ActionSpec, kind: Kind) -> bool:
    if kind == "still":
        return spec.size > 1
    return spec.mode == "relative" and kind not in ("xy", "xyz")
