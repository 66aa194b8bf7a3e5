"""Drives a gripper that is one more servo on an arm's bus (SO-100/101, Koch, ViperX class)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from hardware.devices.gripper import GripperState
from hardware.devices.robot import Robot, RobotMode
from hardware.drivers.polling.gripper import check_move
from hardware.drivers.serial_bus.robot import BusRobot
from robolearn.errors import ConfigError, RobotConnectionError

REST_M_S = 0.003
AT_GOAL_M = 0.003
STUCK_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class ServoGripperConfig:
    """The servo that the arm's driver names as its gripper."""

    # Distance of the fingers at the open end of the servo's range [m].
    stroke_m: float
    # The fingers are closed at the lower end of the servo's range.
    closed_at_low: bool = True

    def __post_init__(self) -> None:
        if not 0.0 < self.stroke_m < math.inf:
            raise ConfigError(f"gripper: stroke_m must be positive, got {self.stroke_m}")

    @property
    def mounted(self) -> bool:
        """True: it is a servo of the arm's bus."""
        return True

    def build(self, arm: Robot | None = None) -> ServoGripper:
        """Make the gripper; raises ConfigError for an arm without a servo for it."""
        if not isinstance(arm, BusRobot) or not arm.config.gripper:
            raise ConfigError(
                "gripper: kind 'servo' needs an arm of serial servos (feetech, dynamixel) whose"
                " driver names its servo, 'gripper: <name>'"
            )
        return ServoGripper(arm, self.stroke_m, closed_at_low=self.closed_at_low)


class ServoGripper:
    """A :class:`~hardware.devices.gripper.Gripper` over the bus that the arm's driver owns.

    The distance of the fingers is taken to be proportional to the servo's angle. ``closed_at_low``:
    the fingers are closed at the lower end of the servo's range. The force is the arm's
    ``torque_share``; speed and force of a request are not used.
    """

    def __init__(self, arm: BusRobot, stroke_m: float, *, closed_at_low: bool = True) -> None:
        self._arm, self._stroke_m, self._closed_at_low = arm, stroke_m, closed_at_low
        self._goal_m: float | None = None
        self._before: tuple[int, float] = (0, 0.0)
        self._speed, self._quiet_ns = 0.0, 0

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        return self._stroke_m

    def connect(self) -> None:
        """Nothing of its own: the arm's driver connects the bus. Raises when it has not."""
        self._arm.gripper_state()
        self._goal_m = None

    def state(self) -> GripperState:
        """Newest state."""
        t_ns, share, _ = self._arm.gripper_state()
        width = self._stroke_m * (share if self._closed_at_low else 1.0 - share)
        last_ns, last = self._before
        if t_ns > last_ns:
            self._speed = abs(width - last) / ((t_ns - last_ns) * 1e-9) if last_ns else 0.0
            self._before = (t_ns, width)
        moving = self._speed > REST_M_S
        if moving:
            self._quiet_ns = t_ns
        away = self._goal_m is not None and abs(self._goal_m - width) > AT_GOAL_M
        # Right after a request the fingers stand because they have not started yet.
        stuck = away and t_ns - self._quiet_ns > STUCK_NS
        return GripperState(t_ns, width, moving=moving, holding=stuck)

    def move(self, width_m: float, speed: float = 1.0, force: float = 1.0) -> None:
        """Go to a distance."""
        check_move(width_m, speed, force, self._stroke_m)
        share = width_m / self._stroke_m
        self._arm.set_gripper(share if self._closed_at_low else 1.0 - share)
        if width_m != self._goal_m:
            self._goal_m, self._quiet_ns = width_m, time.monotonic_ns()

    def stop(self) -> bool:
        """Stay at the present distance, or keep gripping; False when the bus does not answer."""
        try:
            if self.state().holding:
                return self._arm.state().mode is RobotMode.RUNNING
            _, share, _ = self._arm.gripper_state()
        except RobotConnectionError:
            return False
        if self._arm.state().mode is not RobotMode.RUNNING:
            return False
        self._arm.set_gripper(max(0.0, min(1.0, share)))
        return True

    def close(self) -> None:
        """Nothing: the arm's driver closes the bus, and what is held stays held."""
