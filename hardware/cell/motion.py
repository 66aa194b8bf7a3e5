"""Moves a cell's arm between episodes and says how it is commanded: on a table, or by joints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from robolearn.arms.joint_path import JointLimits
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.limiter import PathLimits, TableMapping
from robolearn.arms.shapes import JointRows, Joints
from robolearn.errors import DataError
from robolearn.geometry import XY, XYRows, inverse
from robolearn.pusht import TABLE_SIZE_M, TOOL, target_action, tool_signal
from robolearn.shapes import AnyFloats
from robolearn.spec import ActionSpec, SignalSpec
from robolearn.types import Condition

JOINT_POSITION = "arm/joint_position"
JOINT_VELOCITY = "arm/joint_velocity"
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

    def clear(self, condition: Condition, q: Joints) -> list[Joints]:
        """Home."""
        del condition, q
        return [self._home]

    def start(self, condition: Condition) -> list[Joints]:
        """The condition's joint positions, or home if it does not name any."""
        wanted = condition.poses.get(JOINT_POSITION)
        if wanted is None:
            return []
        if len(wanted) != len(self._home):
            raise DataError(
                f"condition '{condition.id}': '{JOINT_POSITION}' has {len(wanted)} values, the arm"
                f" has {len(self._home)} joints"
            )
        return [np.array(wanted, dtype=np.float64)]

    def home(self, q: Joints) -> list[Joints]:
        """Home."""
        del q
        return [self._home]


def tool_xy_rows(arm: SerialArm, mapping: TableMapping, q: JointRows) -> XYRows:
    """Tool positions ``[n, 2]`` [m] on the table for many joint positions ``q [n, joints]``.

    ``mapping.xy`` for all rows at once: states come at 500 Hz.
    """
    T = np.broadcast_to(inverse(np.array(mapping.T_base_table)), (len(q), 4, 4))
    T = T @ arm.fk_rows(q)
    return T[:, :2, 3] + mapping.tool_length_m * T[:, :2, 2]
