"""Writes what the supervisor tells the agent into the link's rings."""

from __future__ import annotations

import logging

from hardware.devices.robot import RobotState
from hardware.supervisor.link import Event, Link, Status, pack_text

log = logging.getLogger(__name__)


class Reports:
    """The supervisor's side of its link; nothing here ever waits for a reader."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def state(self, state: RobotState) -> None:
        """A fresh state of the robot."""
        head = [state.device_t_s, state.mode, state.tool_force_n, state.load]
        row = [*head, *state.joint_position, *state.joint_velocity]
        self._link.states.put(state.changed_ns, row)

    def event(self, event: Event) -> None:
        """An intervention, also to the log."""
        self._link.events.put(event.t_ns, [event.cause, event.value, event.limit, event.seq])
        log.warning("%s", event.text())

    def reason(self, text: str, now_ns: int) -> None:
        """Why the arm was stopped, in the device's words; "" for nothing to say. Before the status
        that says that it was: whoever sees a stop also finds its reason.
        """
        self._link.reason.put(now_ns, pack_text(text))

    def status(self, status: Status) -> None:
        """How the supervisor is, at every tick."""
        self._link.status.put(status.t_ns, status.pack())
