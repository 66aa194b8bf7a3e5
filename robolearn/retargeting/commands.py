"""Reads commands of a tool as poses ``[n, 7]``, and writes poses as commands.

A command of four numbers means a tool that points down; one of two a tool that stays upright, at
the height 0 of its table. Both turn about the vertical alone.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.errors import SpecMismatchError
from robolearn.geometry import quat_heading, quat_multiply
from robolearn.planar import Kind, kind_of
from robolearn.retargeting.shapes import Way
from robolearn.shapes import Floats
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec

Rows = Float64[NDArray[np.float64], "n k"]
# Half a turn about x: the tool points down.
_DOWN = np.array([0.0, 1.0, 0.0, 0.0])
KINDS: tuple[Kind, ...] = ("xy", "xy_yaw", "xyz_yaw", "pose")


def tool_action(spec: EmbodimentSpec) -> ActionSpec:
    """The one action that says where the tool should be.

    Raises :class:`SpecMismatchError` where there is none, more than one, or something else besides
    that is no single number (a gripper's width).
    """
    places = [a for a in spec.actions if a.mode == "absolute" and kind_of(a) in KINDS]
    others = [a for a in spec.actions if a not in places and a.size > 1]
    if len(places) != 1 or others:
        raise SpecMismatchError(
            f"'{spec.name}' is commanded by"
            f" {[f'{a.name} {a.shape} [{a.unit}] {a.mode}' for a in spec.actions]}; demonstrations"
            " are re-targeted by one absolute place of the tool (tool/pose, tool/xyz_yaw or"
            " tool/xy_table), with or without a gripper"
        )
    return places[0]


def can_tilt(action: ActionSpec) -> bool:
    """Whether its commands say a whole attitude."""
    return kind_of(action) == "pose"


def poses_of(spec: ActionSpec | SignalSpec, values: Rows) -> Way:
    """Values ``[n, k]`` of an action or signal as poses ``[n, 7]``."""
    kind, n = kind_of(spec), len(values)
    if kind == "pose":
        return np.array(values, dtype=np.float64)
    heading = values[:, -1] if kind in ("xy_yaw", "xyz_yaw") else np.zeros(n)
    upright = np.zeros((n, 4))
    upright[:, 0], upright[:, 3] = np.cos(heading / 2), np.sin(heading / 2)
    places = np.zeros((n, 3))
    if kind == "xyz_yaw":
        places[:] = values[:, :3]
        upright = quat_multiply(upright, np.broadcast_to(_DOWN, upright.shape))
    elif kind in ("xy", "xy_yaw"):
        places[:, :2] = values[:, :2]
    else:
        raise SpecMismatchError(f"'{spec.name}' {spec.shape} [{spec.unit}] is no place of a thing")
    return np.concatenate([places, upright], axis=1)


def values_of(action: ActionSpec, way: Way) -> Rows:
    """Inverse of :func:`poses_of`; headings go on without a jump from row to row."""
    kind = kind_of(action)
    if kind == "pose":
        return np.array(way, dtype=np.float64)
    if kind == "xy":
        return way[:, :2].copy()
    q = way[:, 3:]
    if kind == "xyz_yaw":
        up = np.array([0.0, -1.0, 0.0, 0.0])
        heading = np.unwrap(quat_heading(quat_multiply(q, np.broadcast_to(up, q.shape))))
        return np.concatenate([way[:, :3], heading[:, None]], axis=1)
    return np.concatenate([way[:, :2], np.unwrap(quat_heading(q))[:, None]], axis=1)


def nearest_turns(heading: Floats, reference: float) -> Floats:
    """``heading [n]`` plus whole turns, so that the first is nearest to ``reference`` [rad]."""
    turn = 2.0 * math.pi
    return heading + turn * round((reference - float(heading[0])) / turn)
