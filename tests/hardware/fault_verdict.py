"""When the arm must be at rest after a fault, from the config alone, how a bad command must end,
and what excuses a trial.

The floor is "at rest within 100 ms, plus deceleration". The deceleration of a trial follows from
the speed that was commanded around the fault:

* an agent's fault: the supervisor brakes by a fixed share of the limit on acceleration (and fills
  its window where jerk is limited); what has reached the controller must stand still after that.
  The servos follow with the smoothing of servoJ that the driver's config asks for;
* a link's fault: the set-points stop in the middle of a guided move, or pause, or the controller
  ends its program on its own ramp; the slowest of the three counts.

All times are those of the emulated controller. A machine that holds it up is noticed by its own
ticks (event ``stall``, more than 20 ms without one); :func:`excused` says what that may explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hardware.cell.config import CellConfig
from hardware.emulators.lab.admin import LabLog
from hardware.emulators.ur.motion import REFERENCE_GAIN, MotionLimits
from hardware.supervisor.guided_move import RAMP_S
from hardware.supervisor.link import Cause, Mode
from robolearn.arms.limiter import tool_limits
from robolearn.arms.models import UR5E
from tests.hardware.real_cell import largest_speed
from tests.hardware.workcell import FOLLOWER, WORKCELL

NOTICE_S, TOLD_S = 0.1, 0.5
# The emulated controller calls an arm at rest below this; its states leave once per period.
REST_RAD_S, PERIOD_S = 0.01, 0.002
# SetpointGenerator.hold brakes by 0.7 of 0.98 of the acceleration that the limits allow.
BRAKE_SHARE = 0.68
# A stop that the supervisor or the controller's watchdog made for silence is explained by a
# controller without ticks for this long: half of the watchdog's period.
STALLED_S = 0.05
# Bad commands that end in a latched stop when nothing else comes, and its cause. Every other one is
# braked for, and the supervisor goes on following.
LATCHED = {"far": Cause.FAR_AGENT}
_AROUND_NS = (50_000_000, 100_000_000)
_STEPS = 5


@dataclass(frozen=True, slots=True)
class Allowed:
    """How long after a fault the set-points may move (infinite: not judged), and the arm [s]."""

    still_s: float
    rest_s: float
    speed: float


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a bad command: the supervisor's mode and cause once the agent had sent all of
    them, and when the cause was told (0: never) [s after the fault].
    """

    mode: Mode
    cause: Cause
    told_s: float = 0.0


def ending(fault: str, end: Ending, far_s: float, period_s: float) -> str:
    """What is wrong with how a bad command ended, or "".

    ``far_s`` is the config's; ``period_s``, how often the commands came: a latch is decided at the
    first one after ``far_s``, and noticed like everything else.
    """
    cause = LATCHED.get(fault)
    if cause is None:
        ok = end.mode is Mode.FOLLOW
        return "" if ok else f"a bad command latched a stop: {end.cause.name}"
    if end.mode is not Mode.STOPPED or end.cause is not cause:
        return f"expected a stop for {cause.name}, got {end.mode.name} ({end.cause.name})"
    latest_s = far_s + period_s + NOTICE_S
    if far_s <= end.told_s <= latest_s:
        return ""
    return (
        f"{cause.name} after {1e3 * end.told_s:.0f} of {1e3 * far_s:.0f} to {1e3 * latest_s:.0f} ms"
    )


