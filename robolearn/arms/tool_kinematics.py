"""Computes where the tip of an arm's tool is in a frame of the cell, and how the joints move it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

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

    def __post_init__(self) -> None:
        T = inverse(self.T_base_frame)
        object.__setattr__(self, "_T_frame_base", T)
        object.__setattr__(self, "_T_last_tip", self.arm.flange_in_last @ self.T_flange_tip)
        # Rows times this are rotated into the frame; contiguous, as ``dot`` likes it.
        object.__setattr__(self, "_R", np.ascontiguousarray(T[:3, :3].T))

    def pose(self, q: Joints) -> Pose:
        """``T_frame_tip [4, 4]`` at joint positions ``q [dof]``."""
        return self._T_frame_base.dot(self.arm.frames(q)[-1]).dot(self._T_last_tip)

    def pose_rows(self, q: JointRows) -> PoseRows:
        """``T_frame_tip [n, 4, 4]`` at many joint positions ``q [n, dof]`` at once."""
        return self._T_frame_base @ self.arm.fk_rows(q) @ self.T_flange_tip

    def pose_jacobian(self, q: Joints) -> tuple[Pose, Jacobian]:
        """``T_frame_tip`` and the tip's Jacobian ``[6, dof]`` in the axes of the frame."""
        frames = self.arm.frames(q)
        T = self._T_frame_base.dot(frames[-1]).dot(self._T_last_tip)
        of = frames[:-1] if self.arm.convention == "standard" else frames[1:]
        z = of[:, :3, 2].dot(self._R).T
        r = T[:3, 3:] - self._T_frame_base[:3, 3:] - of[:, :3, 3].dot(self._R).T
        out = np.empty((6, self.arm.dof))
        out[0] = z[1] * r[2] - z[2] * r[1]
        out[1] = z[2] * r[0] - z[0] * r[2]
        out[2] = z[0] * r[1] - z[1] * r[0]
        out[3:] = z
        return T, out

    def joints(self, T_frame_tip: Pose, near: Joints) -> Joints:
        """Joint positions ``[dof]`` with the tip there, on the branch of ``near``; DataError where
        there are none.
        """
        return self.arm.ik(self.T_base_frame @ T_frame_tip @ inverse(self.T_flange_tip), near)
