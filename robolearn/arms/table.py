"""Says where a table stands in front of an arm, and how the arm holds its tool over it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError
from robolearn.geometry import XY, Pose, Rotation, inverse, pose, rot_x, rot_z


@dataclass(frozen=True, slots=True)
class TableMapping:
    """Where the table is, and how the arm holds the tool over it: pointing down, fixed heading.

    ``T_base_table``: rows of the pose of the table frame (x right, y up, z up, origin at the
    picture's lower-left corner) in the arm's base frame. The tool axis is the flange's z axis.
    ``home`` [rad] is a configuration in the plane; it chooses the branch of the kinematics.
    """

    T_base_table: tuple[tuple[float, float, float, float], ...]
    # [m] from the flange to the tool's tip.
    tool_length_m: float
    # [m] of the tool's tip above the table.
    tip_height_m: float
    # [rad] heading of the flange about the table's z axis.
    tool_yaw: float
    home: tuple[float, ...]

    def __post_init__(self) -> None:
        T = np.array(self.T_base_table, dtype=np.float64)
        if T.shape != (4, 4) or not np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-6):
            raise ConfigError("table mapping: T_base_table must be a rigid pose of 4 rows of 4")

    @classmethod
    def level(
        cls,
        origin_m: tuple[float, float, float],
        yaw: float,
        *,
        tool_length_m: float,
        tip_height_m: float,
        tool_yaw: float,
        home: tuple[float, ...],
    ) -> TableMapping:
        """A level table: the position of its origin [m] and its heading [rad] in the base frame."""
        rows = pose(rot_z(yaw), origin_m).tolist()
        return cls(
            T_base_table=tuple((r[0], r[1], r[2], r[3]) for r in rows),
            tool_length_m=tool_length_m,
            tip_height_m=tip_height_m,
            tool_yaw=tool_yaw,
            home=home,
        )

    def flange(self, xy: Any, lift_m: float = 0.0) -> Pose:
        """``T_base_flange [4, 4]`` with the tool at ``xy [2]`` [m] of the table, ``lift_m`` up."""
        over_origin, axes = _flange_over_table(self)
        T = over_origin.copy()
        T[:3, 3] += axes @ (float(xy[0]), float(xy[1]), lift_m)
        return T

    def tip(self, arm: SerialArm, q: Joints) -> Pose:
        """Pose ``[4, 4]`` of the tool's tip in the table frame, axes as the flange."""
        T = inverse(np.array(self.T_base_table)) @ arm.fk(q)
        T[:3, 3] += T[:3, 2] * self.tool_length_m
        return T

    def xy(self, arm: SerialArm, q: Joints) -> XY:
        """Tool position ``[2]`` [m] in the table frame at joint positions ``q``."""
        return self.tip(arm, q)[:2, 3]

    def joints(self, arm: SerialArm, xy: Any, near: Joints | None = None) -> Joints:
        """Joint positions [rad] with the tool at ``xy``, on the branch of ``home`` (``near``)."""
        return arm.ik(self.flange(xy), np.array(self.home) if near is None else near)


@functools.lru_cache(maxsize=16)
def _flange_over_table(mapping: TableMapping) -> tuple[Pose, Rotation]:
    """``T_base_flange`` with the tool over the table's origin, and the table's axes ``[3, 3]``."""
    height = mapping.tip_height_m + mapping.tool_length_m
    T_table_flange = pose(rot_z(mapping.tool_yaw) @ rot_x(math.pi), (0.0, 0.0, height))
    T_base_table = np.array(mapping.T_base_table)
    over_origin, axes = T_base_table @ T_table_flange, T_base_table[:3, :3].copy()
    over_origin.setflags(write=False)
    axes.setflags(write=False)
    return over_origin, axes
