"""Reads an arm's action: its value becomes a pose of the tool, or joint positions.

The action's name decides, after the slash: ``pose`` (7: x, y, z, qw, qx, qy, qz), ``xyz_yaw`` (4:
the tool points down, its x axis turned by yaw), ``delta_pose`` (6: metres, then a rotation vector,
in the axes of the action's frame, added to the pose commanded last) and ``joint_position`` (one
value per joint, absolute or relative to the position commanded last).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robolearn.arms.shapes import PoseValues, Values
from robolearn.errors import DataError
from robolearn.geometry import (
    Pose,
    Quaternions,
    pose,
    quat_from_rotation,
    rotation_from_quat,
    rotation_from_rotvec,
)

# A quaternion's norm may be off by this much (it is normalised).
_NORM_SLACK = 0.05


def pose_from_values(values: PoseValues, name: str) -> Pose:
    """``[4, 4]`` from x, y, z, qw, qx, qy, qz; :class:`DataError` unless the norm is about 1."""
    if defect := quaternion_defect(values[3:]):
        raise DataError(f"{name}: {defect}")
    return pose(rotation_from_quat(values[3:]), values[:3])


def quaternion_defect(wxyz: Quaternions) -> str:
    """Why ``wxyz [4]`` names no rotation, "" where it does: its norm is about 1."""
    norm = math.hypot(*wxyz.tolist())
    if abs(norm - 1.0) <= _NORM_SLACK:
        return ""
    return (
        f"the quaternion (qw, qx, qy, qz) = {np.round(wxyz, 4).tolist()} has norm {norm:.3g}; it"
        " must be 1"
    )


def values_from_pose(T: Pose) -> PoseValues:
    """Inverse of :func:`pose_from_values`, ``qw >= 0``."""
    return np.concatenate([T[:3, 3], quat_from_rotation(T[:3, :3])])


def _absolute(value: PoseValues, last: Pose) -> Pose:
    del last
    return pose_from_values(value, "pose")


def _down(value: Values, last: Pose) -> Pose:
    del last
    x, y, z, yaw = value.tolist()
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array(((c, s, 0.0, x), (s, -c, 0.0, y), (0.0, 0.0, -1.0, z), (0.0, 0.0, 0.0, 1.0)))


def _delta(value: Values, last: Pose) -> Pose:
    return pose(rotation_from_rotvec(value[3:]) @ last[:3, :3], last[:3, 3] + value[:3])


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """``target(value, last)``: pose of the tool in the action's frame from the action's value and
    the last target; ``report(T)``: the value that names the pose ``T`` (None: a change names none).
    """

    size: int
    target: Callable[[Values, Pose], Pose]
    report: Callable[[Pose], Values] | None


def _xyz_yaw(T: Pose) -> Values:
    # Turned to point up, a tool keeps its x axis.
    (xx, _, _, x), (xy, _, _, y), (_, _, _, z), _ = T.tolist()
    return np.array((x, y, z, math.atan2(xy, xx)))


TOOL_COMMANDS: dict[str, ToolCommand] = {
    "pose": ToolCommand(7, _absolute, values_from_pose),
    "xyz_yaw": ToolCommand(4, _down, _xyz_yaw),
    "delta_pose": ToolCommand(6, _delta, None),
}
