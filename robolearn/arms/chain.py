"""Computes the frames of an arm's links in plain numbers, which takes half of numpy's time.

For arms of the standard Denavit-Hartenberg convention (UR), once or more per tick of a supervisor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from robolearn.arms.kinematics import SerialArm
from robolearn.geometry import Pose

# The columns of a pose without its last row: x, y and z axis, place.
Frame = tuple[float, ...]
# Of each link a, d and alpha's cosine and sine.
DhRows = tuple[tuple[float, float, float, float], ...]

BASE: Frame = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def dh_rows(arm: SerialArm) -> DhRows | None:
    """Of an arm of the standard convention; None for another, whose frames are numpy's."""
    if arm.convention != "standard":
        return None
    return tuple((k.a, k.d, math.cos(k.alpha), math.sin(k.alpha)) for k in arm.links)


def numbers_of(T: Pose) -> Frame:
    """``T [4, 4]`` as a frame."""
    return tuple(T[:3].T.ravel().tolist())


def chain_frames(start: Frame, rows: DhRows, angles: Sequence[float]) -> list[Frame]:
    """Frames of the base and of every link: ``A = Rz(q) Tz(d) Tx(a) Rx(alpha)``, one by one."""
    out = [start]
    xx, xy, xz, yx, yy, yz, zx, zy, zz, px, py, pz = start
    for (a, d, ca, sa), angle in zip(rows, angles, strict=True):
        c, s = math.cos(angle), math.sin(angle)
        # y after the turn about z; the turn about the new x comes after it.
        nx, ny, nz = c * yx - s * xx, c * yy - s * xy, c * yz - s * xz
        xx, xy, xz = c * xx + s * yx, c * xy + s * yy, c * xz + s * yz
        px, py, pz = px + a * xx + d * zx, py + a * xy + d * zy, pz + a * xz + d * zz
        yx, yy, yz = ca * nx + sa * zx, ca * ny + sa * zy, ca * nz + sa * zz
        zx, zy, zz = ca * zx - sa * nx, ca * zy - sa * ny, ca * zz - sa * nz
        out.append((xx, xy, xz, yx, yy, yz, zx, zy, zz, px, py, pz))
    return out
