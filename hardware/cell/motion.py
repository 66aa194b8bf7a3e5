"""Moves a cell's arm between episodes and says how it is commanded: on a table, by joints, by its
tool's pose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from robolearn.arms.joint_path import JointLimits
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.limiter import PathLimits, TableMapping
from robolearn.arms.shapes import JointRows, Joints
from robolearn.arms.slowed_words import slowed_words
from robolearn.arms.slowing import Slowed
from robolearn.arms.tool_commands import pose_from_values
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.errors import DataError
from robolearn.geometry import XY, Pose, Poses, XYRows, inverse, quat_from_rotation, quat_heading
from robolearn.pusht import TABLE_SIZE_M, TOOL, target_action, tool_signal
from robolearn.shapes import AnyFloats
from robolearn.spec import ActionSpec, SignalSpec
from robolearn.types import Condition

JOINT_POSITION = "arm/joint_position"
JOINT_VELOCITY = "arm/joint_velocity"
# What the arm was told, after all limits.
JOINT_SETPOINT = "arm/joint_setpoint"
TOOL_POSE, WRENCH = "tool/pose", "tool/wrench"
# As in the scenes; policies move between them and cells.
POSE_UNIT = "m, quaternion wxyz"
HEADING = 3.2
# A lift in one go would bend the tool's path sideways; a first short one keeps it straight.
_FIRST_LIFT_M = 0.035


@runtime_checkable
class CellMotion(Protocol):
    """What differs between cells: the action, signals made of joint states, and the ways between
    episodes (joint waypoints [rad] of slow guided moves).
    """

    @property
    def action(self) -> ActionSpec:
        """The one action signal of the cell."""
        ...

    def signals(self, rate_hz: float) -> tuple[SignalSpec, ...]:
        """Signals besides the joints', which :meth:`derived` fills."""
        ...

    def derived(self, q: JointRows) -> Mapping[str, AnyFloats]:
        """Their values ``[n, ...]`` at joint positions ``q [n, joints]``."""
        ...

    def slowed(self, slowed: Slowed, q: Joints) -> str:
        """What slows the arm at ``q [joints]`` [rad], in words."""
        ...

    def clear(self, condition: Condition, q: Joints) -> list[Joints]:
        """From ``q`` to where the arm is out of the way while objects are placed."""
        ...

    def start(self, condition: Condition) -> list[Joints]:
        """From there to the start of the condition. DataError when it does not say one."""
        ...

    def home(self, q: Joints) -> list[Joints]:
        """From ``q`` to where the arm rests."""
        ...


class TableMotion:
    """A tool on a table: lifted straight up, moved over the start, lowered."""

    def __init__(
        self,
        arm: SerialArm,
        mapping: TableMapping,
        limits: PathLimits,
        *,
        lift_m: float,
        rate_hz: float,
    ) -> None:
        self._arm, self._mapping, self._limits, self._lift_m = arm, mapping, limits, lift_m
        self._action = target_action(limits.workspace_low, limits.workspace_high, rate_hz)

    @property
    def action(self) -> ActionSpec:
        """Where the tool should be on the table."""
        return self._action

    def signals(self, rate_hz: float) -> tuple[SignalSpec, ...]:
        """The tool on the table."""
        return (tool_signal(rate_hz),)

    def derived(self, q: JointRows) -> Mapping[str, AnyFloats]:
        """Tool positions."""
        return {TOOL: tool_xy_rows(self._arm, self._mapping, q)}

    def slowed(self, slowed: Slowed, q: Joints) -> str:
        """What slows it."""
        del q
        return slowed.words

    def clear(self, condition: Condition, q: Joints) -> list[Joints]:
        """Up, and over the start."""
        return [*self._lift(q), self._joints(self._start_xy(condition), self._lift_m)]

    def start(self, condition: Condition) -> list[Joints]:
        """Down."""
        xy = self._start_xy(condition)
        return [self._joints(xy, _FIRST_LIFT_M), self._joints(xy, 0.0)]

    def home(self, q: Joints) -> list[Joints]:
        """Up, and over the middle of the table."""
        middle = np.full(2, 0.5 * TABLE_SIZE_M)
        return [*self._lift(q), self._joints(middle, self._lift_m)]

    def _start_xy(self, condition: Condition) -> XY:
        if TOOL not in condition.poses:
            raise DataError(
                f"condition '{condition.id}' has no start of '{TOOL}'; it has"
                f" {sorted(condition.poses)}"
            )
        return np.array(condition.poses[TOOL], dtype=np.float64)

    def _joints(self, xy: XY, lift_m: float) -> Joints:
        return self._arm.ik(self._mapping.flange(xy, lift_m), np.array(self._mapping.home))

    def _lift(self, q: Joints) -> list[Joints]:
        """Straight up if the tool is in its plane over the table, nothing if it is high already."""
        tip = self._mapping.tip(self._arm, q)[:3, 3]
        height = float(tip[2]) - self._mapping.tip_height_m
        if height > 0.5 * self._lift_m:
            return []
        xy = np.clip(tip[:2], self._limits.workspace_low, self._limits.workspace_high)
        return [self._joints(xy, lift) for lift in (_FIRST_LIFT_M, self._lift_m)]