def out_of_limits(log: LabLog) -> str:
    """What a set-point that reached the controller violated, or ""."""
    q = log.setpoint_q
    if not len(q):
        return ""
    if not np.isfinite(q).all():
        return "not finite"
    limits = FOLLOWER.limits
    low, high = (np.array(v) for v in (UR5E.low, UR5E.high))
    if np.any(q < low + limits.joint_margin) or np.any(q > high - limits.joint_margin):
        return "outside the joint limits"
    if (speed := largest_speed(log)) > 1.02 * limits.max_joint_speed:
        return f"joint speed {speed:.2f} rad/s"
    tips = np.array([WORKCELL.tip(UR5E, row)[:3, 3] for row in q[:: max(1, len(q) // 100)]])
    down = tips[:, 2] < WORKCELL.tip_height_m + FOLLOWER.raised_m
    margin = limits.workspace_margin + 1e-6
    inside = (tips[:, :2] >= np.array(limits.workspace_low) - margin) & (
        tips[:, :2] <= np.array(limits.workspace_high) + margin
    )
    if np.any(down & ~inside.all(axis=1)):
        return "outside the workspace"
    return "below the table" if np.any(tips[:, 2] < 0.0) else ""


def speeds(log: LabLog, begin_ns: int, end_ns: int) -> tuple[float, float]:
    """Largest speed of the tool [m/s] and of a joint [rad/s] that was commanded around a fault.

    Over five set-points, as if none of them had come faster than the robot's rate: those that
    queued up somewhere arrive in a burst.
    """
    t, q = log.setpoint_t_ns, log.setpoint_q
    keep = (t >= begin_ns - _AROUND_NS[0]) & (t <= end_ns + _AROUND_NS[1])
    t, q = t[keep] * 1e-9, q[keep]
    if len(t) <= _STEPS or not np.isfinite(q).all():
        return 0.0, 0.0
    tips = np.array([WORKCELL.tip(UR5E, row)[:3, 3] for row in q])
    span = np.maximum(t[_STEPS:] - t[:-_STEPS], _STEPS * PERIOD_S)
    tool = np.linalg.norm(tips[_STEPS:] - tips[:-_STEPS], axis=1) / span
    joint = np.abs(q[_STEPS:] - q[:-_STEPS]).max(axis=1) / span
    return float(tool.max()), float(joint.max())


def agent_allowed(log: LabLog, at_ns: int, cell: CellConfig) -> Allowed:
    """For an agent that failed at ``at_ns`` while its commands were followed."""
    speed, _ = speeds(log, at_ns, at_ns)
    limits = FOLLOWER.limits
    tool = tool_limits(UR5E, WORKCELL, limits)
    deceleration = BRAKE_SHARE * tool.acceleration
    jerk = limits.max_tool_jerk
    window_s = 0.0 if jerk is None else 2.0 * tool.acceleration / jerk
    still_s = NOTICE_S + speed / deceleration + window_s + PERIOD_S
    turning = tool.gain * deceleration
    w = bandwidth(cell)
    settling_s = _until(lambda t: turning * (t + 2.0 / w) * math.exp(-w * t))
    return Allowed(still_s, still_s + settling_s, speed)


def link_allowed(log: LabLog, begin_ns: int, end_ns: int, cell: CellConfig) -> Allowed:
    """For a link that failed at ``begin_ns`` in a guided move; the world went on at ``end_ns``."""
    _, speed = speeds(log, begin_ns, end_ns)
    w = bandwidth(cell)
    cut_s = _until(lambda t: speed * (1.0 + w * t) * math.exp(-w * t))
    paused_s = RAMP_S + _until(lambda t: speed / RAMP_S * (t + 2.0 / w) * math.exp(-w * t))
    ramp = min(float(cell.driver.get("stop_deceleration", 8.0)), MotionLimits().program_stop_rad_s2)
    moving_s = max(cut_s, paused_s, speed / ramp) if speed > REST_RAD_S else 0.0
    return Allowed(math.inf, NOTICE_S + moving_s + PERIOD_S, speed)


def bandwidth(cell: CellConfig) -> float:
    """Of the servos' smoothing [rad/s], as the emulated controller understands the config's
    look-ahead time and gain.
    """
    lookahead_s, gain = (float(cell.driver[k]) for k in ("lookahead_s", "gain"))
    return 2.0 / (lookahead_s * math.sqrt(REFERENCE_GAIN / gain))


def still_after(log: LabLog, at_ns: int, until_ns: int) -> float:
    """When the last set-point arrived that differed from the one before [s after ``at_ns``]."""
    keep = (log.setpoint_t_ns >= at_ns) & (log.setpoint_t_ns <= until_ns)
    t, q = log.setpoint_t_ns[keep], log.setpoint_q[keep]
    moved = np.flatnonzero(np.abs(np.diff(q, axis=0)).max(axis=1, initial=0.0) > 1e-6)
    return float(t[moved[-1] + 1] - at_ns) * 1e-9 if len(moved) else 0.0


def gaps(log: LabLog, begin_ns: int, end_ns: int) -> list[float]:
    """How long the emulated controller was without a tick, each time, in a span [s]."""
    found = []
    for event in log.events:
        if event.kind == "stall":
            start_ns = event.t_ns - round(1e6 * float(event.detail))
            overlap_ns = min(event.t_ns, end_ns) - max(start_ns, begin_ns)
            if overlap_ns > 0:
                found.append(1e-9 * overlap_ns)
    return found


def excused(excess_s: float, lost: list[float]) -> bool:
    """Whether ticks that the controller lost explain that something came ``excess_s`` too late."""
    return 0.0 < excess_s <= sum(lost)


def _until(speed: Callable[[float], float]) -> float:
    """When a speed [rad/s] that only falls counts as rest [s]."""
    t = 0.0
    while speed(t) > REST_RAD_S:
        t += 1e-4
    return t
