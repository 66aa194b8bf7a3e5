"""Brings the arm to rest when its link pauses in motion, and says when a path may begin anew.

Set-points that were sent into a link that pauses arrive together when it goes on, and a controller
that has come to a halt meanwhile would chase the newest of them at once. What was sent is therefore
made void by a halt that is sent behind it, and nothing more until the arm is seen at rest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hardware.devices.robot import Robot, RobotState
from hardware.supervisor.link import SupervisorConfig
from robolearn.errors import RobotError

# Three states in a row that are slower than this show an arm at rest.
_REST_RAD_S, _REST_STATES = 0.02, 3
# How long an arm that was halted may take to come to rest [s].
_PATIENCE_NS = 1_000_000_000


class LinkPause:
    """From a state that is late in motion until the arm is seen at rest."""

    def __init__(self, robot: Robot, config: SupervisorConfig) -> None:
        self._robot = robot
        # A set-point this old may still be on its way.
        self._under_way_ns = round(2e9 * config.state_stale_s)
        self._moved_ns = -self._under_way_ns
        self._begun_ns, self._quiet, self._stamp = 0, 0, -1.0
        self._confirmed: Callable[[], bool] | None = None
        self.active = False

    def sent(self, now_ns: int, *, moving: bool) -> None:
        """A set-point went out; ``moving``: another one than the last."""
        if moving:
            self._moved_ns = now_ns

    def begin(self, now_ns: int) -> None:
        """The state is late: halt an arm that may be in motion. Raises RobotError for a device that
        cannot be told.
        """
        halt = self._robot.halt
        if self.active or halt is None or now_ns - self._moved_ns > self._under_way_ns:
            return
        self.active, self._begun_ns, self._quiet = True, now_ns, 0
        self._confirmed = halt()

    def end(self) -> None:
        """A path begins anew, or the arm is stopped for good."""
        self.active = False

    def over(self, state: RobotState, now_ns: int, *, late: bool) -> bool:
        """True once fresh states show that the arm stands and the device has confirmed the halt: a
        path that begins sooner runs ahead of its first set-point, which the device then chases.
        Meanwhile the device's watchdog is fed.

        Raises RobotError for a device that cannot be told, or an arm that does not come to rest.
        """
        self._robot.keep_alive()
        if late:
            self._quiet = 0
        elif state.device_t_s != self._stamp:
            slow = float(np.abs(state.joint_velocity).max()) < _REST_RAD_S
            self._quiet = self._quiet + 1 if slow else 0
        self._stamp = state.device_t_s
        stands = self._quiet >= _REST_STATES and self._confirmed is not None and self._confirmed()
        if not stands and now_ns - self._begun_ns > _PATIENCE_NS:
            raise RobotError("the arm was halted and is not seen at rest, or did not confirm")
        return stands
