"""Tightens a cell's limits for one run; the cell's config alone says how far they go."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.errors import ConfigError

if TYPE_CHECKING:
    # The options of a command are made of this class: its help waits for no kinematics.
    from hardware.cell.config import CellConfig
    from hardware.supervisor.joint_follower import JointSpace
    from hardware.supervisor.tool_follower import ToolSpace
    from robolearn.arms.limiter import PathLimits


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Tighter limits of one run; a wider value than the robot's config is refused."""

    # Tighter limit for this run [m/s].
    max_tool_speed: float | None = None
    # Tighter limit for this run [rad/s].
    max_joint_speed: float | None = None
    # Tighter limit for this run [N].
    max_tool_force_n: float | None = None
    # Tighter limit for this run, of a tool on a table or in space [m/s^3].
    max_tool_jerk: float | None = None

    def on(self, cell: CellConfig) -> CellConfig:
        """The cell with these limits; :class:`ConfigError` for one that is wider."""
        own = cell.supervisor
        force = _tighter("max_tool_force_n", self.max_tool_force_n, own.max_tool_force_n)
        supervisor = dataclasses.replace(own, max_tool_force_n=force)
        cell = dataclasses.replace(cell, supervisor=supervisor)
        if cell.tool is not None:
            return dataclasses.replace(cell, tool=_tool(cell.tool, self))
        if cell.joints is None:
            return dataclasses.replace(cell, limits=_path(cell.limits, self))
        return dataclasses.replace(cell, joints=_joints(cell.joints, self))


def _tool(own: ToolSpace, run: RunLimits) -> ToolSpace:
    limits = own.limits
    slower = dataclasses.replace(
        limits,
        max_speed=_tighter("max_tool_speed", run.max_tool_speed, limits.max_speed),
        max_joint_speed=_tighter("max_joint_speed", run.max_joint_speed, limits.max_joint_speed),
        max_jerk=_jerk(run.max_tool_jerk, limits.max_jerk),
    )
    return dataclasses.replace(own, limits=slower)


def _path(own: PathLimits, run: RunLimits) -> PathLimits:
    return dataclasses.replace(
        own,
        max_tool_speed=_tighter("max_tool_speed", run.max_tool_speed, own.max_tool_speed),
        max_joint_speed=_tighter("max_joint_speed", run.max_joint_speed, own.max_joint_speed),
        max_tool_jerk=_jerk(run.max_tool_jerk, own.max_tool_jerk),
    )


def _jerk(wanted: float | None, own: float | None) -> float | None:
    if wanted is None:
        return own
    return _tighter("max_tool_jerk", wanted, math.inf if own is None else own)


def _joints(own: JointSpace, run: RunLimits) -> JointSpace:
    limits, tool = own.limits, own.max_tool_speed
    if run.max_tool_speed is not None:
        tool = _tighter("max_tool_speed", run.max_tool_speed, math.inf if tool is None else tool)
    if run.max_tool_jerk is not None:
        raise ConfigError(
            "max_tool_jerk is a limit of a cell with 'table' or 'tool'; the joints' jerk is"
            " robot.joints.limits"
        )
    turn = _tighter("max_joint_speed", run.max_joint_speed, max(limits.speed))
    slower = dataclasses.replace(limits, speed=tuple(min(v, turn) for v in limits.speed))
    return dataclasses.replace(own, limits=slower, max_tool_speed=tool)


def _tighter(name: str, wanted: float | None, own: float) -> float:
    if wanted is None:
        return own
    if not 0.0 < wanted <= own:
        raise ConfigError(
            f"{name}: a run may only tighten the robot's own limit; expected above 0 and at most"
            f" {own:g}, got {wanted:g}. Change the robot's config if the arm may do more"
        )
    return wanted
