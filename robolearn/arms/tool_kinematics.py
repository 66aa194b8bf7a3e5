"""Computes where the tip of an arm's tool is in a frame of the cell, and how the joints move it.

Both are asked for several times per tick of a supervisor, mostly at the joint positions that were
asked for before. For arms of the standard Denavit-Hartenberg convention (UR) they are made of plain
numbers, which takes half of numpy's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robolearn.arms.chain import DhRows, Frame, chain_frames, dh_rows, numbers_of
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Jacobian, JointRows, Joints
from robolearn.geometry import Pose, PoseRows, Rotation, inverse


@dataclass(frozen=True, slots=True, eq=False)
class ToolKinematics:
    """``T_base_frame`` and ``T_flange_tip`` ``[4, 4]``: the frame in which poses are told, and the
    tip on the flange.
    """

    arm: SerialArm
    T_base_frame: Pose
    T_flange_tip: Pose
    _T_frame_base: Pose = field(init=False, repr=False)
    _T_last_tip: Pose = field(init=False, repr=False)
    _R: Rotation = field(init=False, repr=False)
    # Of the base and the tip as plain numbers, and of the links.
    _start: Frame = field(init=False, repr=False)
    _end: Frame = field(init=False, repr=False)
    _rows: DhRows | None = field(init=False, repr=False)
    # Angles, frames and tip that were asked for last.
    _last: list[tuple[list[float], list[Frame], Pose]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        T = inverse(self.T_base_frame)
        object.__setattr__(self, "_T_frame_base", T)
        object.__setattr__(self, "_T_last_tip", self.arm.flange_in_last @ self.T_flange_tip)
        # Rows times this are rotated into the frame; contiguous, as ``dot`` likes it.
        object.__setattr__(self, "_R", np.ascontiguousarray(T[:3, :3].T))
        object.__setattr__(self, "_start", numbers_of(T))
        object.__setattr__(self, "_end", numbers_of(self._T_last_tip))
        object.__setattr__(self, "_rows", dh_rows(self.arm))
        object.__setattr__(self, "_last", [([], [], T)])

    def pose(self, q: Joints) -> Pose:
        """``T_frame_tip [4, 4]`` at joint positions ``q [dof]``; not to be written to."""
        if self._rows is not None:
            return self._chain(self._rows, q.tolist())[1]
        return self._T_frame_base.dot(self.arm.frames(q)[-1]).dot(self._T_last_tip)

    def pose_rows(self, q: JointRows) -> PoseRows:
        """``T_frame_tip [n, 4, 4]`` at many joint positions ``q [n, dof]`` at once."""
        return self._T_frame_base @ self.arm.fk_rows(q) @ self.T_flange_tip

    def pose_jacobian(self, q: Joints) -> tuple[Pose, Jacobian]:
        """``T_frame_tip`` (not to be written to) and the tip's Jacobian ``[6, dof]`` in the axes of
        the frame.
        """
        if self._rows is not None:
            chain, tip = self._chain(self._rows, q.tolist())
            return tip, _columns(chain, tip[:3, 3].tolist())
        frames = self.arm.frames(q)
        T = self._T_frame_base.dot(frames[-1]).dot(self._T_last_tip)
        of = frames[1:]
        z = of[:, :3, 2].dot(self._R).T
        r = T[:3, 3:] - self._T_frame_base[:3, 3:] - of[:, :3, 3].dot(self._R).T
        out = np.empty((6, self.arm.dof))
        out[0] = z[1] * r[2] - z[2] * r[1]
        out[1] = z[2] * r[0] - z[0] * r[2]
        out[2] = z[0] * r[1] - z[1] * r[0]
        out[3:] = z
        return T, out

    def _chain(self, rows: DhRows, angles: list[float]) -> tuple[list[Frame], Pose]:
        known, chain, tip = self._last[0]
        if angles != known:
            chain = chain_frames(self._start, rows, angles)
            tip = _tip(chain[-1], self._end)
            # One assignment: another thread sees the old three or the new.
            self._last[0] = angles, chain, tip
        return chain, tip

    def joints(self, T_frame_tip: Pose, near: Joints) -> Joints:
        """Joint positions ``[dof]`` with the tip there, on the branch of ``near``; DataError where
        there are none.
        """
        return self.arm.ik(self.T_base_frame @ T_frame_tip @ inverse(self.T_flange_tip), near)


def _tip(last: Frame, end: Frame) -> Pose:
    """``T_frame_last T_last_tip`` as ``[4, 4]``."""
    ax, ay, az, bx, by, bz, cx, cy, cz, px, py, pz = last
    columns = [
        (u * ax + v * bx + w * cx, u * ay + v * by + w * cy, u * az + v * bz + w * cz)
        for u, v, w in zip(end[0::3], end[1::3], end[2::3], strict=True)
    ]
    (ax, ay, az), (bx, by, bz), (cx, cy, cz), (qx, qy, qz) = columns
    T = np.array(
        (
            (ax, bx, cx, px + qx),
            (ay, by, cy, py + qy),
            (az, bz, cz, pz + qz),
            (0.0, 0.0, 0.0, 1.0),
        )
    )
    T.flags.writeable = False
    return T


def _columns(frames: Sequence[Frame], tip: Sequence[float]) -> Jacobian:
    """Jacobian ``[6, dof]``: joint i turns about z of frame i - 1."""
    x, y, z = tip
    out: list[tuple[float, ...]] = []
    for *_, zx, zy, zz, px, py, pz in frames[:-1]:
        rx, ry, rz = x - px, y - py, z - pz
        out.append((zy * rz - zz * ry, zz * rx - zx * rz, zx * ry - zy * rx, zx, zy, zz))
    return np.array(out).T
