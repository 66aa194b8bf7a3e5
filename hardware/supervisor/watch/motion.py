"""Judges the motion that a device reports: where the arm is, what it feels, what it is led to."""

from __future__ import annotations

import logging

from hardware.devices.robot import RobotState
from hardware.supervisor.checks import FollowingCheck, LoadCheck
from hardware.supervisor.follower import Follower
from hardware.supervisor.link import Cause, SupervisorConfig
from hardware.supervisor.watch.commands import Defect
from hardware.supervisor.watch.resuming import ResumeCheck
from robolearn.arms.shapes import Joints
from robolearn.timing.overrun import Overrun

log = logging.getLogger(__name__)


class MotionCheck:
    """Following error, tool force and joint load, from an arm that stands at ``q [joints]``."""

    def __init__(
        self,
        config: SupervisorConfig,
        q: Joints,
        rate_hz: float,
        follower: Follower,
    ) -> None:
        window_s = config.late_s + config.state_stale_s + 0.1
        self._following = FollowingCheck(len(q), rate_hz, window_s)
        self._following.reset(q)
        self._astray = Overrun(config.following_rad, config.following_s)
        self._load = LoadCheck(config.max_tool_force_n, config.max_load, config.overload_s)
        self._resumed = ResumeCheck(rate_hz, follower)

    def stands(self, q: Joints) -> None:
        """The arm stands at ``q [joints]``, whoever brought it there."""
        self._following.reset(q)
        self._astray.reset()

    def resumes(self, q: Joints, now_ns: int) -> None:
        """The arm stands at ``q [joints]`` after a pause of its link, and goes on from there."""
        self.stands(q)
        self._resumed.begin(q, now_ns)

    def sent(self, q: Joints) -> None:
        """A set-point ``[joints]`` went out."""
        self._following.sent(q)
        self._resumed.sent(q)

    def clear(self) -> None:
        """Load and force begin anew after a stop."""
        self._load.reset()

    def defect(self, state: RobotState, now_ns: int, *, free: bool) -> Defect | None:
        """What a fresh state breaks; ``free``: a hand guides the arm, it follows nobody."""
        error = 0.0 if free else self._following.error(state.joint_position, self._astray.limit)
        if self._astray.over(error, now_ns):
            return Defect(Cause.FOLLOWING_ERROR, error, self._astray.limit)
        excess = None if free else self._resumed.excess(state, now_ns)
        if excess is not None:
            return Defect(Cause.LINK_PAUSE, *excess)
        strain = self._load.strain(state, now_ns)
        if strain is None:
            return None
        log.warning("%s %.3g above %.3g", strain.kind, strain.value, strain.limit)
        return Defect(Cause.OVERLOAD, strain.value, strain.limit)