class JointMotion:
    """Joint targets; objects are placed while the arm stands at home."""

    def __init__(self, limits: JointLimits, home: tuple[float, ...], rate_hz: float) -> None:
        self._home = np.array(home)
        self._action = ActionSpec(
            JOINT_POSITION,
            (len(home),),
            "rad",
            rate_hz,
            low=tuple(limits.low),
            high=tuple(limits.high),
        )

    @property
    def action(self) -> ActionSpec:
        """Joint positions."""
        return self._action

    def signals(self, rate_hz: float) -> tuple[SignalSpec, ...]:
        """None besides the joints'."""
        del rate_hz
        return ()

    def derived(self, q: JointRows) -> Mapping[str, AnyFloats]:
        """Nothing."""
        del q
        return {}

    def slowed(self, slowed: Slowed, q: Joints) -> str:
        """What slows it."""
        del q
        return slowed.words

    def clear(self, condition: Condition, q: Joints) -> list[Joints]:
        """Home."""
        del condition, q
        return [self._home]

    def start(self, condition: Condition) -> list[Joints]:
        """The condition's joint positions, or home if it does not name any."""
        wanted = condition.poses.get(JOINT_POSITION)
        if wanted is None:
            return []
        return [_joint_start(condition, wanted, len(self._home))]

    def home(self, q: Joints) -> list[Joints]:
        """Home."""
        del q
        return [self._home]


