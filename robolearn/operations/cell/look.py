"""Looks at everything of a cell that is connected, before anything moves, and tells it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.device_ids import Ids, device_ids
from hardware.env.real_env import RealEnv


def look_at(env: RealEnv, told: Callable[[str, str], None]) -> dict[str, Ids]:
    """What the devices say they are, by name; ``told`` hears each finding.

    Raises what a device raises that does not answer.
    """
    cell = env.config
    ids = device_ids(cell)
    named = [f"{name} {i.get('serial_number', i['kind'])}" for name, i in ids.items()]
    told("devices", ", ".join(named))
    state = env.supervisor.state()
    joints = np.round(state.joint_position, 2)
    told("robot", f"{state.mode.name.lower()}, joints {joints}")
    priority = "real-time priority" if env.supervisor.real_time else "no real-time priority"
    told("supervisor", f"process {env.supervisor.pid}, {priority}")
    env.trackers.wait(2.0)
    for tracker in env.trackers:
        pose = tracker.latest()
        age_ms = (time.monotonic_ns() - pose.t_ns) * 1e-6
        place = np.round(pose.pose, 3)
        told("tracker", f"{tracker.name} at {place}, {age_ms:.0f} ms old")
    told("limits", limits_text(cell))
    return ids


def limits_text(cell: CellConfig) -> str:
    """The limits of a cell in words."""
    if cell.joints is not None:
        own = cell.joints.limits
        return (
            f"joints {own.low} to {own.high} rad, at most {own.speed} rad/s and {own.acceleration}"
            " rad/s^2"
        )
    if cell.tool is not None:
        own = cell.tool.limits
        return (
            f"tool {own.max_speed} m/s, {own.max_acceleration} m/s^2, {own.max_rotation_speed}"
            f" rad/s, joints {own.max_joint_speed} rad/s, workspace {own.workspace_low} to"
            f" {own.workspace_high} m"
        )
    limits = cell.limits
    return (
        f"tool {limits.max_tool_speed} m/s, {limits.max_tool_acceleration} m/s^2, joints"
        f" {limits.max_joint_speed} rad/s, table {limits.workspace_low} to"
        f" {limits.workspace_high} m"
    )
