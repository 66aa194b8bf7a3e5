"""Writes what the supervisor tells the agent into the link's rings."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from hardware.devices.robot import Robot, RobotMode, RobotState
from hardware.supervisor.link import Cause, Event, Link, Status, pack_text
from robolearn.errors import RobotError

log = logging.getLogger(__name__)
_NO_WRENCH = (math.nan,) * 6
# What comes and goes on a busy machine is in the log once in this time, then with how often [ns].
_QUIET_NS = 5_000_000_000


def cause_of(robot: Robot, error: Exception) -> tuple[Cause, float, str]:
    """Why a call to the driver failed, the value of its event, and in whose words.

    A fault of the robot may come between a tick's look at the state and its set-point, which is
    then refused: what the robot shows by now is the cause, and the refusal its consequence.
    """
    try:
        mode = robot.state().mode
    except RobotError:
        mode = RobotMode.RUNNING
    if mode is RobotMode.RUNNING:
        return Cause.DRIVER_ERROR, 0.0, str(error)
    return fault_of(mode), float(mode), robot.fault_text() or str(error)


def fault_of(mode: RobotMode) -> Cause:
    """What keeps a robot from following that is not :attr:`RobotMode.RUNNING`."""
    return Cause.SILENCED if mode is RobotMode.SILENCED else Cause.ROBOT_FAULT


def guiding_ended(events: Sequence[Event], reason: str) -> str:
    """Why a hand guides the arm no more, in words, after ``events``; ``reason``: the newest one."""
    causes = [event.cause for event in events]
    if Cause.HAND_LIMIT in causes:
        return f"a limit came near ({reason})"
    return ", ".join(cause.name.lower() for cause in causes) or "freedrive ended"


class Reports:
    """The supervisor's side of its link; nothing here ever waits for a reader."""

    def __init__(self, link: Link) -> None:
        self._link = link
        # Of each cause, when it was in the log, and how often it came since.
        self._logged: dict[Cause, tuple[int, int]] = {}

    def state(self, state: RobotState) -> None:
        """A fresh state of the robot."""
        head = [state.device_t_s, float(state.mode), state.tool_force_n, state.load]
        wrench = _NO_WRENCH if state.wrench is None else state.wrench.tolist()
        row = [*head, *wrench, *state.joint_position.tolist(), *state.joint_velocity.tolist()]
        self._link.states.put(state.changed_ns, row)

    def event(self, event: Event) -> None:
        """An intervention, also to the log; there, what does not latch and follows the same cause
        within 5 s is told by its number, with the next one.
        """
        self._link.events.put(event.t_ns, [event.cause, event.value, event.limit, event.seq])
        told = self._logged.get(event.cause)
        passing = event.cause <= Cause.OPERATOR_CLEAR
        if passing and told is not None and event.t_ns - told[0] < _QUIET_NS:
            self._logged[event.cause] = (told[0], told[1] + 1)
            return
        self._logged[event.cause] = (event.t_ns, 0)
        more = f"; {told[1]} more since it was told" if told is not None and told[1] else ""
        log.warning("%s%s", event.text(), more)

    def reason(self, text: str, now_ns: int) -> None:
        """Why the arm was stopped, in the device's words; "" for nothing to say. Before the status
        that says that it was: whoever sees a stop also finds its reason.
        """
        self._link.reason.put(now_ns, pack_text(text))

    def status(self, status: Status) -> None:
        """How the supervisor is, at every tick."""
        self._link.status.put(status.t_ns, status.pack())
