"""Lets a hand move the arm (freedrive) under the supervisor, which still watches the limits.

The gripper goes where commands want it meanwhile. It ends when somebody asks, when a limit comes
near or the hand is too fast. Then the device makes the arm stiff, and once it rests the supervisor
takes it over where it is measured.
"""

from __future__ import annotations

import logging

import numpy as np

from hardware.devices.robot import Robot, RobotState
from hardware.supervisor.checks import CollisionGuard, Strain
from hardware.supervisor.follower import Follower, Leeway
from hardware.supervisor.gripper_keeper import Keeper
from hardware.supervisor.link import SupervisorConfig, Target
from hardware.supervisor.shared_memory import Ring
from hardware.supervisor.watch.commands import CommandCheck
from robolearn.arms.shapes import Joints
from robolearn.timing.overrun import Overrun

log = logging.getLogger(__name__)

# Who starts outside may move this much further out [rad], [m]: a measured place is not exact.
_SLACK_RAD, _SLACK_M = 0.01, 0.003
_PATIENCE_S = 0.02
_REST_RAD_S, _SETTLE_S = 0.02, 0.5
_SOON_S = 0.01
ASKED = Strain("asked", 0.0, 0.0)


class GuidedGripper:
    """The gripper of an arm that a hand guides: of the commands its part alone is followed, and of
    none that an arm would not follow either.
    """

    def __init__(self, check: CommandCheck, keeper: Keeper, commands: Ring) -> None:
        self._check, self._keeper, self._commands = check, keeper, commands
        self._next = 0
        self._last: Target | None = None

    def begin(self) -> None:
        """Commands of before are not meant."""
        self._next, self._last = self._commands.count, None
        self._check.begin()

    def tick(self, now_ns: int) -> None:
        """Take the newest command."""
        row = self._commands.latest()
        if row is None or row.index < self._next:
            return
        self._next, target = row.index + 1, Target.unpack(row.value)
        if self._check.defect(target, now_ns, self._last) is None:
            self._last = target
            self._keeper.aim(target.gripper)


class HandGuiding:
    """From :meth:`begin` on one :meth:`tick` per period until :attr:`done`."""

    def __init__(
        self,
        robot: Robot,
        follower: Follower,
        guard: CollisionGuard | None,
        config: SupervisorConfig,
        gripper: GuidedGripper,
    ) -> None:
        self._robot, self._follower, self._guard = robot, follower, guard
        self._gripper = gripper
        self._ahead_s = config.guide_ahead_s
        self._turning = Overrun(config.guide_joint_speed, _PATIENCE_S)
        self._moving = Overrun(config.guide_tool_speed, _PATIENCE_S)
        self._floor = Leeway(0.0, 0.0)
        self._ended_ns: int | None = None
        self.done = False

    def begin(self, q: Joints) -> None:
        """Let go of the arm, which stands at ``q``. Raises RobotError when the device refuses."""
        device = self._robot.freedrive
        if device is not None:
            device.begin()
        self._gripper.begin()
        here = self._follower.leeway(q)
        # A motion that starts outside may lead back inside.
        self._floor = Leeway(
            min(0.0, here.joint_rad - _SLACK_RAD), min(0.0, here.tool_m - _SLACK_M)
        )
        if self._guard is not None:
            self._guard.begin(q)
        self._turning.reset()
        self._moving.reset()
        self._ended_ns, self.done = None, False

    def tick(self, state: RobotState, now_ns: int, *, wanted: bool) -> Strain | None:
        """Feed the watchdog, look at the arm; at the end of freedrive why it ended, else None.

        Raises RobotError when the device does not make the arm stiff again.
        """
        self._robot.keep_alive()
        if self._ended_ns is not None:
            resting = float(np.abs(state.joint_velocity).max()) < _REST_RAD_S
            self.done = resting or now_ns - self._ended_ns > _SETTLE_S * 1e9
            return None
        end = self.broken(state, now_ns) if wanted else ASKED
        device = self._robot.freedrive
        if end is None or device is None:
            self._gripper.tick(now_ns)
            return None
        log.info("freedrive ends: %s", end.text)
        device.end()
        self._ended_ns = now_ns
        return end

    def broken(self, state: RobotState, now_ns: int) -> Strain | None:
        """What ends freedrive, if anything does: looked at a moment ahead of the motion."""
        q, qd = state.joint_position, state.joint_velocity
        ahead = q + self._ahead_s * qd
        left, floor = self._follower.leeway(ahead), self._floor
        if left.joint_rad < floor.joint_rad:
            return Strain("joint limit [rad]", left.joint_rad, floor.joint_rad)
        if left.tool_m < floor.tool_m:
            return Strain("workspace [m]", left.tool_m, floor.tool_m)
        turning = float(np.abs(qd).max())
        moving = self._follower.travel(q, q + _SOON_S * qd) / _SOON_S
        # Both are looked at, so that both remember since when.
        turns, moves = self._turning.over(turning, now_ns), self._moving.over(moving, now_ns)
        if turns:
            return Strain("joint speed [rad/s]", turning, self._turning.limit)
        if moves:
            return Strain("tool speed [m/s]", moving, self._moving.limit)
        if self._guard is None:
            return None
        self._guard.tick()
        return self._guard.ahead(ahead) if self._guard.ahead_due else None
