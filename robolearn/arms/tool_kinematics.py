"""Computes where the tip of an arm's tool is in a frame of the cell, and how the joints move it.

Both are asked for several times per tick of a supervisor: they are compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from robolearn.arms.compiled.forms import Chain
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Jacobian, JointRows, Joints
from robolearn.geometry import Pose, PoseRows, inverse


@dataclass(frozen=True, slots=True, eq=False)
class ToolKinematics:
    """``T_base_frame`` and ``T_flange_tip`` ``[4, 4]``: the frame in which poses are told, and the
    tip on the flange.
    """

    arm: SerialArm
    T_base_frame: Pose
    T_flange_tip: Pose
    _T_frame_base: Pose = field(init=False, repr=False)
    # As kernels take it.
    chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        T = inverse(self.T_base_frame)
        object.__setattr__(self, "_T_frame_base", T)
        end = self.arm.flange_in_last @ self.T_flange_tip
        object.__setattr__(self, "chain", self.arm.chain_between(T, end))

    def pose(self, q: Joints) -> Pose:
        """``T_frame_tip [4, 4]`` at joint positions ``q [dof]``."""
        return self.pose_jacobian(q)[0]

    def pose_rows(self, q: JointRows) -> PoseRows:
        """``T_frame_tip [n, 4, 4]`` at many joint positions ``q [n, dof]`` at once."""
        return self._T_frame_base @ self.arm.fk_rows(q) @ self.T_flange_tip

    def pose_jacobian(self, q: Joints) -> tuple[Pose, Jacobian]:
        """``T_frame_tip`` and the tip's Jacobian ``[6, dof]`` in the axes of the frame."""
        from robolearn.arms.compiled.chain import pose_jacobian_at

        return pose_jacobian_at(self.chain, self._own(q))

    def _own(self, q: Joints) -> Joints:
        """In one piece, as kernels are compiled for."""
        own = np.array(q, dtype=np.float64)
        if own.shape != (self.arm.dof,):
            raise ValueError(f"expected {self.arm.dof} joint positions, got {q}")
        return own

    def joints(self, T_frame_tip: Pose, near: Joints) -> Joints:
        """Joint positions ``[dof]`` with the tip there, on the branch of ``near``; DataError where
        there are none.
        """
        return self.arm.ik(self.T_base_frame @ T_frame_tip @ inverse(self.T_flange_tip), near)
