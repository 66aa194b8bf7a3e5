"""Reads the newest state of ``ur_rtde``'s receive interface, in this program's words."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hardware.devices.robot import RobotMode

_RUNNING_ROBOT, STOPPED_PROGRAM, RUNNING_PROGRAM = 7, 1, 2
# Of the watchdog's period: what lies between two commands here may be longer there.
_SILENT = 0.8
# How much later than a refusal the state may arrive that explains it [s]. The supervisor looks at
# the state itself meanwhile, and no program moves the arm.
_EXPLAINED_S = 0.05
# By RTDE's safety_mode, whose words are below.
_SAFETY = {
    1: RobotMode.RUNNING,
    2: RobotMode.RUNNING,
    3: RobotMode.PROTECTIVE_STOP,
    5: RobotMode.PROTECTIVE_STOP,
    6: RobotMode.EMERGENCY_STOP,
    7: RobotMode.EMERGENCY_STOP,
}
# The words of the RTDE guide for safety_mode, robot_mode and runtime_state.
_SAFETY_WORDS = {
    1: "NORMAL",
    2: "REDUCED",
    3: "PROTECTIVE_STOP",
    4: "RECOVERY",
    5: "SAFEGUARD_STOP",
    6: "SYSTEM_EMERGENCY_STOP",
    7: "ROBOT_EMERGENCY_STOP",
    8: "VIOLATION",
    9: "FAULT",
}
_ROBOT_WORDS = {
    -1: "NO_CONTROLLER",
    0: "DISCONNECTED",
    1: "CONFIRM_SAFETY",
    2: "BOOTING",
    3: "POWER_OFF",
    4: "POWER_ON",
    5: "IDLE",
    6: "BACKDRIVE",
    7: "RUNNING",
    8: "UPDATING_FIRMWARE",
}
_RUNTIME_WORDS = {
    0: "STOPPING",
    1: "STOPPED",
    2: "PLAYING",
    3: "PAUSING",
    4: "PAUSED",
    5: "RESUMING",
}
# Of joint_mode those that name a joint as the cause.
_JOINT_WORDS = {245: "NOT_RESPONDING", 251: "VIOLATION", 252: "FAULT"}


def read(receive: Any) -> tuple[float, list[float], list[float], RobotMode, list[float]]:
    """Device clock [s], joint angles [rad], speeds [rad/s], mode, force [N] and torque [N m] at the
    tool.
    """
    stamp = float(receive.getTimestamp())
    mode = mode_of(receive.getRobotMode(), receive.getSafetyMode(), receive.getRuntimeState())
    wrench = receive.getActualTCPForce()
    return stamp, receive.getActualQ(), receive.getActualQd(), mode, wrench


def mode_of(robot: int, safety: int, runtime: int = RUNNING_PROGRAM) -> RobotMode:
    """Of RTDE's robot_mode, safety_mode and runtime_state."""
    by_safety = _SAFETY.get(safety, RobotMode.FAULT)
    if by_safety is not RobotMode.RUNNING:
        return by_safety
    if robot != _RUNNING_ROBOT or runtime != RUNNING_PROGRAM:
        return RobotMode.IDLE
    return RobotMode.RUNNING


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long this computer said nothing to an armed watchdog of late, and how long it may."""

    silent_s: float
    watchdog_s: float

    @property
    def tripped(self) -> bool:
        """Whether the watchdog may have heard nothing for longer than it waits."""
        return self.silent_s > _SILENT * self.watchdog_s

    def text(self) -> str:
        """What ended the program of a healthy arm: its watchdog, or somebody else."""
        words = f"this computer was silent for {1e3 * self.silent_s:.0f} ms at most"
        limit = f"the program's watchdog waits for {1e3 * self.watchdog_s:.0f} ms"
        if self.tripped:
            return (
                f"{words}, and {limit}: it was too busy, or it slept; end other programs, give it"
                " real-time priority (docs/safety.md)"
            )
        return (
            f"{words}, while {limit}: the link lost what was said, somebody ended the program"
            " (pendant, dashboard, another client), or it failed; the controller's log says which"
        )


def fault_text(receive: Any, silence: Silence | None = None) -> str:
    """What keeps the arm from following, in the controller's words; "" when nothing does.
    ``silence``: says who ended a program whose end nothing in the controller's state explains.
    """
    robot, safety = int(receive.getRobotMode()), int(receive.getSafetyMode())
    runtime = int(receive.getRuntimeState())
    if mode_of(robot, safety, runtime) is RobotMode.RUNNING:
        return ""
    modes = (
        f"safety mode {_SAFETY_WORDS.get(safety, safety)}, robot mode"
        f" {_ROBOT_WORDS.get(robot, robot)}, program {_RUNTIME_WORDS.get(runtime, runtime)}"
    )
    own = [silence.text()] if silence is not None and _only_program_ended(receive) else []
    return "; ".join([modes, *_bad_joints(receive), *own])


def silenced(receive: Any, silence: Silence | None) -> bool:
    """Whether the watchdog ended the program of a healthy arm, as this computer said nothing."""
    return silence is not None and silence.tripped and _only_program_ended(receive)


def _only_program_ended(receive: Any) -> bool:
    robot, safety = int(receive.getRobotMode()), int(receive.getSafetyMode())
    healthy = robot == _RUNNING_ROBOT and mode_of(robot, safety) is RobotMode.RUNNING
    stopped = int(receive.getRuntimeState()) == STOPPED_PROGRAM
    return healthy and stopped and not _bad_joints(receive)


def _bad_joints(receive: Any) -> list[str]:
    return [
        f"joint {i} {_JOINT_WORDS[mode]}"
        for i, mode in enumerate(receive.getJointMode(), 1)
        if mode in _JOINT_WORDS
    ]


def why_refused(receive: Any) -> str:
    """Waits, on a vendor's thread, for the packet that says what ended the controller's program."""
    until = time.monotonic() + _EXPLAINED_S
    while not (words := fault_text(receive)) and time.monotonic() < until:
        time.sleep(0.002)
    return words or "no program runs on the controller"


def load_of(receive: Any, rated_current_a: Sequence[float] | None) -> float:
    """Largest motor current as a share of what that motor may draw; NaN where that is not known."""
    if rated_current_a is None:
        return math.nan
    pairs = zip(receive.getActualCurrent(), rated_current_a, strict=True)
    return max(abs(a) / b for a, b in pairs)
