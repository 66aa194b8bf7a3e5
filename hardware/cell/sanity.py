"""Checks that a cell that was loaded can be meant: every number, and where the arm rests."""

from __future__ import annotations

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.ranges import check_ranges
from hardware.supervisor.joint_follower import REDUCED_SPEED_M_S, JointSpace
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import ARMS
from robolearn.errors import ConfigError

# Of a tool's tip that rests on the table: rounding of home's angles.
_TOUCH_M = 0.002


def require_sane(cell: CellConfig, where: str) -> None:
    """Raise ConfigError for a number that cannot be meant, a joint-space cell whose tool may be of
    any speed, or a home in the table, in an obstacle, in itself or outside the limits.
    """
    check_ranges(cell, where, lab=cell.lab)
    check_ranges(cell.driver_config(), f"{where}.driver", lab=cell.lab)
    for camera in cell.cameras:
        place = f"{where}.cameras.{camera.stream.name}.driver"
        check_ranges(camera.driver_config(), place, lab=cell.lab)
    if cell.gripper is not None:
        check_ranges(cell.gripper.driver_config(), f"{where}.gripper.driver", lab=cell.lab)
    arm = ARMS.get(cell.arm)
    if cell.joints is not None:
        _joint_space(cell.joints, arm, f"{where}.joints")
    # Builds and checks the recipe, so that what it refuses is told here, not at the first motion.
    recipe = cell.follower()
    if arm is None:
        return
    kind = "joints" if cell.joints is not None else "tool" if cell.tool is not None else "table"
    home, place = cell.rest, f"{where}.{kind}.home"
    _home(arm, np.array(home), place)
    outside = "" if cell.tool is None else recipe.build(500.0).violation(np.array(home), None, 1.0)
    if outside:
        raise ConfigError(
            f"{place}: {outside}; expected the arm to rest inside tool.limits. Check home, frame"
            " and tool_offset_m"
        )
    if (height := _tip_height_m(cell, arm)) is not None and height < -_TOUCH_M:
        raise ConfigError(
            f"{place}: the tool's tip would be {-1e3 * height:.0f} mm inside the table; expected it"
            " above. Check home, tool_length_m and where the table is"
        )
    guard = recipe.guard(float(cell.driver.get("rate_hz", 500.0)))
    strain = None if guard is None else guard.gate(np.array(home))
    if strain is not None:
        between = strain.kind.removesuffix(" [m]")
        raise ConfigError(
            f"{place}: {between} is {1e3 * strain.value:.0f} mm, nearer than"
            f" collision.gate_m ({1e3 * strain.limit:g} mm): the arm could not rest there. Check"
            " home, the table's height and the obstacles"
        )


def _joint_space(space: JointSpace, arm: SerialArm | None, where: str) -> None:
    if arm is not None and space.max_tool_speed is None:
        raise ConfigError(
            f"{where}.max_tool_speed is null, which is for arms without kinematics here; expected a"
            f" limit of the tool's tip [m/s], for example the default, {REDUCED_SPEED_M_S:g}"
            " (reduced speed, ISO 10218-1)"
        )
    q, low, high = (np.array(v) for v in (space.home, space.limits.low, space.limits.high))
    if np.any(q < low) or np.any(q > high):
        raise ConfigError(
            f"{where}.home {list(space.home)} rad is outside the limits, {list(space.limits.low)}"
            f" to {list(space.limits.high)} rad"
        )


def _home(arm: SerialArm, q: np.ndarray[tuple[int], np.dtype[np.float64]], where: str) -> None:
    if len(q) != arm.dof:
        raise ConfigError(f"{where} has {len(q)} angles; {arm.name} has {arm.dof} joints")
    if not arm.within_limits(q):
        raise ConfigError(
            f"{where} {q.tolist()} rad is outside what {arm.name} can reach: {list(arm.low)} to"
            f" {list(arm.high)} rad"
        )


def _tip_height_m(cell: CellConfig, arm: SerialArm) -> float | None:
    """Of the tool's tip at home over the table [m]; None where no table is described."""
    if cell.table is not None:
        return float(cell.table.mapping().tip(arm, np.array(cell.table.home))[2, 3])
    if cell.tool is not None:
        return float(cell.tool.kinematics(arm).pose(np.array(cell.tool.home))[2, 3])
    space = cell.joints
    if space is None or space.table_height_m is None:
        return None
    T = arm.fk(np.array(space.home))
    return float(T[2, 3] + space.tool_length_m * T[2, 2]) - space.table_height_m
