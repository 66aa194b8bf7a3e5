"""Reads the newest state of ``ur_rtde``'s receive interface, in this program's words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hardware.devices.robot import RobotMode

_RUNNING_ROBOT, RUNNING_PROGRAM = 7, 2
# RTDE guide, safety_mode: 1 normal, 2 reduced, 3 protective stop, 4 recovery, 5 safeguard stop,
# 6 system emergency stop, 7 robot emergency stop, 8 violation, 9 fault.
_SAFETY = {
    1: RobotMode.RUNNING,
    2: RobotMode.RUNNING,
    3: RobotMode.PROTECTIVE_STOP,
    5: RobotMode.PROTECTIVE_STOP,
    6: RobotMode.EMERGENCY_STOP,
    7: RobotMode.EMERGENCY_STOP,
}


def read(receive: Any) -> tuple[float, list[float], list[float], RobotMode, float]:
    """Device clock [s], joint angles [rad], speeds [rad/s], mode, force at the tool [N]."""
    stamp = float(receive.getTimestamp())
    mode = mode_of(receive.getRobotMode(), receive.getSafetyMode(), receive.getRuntimeState())
    x, y, z = receive.getActualTCPForce()[:3]
    return stamp, receive.getActualQ(), receive.getActualQd(), mode, math.hypot(x, y, z)


def mode_of(robot: int, safety: int, runtime: int = RUNNING_PROGRAM) -> RobotMode:
    """Of RTDE's robot_mode, safety_mode and runtime_state."""
    by_safety = _SAFETY.get(safety, RobotMode.FAULT)
    if by_safety is not RobotMode.RUNNING:
        return by_safety
    if robot != _RUNNING_ROBOT or runtime != RUNNING_PROGRAM:
        return RobotMode.IDLE
    return RobotMode.RUNNING


def load_of(receive: Any, rated_current_a: Sequence[float] | None) -> float:
    """Largest motor current as a share of what that motor may draw; NaN where that is not known."""
    if rated_current_a is None:
        return math.nan
    pairs = zip(receive.getActualCurrent(), rated_current_a, strict=True)
    return max(abs(a) / b for a, b in pairs)
