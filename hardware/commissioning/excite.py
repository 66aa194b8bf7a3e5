"""Moves a cell's arm along planned joint motions under its supervisor, and records what it was told
and where it went.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_POSITION
from hardware.env.real_env import RealEnv
from hardware.supervisor.joint_follower import JointSpace
from robolearn.arms.joint_path import JointLimits
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import named_arm
from robolearn.arms.shapes import JointRows
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import AnyFloats, OwnFloats
from robolearn.types import Command, Condition

Sent = Float64[NDArray[np.float64], " sent"]
SentRows = Float64[NDArray[np.float64], "sent j"]
Measured = Float64[NDArray[np.float64], " measured"]
MeasuredRows = Float64[NDArray[np.float64], "measured j"]

RATE_HZ = 50.0
# Room around home [rad], and the hardest that a joint is asked to accelerate [rad/s^2].
_ROOM_RAD, _GENTLE_RAD_S2 = 0.9, 15.0
# So high over the table a tool has room to move [m].
_LIFT_M = 0.2
# [rad/s] of the law that follows targets: above the motions' band.
_NATURAL_FREQUENCY = 40.0


@dataclass(frozen=True, slots=True)
class Excited:
    """Set-points as sent ``[m, j]`` [rad] and measured joints ``[n, j]``, at their times [s]."""

    sent_t_s: Sent
    sent: SentRows
    measured_t_s: Measured
    measured: MeasuredRows


def excitation_cell(
    cell: CellConfig, room_rad: float = _ROOM_RAD, last_rad: float = _ROOM_RAD
) -> CellConfig:
    """The cell commanded in joint space, high over its table, within its own limits; without
    cameras, trackers and gripper. :class:`ConfigError` for an arm whose kinematics are not known.

    A cell that is not commanded in joint space may go ``room_rad`` to both sides of home with every
    joint [rad], ``last_rad`` with the last one.
    """
    if not cell.arm:
        raise ConfigError(f"cell '{cell.name}': an arm whose kinematics are not known (arm: '')")
    space = cell.joints
    if space is None:
        space = _over_table(cell, named_arm(cell.arm), room_rad, last_rad)
    return dataclasses.replace(
        cell,
        table=None,
        tool=None,
        joints=space,
        rate_hz=RATE_HZ,
        trackers={},
        cameras=(),
        goals=(),
        gripper=None,
        align="",
        wrench=False,
        command_latency_s=0.0,
    )


def _over_table(cell: CellConfig, arm: SerialArm, room_rad: float, last_rad: float) -> JointSpace:
    if cell.table is not None:
        mapping, limits = cell.table.mapping(), cell.limits
        low, high = limits.workspace_low, limits.workspace_high
        middle = np.array([0.5 * (a + b) for a, b in zip(low, high, strict=True)])
        flange = mapping.flange(middle, max(_LIFT_M, cell.lift_m))
        home = arm.ik(flange, np.array(mapping.home))
        speed, acceleration = limits.max_joint_speed, limits.max_joint_acceleration
        tool_speed, length_m = limits.max_tool_speed, cell.table.tool_length_m
        height_m = cell.table.origin_m[2]
    elif cell.tool is not None:
        home, own = np.array(cell.tool.home), cell.tool.limits
        speed, acceleration, tool_speed = (
            *(own.max_joint_speed, own.max_joint_acceleration, own.max_speed),
        )
        length_m, height_m = cell.tool.tool_offset_m[2], cell.tool.frame.origin_m[2]
    else:
        raise ConfigError(f"cell '{cell.name}' has neither 'table', 'joints' nor 'tool'")
    room = np.array([*[room_rad] * (arm.dof - 1), last_rad])
    around = JointLimits(
        low=tuple(np.maximum(home - room, np.array(arm.low) + 0.05).tolist()),
        high=tuple(np.minimum(home + room, np.array(arm.high) - 0.05).tolist()),
        speed=tuple(min(v, speed) for v in arm.max_speed),
        acceleration=(min(acceleration, _GENTLE_RAD_S2),) * arm.dof,
    )
    return JointSpace(
        tuple(home.tolist()),
        around,
        _NATURAL_FREQUENCY,
        table_height_m=height_m,
        tool_length_m=length_m,
        max_tool_speed=tool_speed,
    )


def excite(
    env: RealEnv, q: JointRows, rate_hz: float, progress: Callable[[], object] = lambda: None
) -> Excited:
    """Follow set-points ``q [n, j]`` [rad] at ``rate_hz`` from home under the supervisor, record,
    and hold; ``progress()`` is called every tick.

    Raises :class:`DataError` when the supervisor intervened: the motion is not what was planned.
    """
    env.reset(Condition("home", 0, {}), np.random.default_rng(0))
    every = rate_hz / env.spec.rate_hz
    times: dict[str, list[OwnFloats]] = {"sent": [], "measured": []}
    rows: dict[str, list[AnyFloats]] = {"sent": [], "measured": []}
    for seq in range(math.floor((len(q) - 1) / every) + 1):
        observation = env.observe()
        target = q[min(round((seq + 1) * every), len(q) - 1)].copy()
        env.apply(Command(seq, {JOINT_POSITION: target}, observation.t_ns, "identification"))
        env.advance()
        drained = env.drain()
        block = drained.signals[JOINT_POSITION]
        times["sent"].append(drained.sent.t_ns * 1e-9)
        rows["sent"].append(drained.sent.action[JOINT_POSITION])
        times["measured"].append(block.t_ns * 1e-9)
        rows["measured"].append(block.value)
        progress()
    events = [e.text() for e in env.interventions if e.cause.latches]
    env.hold()
    if events:
        raise DataError(f"the supervisor ended the motion: {events[0]}")
    return Excited(
        np.concatenate(times["sent"]),
        np.concatenate(rows["sent"]),
        np.concatenate(times["measured"]),
        np.concatenate(rows["measured"]),
    )
