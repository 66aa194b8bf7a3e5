"""Sends set-points of a UR in tool space: ``servoL`` with the pose that belongs to checked joints.

The supervisor checks joints. With ``servoL`` the controller finds the joints itself: near those
where the arm is, and with the arm's own calibration, so that the tool and not the joints are exact.
What keeps that safe is here: the arm must be the one whose kinematics are known, poses near a
singularity (where the nearest solution jumps) are refused, and the joints that the controller
takes must stay near the ones that were checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hardware.supervisor.checks import FollowingCheck
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.errors import RobotConnectionError, RobotError
from robolearn.geometry import Pose, pose, pose_error, rotation_from_rotvec, rotvec_from_rotation

# A calibrated arm differs from its data sheet by some millimetres; another model by centimetres.
_OTHER_ARM_M, _OTHER_ARM_RAD = 0.015, 0.03
# Smallest singular value of the flange's Jacobian (metres and radians together).
_SINGULAR = 0.05
# The controller's joints lag behind by its look-ahead time; its calibration is worth 0.02 rad.
_ASTRAY_RAD, _WINDOW_S = 0.05, 0.5


class ToolServo:
    """Poses ``[x, y, z, rx, ry, rz]`` [m, rotation vector] of the controller's tool centre point,
    ``T_flange_tool``, in the base frame.
    """

    def __init__(self, arm: SerialArm, T_flange_tool: Pose, rate_hz: float) -> None:
        self._arm, self._T_flange_tool = arm, T_flange_tool
        self._check = FollowingCheck(arm.dof, rate_hz, _WINDOW_S)

    @classmethod
    def of(cls, control: Any, arm: SerialArm, q: Joints, rate_hz: float) -> ToolServo:
        """Ask the controller, whose arm stands at ``q [n]``, for its tool and its kinematics.

        Raises RobotConnectionError when the arm is another one.
        """
        T_flange_tool = _matrix(control.getTCPOffset())
        theirs = _matrix(control.getForwardKinematics())
        off_m, off_rad = pose_error(arm.fk(q) @ T_flange_tool, theirs)
        if not (off_m <= _OTHER_ARM_M and off_rad <= _OTHER_ARM_RAD):
            raise RobotConnectionError(
                f"the controller's tool is {1e3 * off_m:.0f} mm and {off_rad:.3f} rad from where"
                f" a {arm.name} has it: 'arm' in the driver's config is another arm. Name the right"
                " one, or use 'servo: joint'"
            )
        made = cls(arm, T_flange_tool, rate_hz)
        made.reset(q)
        return made

    def reset(self, q: Joints) -> None:
        """The arm stands at ``q``, whoever brought it there."""
        self._check.reset(q)

    def pose(self, q: Joints) -> list[float]:
        """What ``servoL`` gets for checked joints ``q``. Raises RobotError near a singularity."""
        T, jacobian = self._arm.fk_jacobian(q)
        least = float(np.linalg.svd(jacobian, compute_uv=False)[-1])
        if least < _SINGULAR:
            raise RobotError(
                f"joints {np.round(q, 3).tolist()} are near a singularity ({least:.3f} of"
                f" {_SINGULAR}), where the controller might take others; use 'servo: joint' there"
            )
        self._check.sent(q)
        T = T @ self._T_flange_tool
        return [*T[:3, 3].tolist(), *rotvec_from_rotation(T[:3, :3]).tolist()]

    def astray(self, q_controller: Joints) -> str:
        """What is wrong with the joints that the controller aims at, "" when nothing is."""
        error = self._check.error(q_controller)
        if error <= _ASTRAY_RAD:
            return ""
        return f"the controller aims at joints {error:.3f} rad from those that were checked"


def _matrix(vector: Any) -> Pose:
    values = np.array(vector, dtype=np.float64)
    return pose(rotation_from_rotvec(values[3:]), values[:3])