class ToolMotion:
    """A tool's pose in space: lifted straight up, home, over the start, lowered."""

    def __init__(
        self,
        kinematics: ToolKinematics,
        limits: ToolPathLimits,
        home: tuple[float, ...],
        *,
        action: str,
        lift_m: float,
        rate_hz: float,
    ) -> None:
        self._kinematics, self._limits, self._lift_m = kinematics, limits, lift_m
        self._home = np.array(home)
        low, high = limits.workspace_low, limits.workspace_high
        heading = action != TOOL_POSE
        self._action = ActionSpec(
            action,
            (4 if heading else 7,),
            "m, m, m, rad" if heading else POSE_UNIT,
            rate_hz,
            frame="table",
            low=(*low, -HEADING) if heading else (*low, -1.0, -1.0, -1.0, -1.0),
            high=(*high, HEADING) if heading else (*high, 1.0, 1.0, 1.0, 1.0),
        )

    @property
    def action(self) -> ActionSpec:
        """Where the tool should be, as in the scenes."""
        return self._action

    def signals(self, rate_hz: float) -> tuple[SignalSpec, ...]:
        """Where the tool is, as in the scenes."""
        return (SignalSpec(TOOL_POSE, (7,), POSE_UNIT, rate_hz, frame="table"),)

    def derived(self, q: JointRows) -> Mapping[str, AnyFloats]:
        """Poses of the tool."""
        return {TOOL_POSE: tool_pose_rows(self._kinematics, q)}

    def slowed(self, slowed: Slowed, q: Joints) -> str:
        """What slows it, and the joint that it is about."""
        return slowed_words(slowed, self._kinematics, q)

    def clear(self, condition: Condition, q: Joints) -> list[Joints]:
        """Up, and home."""
        del condition
        return self.home(q)

    def start(self, condition: Condition) -> list[Joints]:
        """The condition's joint positions, or down onto the tool's pose; home where it names
        neither.
        """
        wanted, at = condition.poses.get(JOINT_POSITION), condition.poses.get(TOOL_POSE)
        if wanted is not None and at is not None:
            raise DataError(
                f"condition '{condition.id}' names '{JOINT_POSITION}' and '{TOOL_POSE}' of the arm"
                " to start from; give one of them"
            )
        if wanted is not None:
            return [_joint_start(condition, wanted, len(self._home))]
        if at is None:
            return []
        if len(at) != 7:
            raise DataError(
                f"condition '{condition.id}': '{TOOL_POSE}' has {len(at)} values; expected x, y, z"
                " and qw, qx, qy, qz"
            )
        return self._lowered(pose_from_values(np.array(at, dtype=np.float64), TOOL_POSE))

    def home(self, q: Joints) -> list[Joints]:
        """Up, and home."""
        return [*self._lifted(q), self._home]

    def _lowered(self, T: Pose) -> list[Joints]:
        over = self._kinematics.joints(_above(T, self._lift_m), self._home)
        low = self._kinematics.joints(_above(T, min(_FIRST_LIFT_M, self._lift_m)), over)
        return [over, low, self._kinematics.joints(T, low)]

    def _lifted(self, q: Joints) -> list[Joints]:
        """Straight up, unless the tool is high already or there is no such way."""
        T = self._kinematics.pose(q)
        home_m = float(self._kinematics.pose(self._home)[2, 3])
        left = min(self._lift_m, home_m - float(T[2, 3]))
        lifts = [v for v in (_FIRST_LIFT_M, left) if v <= left]
        ways: list[Joints] = []
        for lift in lifts:
            try:
                q = self._kinematics.joints(_above(T, lift), q)
            except DataError:
                # At the edge of its reach the arm has no way straight up; the guided move that
                # follows is checked as a whole.
                break
            ways.append(q)
        return ways


def _above(T: Pose, lift_m: float) -> Pose:
    out = T.copy()
    out[2, 3] += lift_m
    return out


def _joint_start(condition: Condition, wanted: Sequence[float], joints: int) -> Joints:
    if len(wanted) != joints:
        raise DataError(
            f"condition '{condition.id}': '{JOINT_POSITION}' has {len(wanted)} values, the arm has"
            f" {joints} joints"
        )
    return np.array(wanted, dtype=np.float64)


def action_rows(action: str, signals: Mapping[str, AnyFloats]) -> AnyFloats:
    """What was measured, told as the cell's action is ``[n, w]``: its own signal, or the place and
    heading of ``tool/pose [n, 7]``.
    """
    if action in signals:
        return signals[action]
    poses = signals[TOOL_POSE]
    return np.concatenate([poses[:, :3], quat_heading(poses[:, 3:])[:, None]], axis=1)


def tool_pose_rows(kinematics: ToolKinematics, q: JointRows) -> Poses:
    """``tool/pose [n, 7]`` for many joint positions ``q [n, joints]``; of the two quaternions the
    one with ``qx >= 0``, as in the scenes: a tool that points down turns without a jump.
    """
    T = kinematics.pose_rows(q)
    quat = quat_from_rotation(T[:, :3, :3])
    quat = np.where(quat[:, 1:2] < 0.0, -quat, quat)
    return np.concatenate([T[:, :3, 3], quat], axis=1)


def tool_xy_rows(arm: SerialArm, mapping: TableMapping, q: JointRows) -> XYRows:
    """Tool positions ``[n, 2]`` [m] on the table for many joint positions ``q [n, joints]``.

    ``mapping.xy`` for all rows at once: states come at 500 Hz.
    """
    T = np.broadcast_to(inverse(np.array(mapping.T_base_table)), (len(q), 4, 4))
    T = T @ arm.fk_rows(q)
    return T[:, :2, 3] + mapping.tool_length_m * T[:, :2, 2]
