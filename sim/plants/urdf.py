"""Writes the URDF of the lab's workcell from the arm's published kinematics and inertias.

An engine of its own (Bullet) with numbers of its own: nothing here is read from a scene package,
so that the lab can disagree with the simulator as a real cell would.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
from collections.abc import Generator
from typing import Any

import numpy as np

from robolearn.arms.kinematics import SerialArm
from robolearn.errors import MissingDependencyError
from robolearn.geometry import rot_x
from robolearn.pusht import BAR_PX, STEM_PX

MM = 1e-3
BLOCK_HEIGHT_M = 0.03
# Inner faces of the rim in the table frame [m]: where gym-pusht 0.1.8 has its walls (segments of
# radius 2 px at 5 and 506 px). The block meets a higher rim than the drawn one, under an invisible
# lid that it never touches on the open table: squeezed between tool and rim it neither climbs nor
# tips. The tool passes over the one and through the other.
RIM_LOW_M, RIM_HIGH_M = (0.007, 0.008), (0.504, 0.505)
RIM_HEIGHT_M, RIM_CONTACT_HEIGHT_M, _RIM_WIDTH_M = 0.004, 0.06, 0.03
LID_M = 0.031
_GREY, _DARK, _BLUE = "0.75 0.77 0.80 1", "0.25 0.27 0.30 1", "0.35 0.55 0.75 1"
_TOOL, _BLOCK = "0.15 0.25 0.85 1", "0.45 0.53 0.60 1"
# Radii [m] of the arm's drawn tubes, base to wrist; for the eye only, nothing of it collides.
_TUBES = (0.055, 0.05, 0.042, 0.038, 0.038, 0.032)


@contextlib.contextmanager
def _silence() -> Generator[None]:
    """Drop what C code prints: standard output is the caller's protocol."""
    sys.stdout.flush()
    sys.stderr.flush()
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    saved = [os.dup(fd) for fd in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd in (1, 2):
            os.dup2(nowhere, fd)
        yield
    finally:
        libc.fflush(None)
        for fd, original in zip((1, 2), saved, strict=True):
            os.dup2(original, fd)
            os.close(original)
        os.close(nowhere)


@functools.cache
def bullet() -> Any:
    """The module ``pybullet``; the banner that it prints when imported is dropped."""
    try:
        with _silence():
            import pybullet
    except ImportError as error:
        raise MissingDependencyError(
            f"PyBullet cannot be imported ({error}); install it with 'pip install pybullet'"
        ) from error
    return pybullet


def arm_urdf(arm: SerialArm, tool_length_m: float, tool_radius_m: float) -> str:
    """The arm with a round tool on its flange; link frames are on the joint axes.

    Joint ``i`` turns about z of DH frame ``i``; its child's frame is that axis, so link inertias
    (given in DH frame ``i + 1``) are moved by the row's fixed part ``Tz(d) Tx(a) Rx(alpha)``.
    """
    parts = [
        (
            '<link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"'
            ' ixy="0" ixz="0" iyz="0"/></inertial></link>'
        )
    ]
    parent, origin = "base", ((0.0, 0.0, 0.0), 0.0)
    for i, (link, name) in enumerate(zip(arm.links, arm.joint_names, strict=True)):
        position, roll = origin
        offset = np.array([link.a, 0.0, link.d])
        com = offset + rot_x(link.alpha) @ np.array(link.com)
        ixx, iyy, izz, ixy, ixz, iyz = link.inertia
        parts.append(
            f'<link name="{name}_link"><inertial>{_origin(com, link.alpha)}'
            f'<mass value="{link.mass_kg}"/><inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}"'
            f' ixy="{ixy}" ixz="{ixz}" iyz="{iyz}"/></inertial>'
            f"{_tubes(link.a, link.d, _TUBES[min(i, 5)])}</link>"
        )
        parts.append(
            f'<joint name="{name}" type="revolute"><parent link="{parent}"/>'
            f'<child link="{name}_link"/>{_origin(position, roll)}<axis xyz="0 0 1"/>'
            f'<limit lower="{arm.low[i]}" upper="{arm.high[i]}"'
            f' effort="{arm.max_torque[i]}" velocity="{arm.max_speed[i]}"/></joint>'
        )
        parent, origin = f"{name}_link", ((link.a, 0.0, link.d), link.alpha)
    parts.append(_tool(parent, origin, tool_length_m, tool_radius_m))
    return _robot(arm.name, parts)


def block_urdf(mass_kg: float) -> str:
    """The T: origin in the middle of the bar's far edge at mid height, uniform density."""
    boxes = [block_box(corners) for corners in (BAR_PX, STEM_PX)]
    areas = np.array([w * h for _, (w, h) in boxes])
    masses = mass_kg * areas / areas.sum()
    com = np.append(masses @ np.array([c for c, _ in boxes]) / mass_kg, 0.0)
    inertia = np.zeros(3)
    for m, (c, (w, h)) in zip(masses, boxes, strict=True):
        dx, dy = np.array(c) - com[:2]
        z2 = BLOCK_HEIGHT_M**2
        inertia += m / 12.0 * np.array([h * h + z2, w * w + z2, w * w + h * h])
        inertia += m * np.array([dy * dy, dx * dx, dx * dx + dy * dy])
    shapes = "".join(
        f"<{tag}>{_origin((*c, 0.0), 0.0)}<geometry><box"
        f' size="{w} {h} {BLOCK_HEIGHT_M}"/></geometry>{material}</{tag}>'
        for c, (w, h) in boxes
        for tag, material in (("collision", ""), ("visual", _material("block", _BLOCK)))
    )
    link = (
        f'<link name="block"><inertial>{_origin(com, 0.0)}<mass value="{mass_kg}"/>'
        f'<inertia ixx="{inertia[0]}" iyy="{inertia[1]}" izz="{inertia[2]}"'
        f' ixy="0" ixz="0" iyz="0"/></inertial>{shapes}</link>'
    )
    return _robot("block", [link])


def block_box(
    corners: tuple[tuple[float, float], ...],
) -> tuple[tuple[float, float], tuple[float, ...]]:
    """Centre and size [m] of an axis-aligned rectangle in the block's frame (y up)."""
    points = np.array(corners) * (MM, -MM)
    low, high = points.min(axis=0), points.max(axis=0)
    cx, cy = ((low + high) / 2).tolist()
    return (cx, cy), tuple((high - low).tolist())


def rim_boxes() -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Centre and size [m] of the rim's four bars in the table frame."""
    (x0, y0), (x1, y1), w = RIM_LOW_M, RIM_HIGH_M, _RIM_WIDTH_M
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    along_x, along_y = x1 - x0 + 2 * w, y1 - y0 + 2 * w
    return [
        ((x0 - w / 2, y), (w, along_y)),
        ((x1 + w / 2, y), (w, along_y)),
        ((x, y0 - w / 2), (along_x, w)),
        ((x, y1 + w / 2), (along_x, w)),
    ]


def _tool(
    parent: str, origin: tuple[tuple[float, float, float], float], length_m: float, radius_m: float
) -> str:
    position, roll = origin
    shape = f'<geometry><cylinder radius="{radius_m}" length="{length_m}"/></geometry>'
    centre = _origin((0.0, 0.0, length_m / 2), 0.0)
    # A second drawn cylinder at the tip: the top view cuts the upper half of the tool away.
    tip = _origin((0.0, 0.0, 0.75 * length_m), 0.0)
    half = f'<geometry><cylinder radius="{radius_m}" length="{length_m / 2}"/></geometry>'
    mass, i_z = 0.15, 0.15 * radius_m**2 / 2
    i_x = 0.15 * (3 * radius_m**2 + length_m**2) / 12
    return (
        f'<link name="tool"><inertial>{centre}<mass value="{mass}"/><inertia ixx="{i_x}"'
        f' iyy="{i_x}" izz="{i_z}" ixy="0" ixz="0" iyz="0"/></inertial>'
        f"<collision>{centre}{shape}</collision>"
        f"<visual>{centre}{shape}{_material('tool', _TOOL)}</visual>"
        f"<visual>{tip}{half}{_material('tool', _TOOL)}</visual></link>"
        f'<joint name="flange" type="fixed"><parent link="{parent}"/><child link="tool"/>'
        f"{_origin(position, roll)}</joint>"
    )


def _tubes(a: float, d: float, radius: float) -> str:
    """Visual cylinders along the two straight parts of a DH row: d on z, then a on x."""
    out = _cylinder((0.0, 0.0, d / 2), 0.0, abs(d) + radius, radius * 1.1, _BLUE)
    if abs(a) > 0.05:
        out += _cylinder((a / 2, 0.0, d), math.pi / 2, abs(a), radius, _GREY)
    return out


def _cylinder(
    centre: tuple[float, float, float], pitch: float, length: float, radius: float, colour: str
) -> str:
    x, y, z = centre
    return (
        f'<visual><origin xyz="{x} {y} {z}" rpy="0 {pitch} 0"/><geometry><cylinder'
        f' radius="{radius}" length="{length}"/></geometry>{_material(colour, colour)}</visual>'
    )


def _material(name: str, rgba: str) -> str:
    return f'<material name="{name}"><color rgba="{rgba}"/></material>'


def _origin(xyz: Any, roll: float) -> str:
    x, y, z = (float(v) for v in xyz)
    return f'<origin xyz="{x} {y} {z}" rpy="{roll} 0 0"/>'


def _robot(name: str, parts: list[str]) -> str:
    return f'<robot name="{name}">\n' + "\n".join(parts) + "\n</robot>\n"
