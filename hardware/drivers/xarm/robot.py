"""Drives UFACTORY xArm (5, 6, 7 joints, Lite 6, 850) on the manufacturer's ``xarm-python-sdk``.

What its client does when the controller hangs or dies was measured against an emulated one: calls
return code 3 together with the last cached angles, ``connected`` stays True, nothing ever raises.
Hence every code is checked, and the sign of life is an answer with code 0 on the command channel
(the report stream of a real controller has 5 Hz). The controller has no watchdog: in servo mode a
silent program leaves the arm at its last set-point.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.devices.robot import RobotMode, RobotState
from hardware.drivers.polling.arm import ArmLoop, PolledArm
from hardware.drivers.polling.loop import LostPacketError
from hardware.drivers.xarm.client import GONE, LOST, error_text, open_client
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, RobotConnectionError, RobotError

SERVO_MODE = 1
_READY_STATES = (1, 2)  # in motion, standby
_STOP = 4
# UFACTORY developer manual, "Error codes": 2 is the emergency stop button, 31 a collision.
_MODES = {2: RobotMode.EMERGENCY_STOP, 31: RobotMode.PROTECTIVE_STOP}


@dataclass(frozen=True, slots=True)
class XArmConfig:
    """An xArm behind its control box."""

    # IP address of the control box.
    address: str
    # Number of joints.
    joints: int = 7
    # Serial number of the arm; another arm at this address is refused ("" for any).
    serial: str = ""
    # Exchanges per second [Hz].
    rate_hz: float = 100.0
    # Patience with an answer [s]; 2 s in the vendor's library.
    answer_s: float = 0.1
    # So many exchanges in a row without an answer are a fault.
    max_lost: int = 3
    # When the owner says nothing for so long, the arm is stopped [s].
    silence_s: float = 0.1
    # Bound for connecting [s].
    connect_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if self.joints not in (5, 6, 7):
            raise ConfigError(f"xArm: joints must be 5, 6 or 7, got {self.joints}")
        if not (1.0 <= self.rate_hz <= 250.0 and 0.02 <= self.answer_s <= 2.0):
            raise ConfigError(
                "xArm: rate_hz in [1, 250] and answer_s in [0.02, 2] are needed, got"
                f" {self.rate_hz} and {self.answer_s}"
            )

    def build(self) -> XArmRobot:
        """Make the robot (in the process that will own it)."""
        return XArmRobot(self)


class XArmRobot(PolledArm):
    """Joint set-points in servo mode; ``device_t_s`` of a state is the time of the last answer.

    A stop is state 4, confirmed by the controller; the next set-point goes on. The motors stay
    enabled when it is closed.
    """

    def __init__(self, config: XArmConfig) -> None:
        super().__init__(f"xArm at {config.address}", config.joints, config.rate_hz)
        self.config = config

    @property
    def has_watchdog(self) -> bool:
        """False: a silent program leaves the arm at its last set-point."""
        return False

    def open(self) -> XArmLoop:
        """Connect, enable the motors, servo mode, wait for the first answer."""
        c = self.config
        arm = open_client(
            c.address, answer_s=c.answer_s, timeout_s=c.connect_timeout_s, problem=self._problem
        )
        try:
            loop = XArmLoop(arm, c)
            loop.prepare()
            loop.exchange()
        except BaseException:
            arm.disconnect()
            raise
        self._low, self._high = _ranges(arm, c.joints)
        return loop

    def _problem(self, arm: Any) -> str:
        """What says that the config means another arm."""
        found, joints = int(arm.axis), self.config.joints
        if found != joints:
            return f"has {found} joints, the config says {joints}"
        wanted = self.config.serial
        if wanted and arm.sn != wanted:
            return f"is another arm: its serial number is {arm.sn}, the config says {wanted}"
        return ""


class XArmLoop(ArmLoop):
    """One exchange: set-point out; joint states, errors and the controller's state in."""

    def __init__(self, arm: Any, config: XArmConfig) -> None:
        super().__init__(
            f"xArm at {config.address}",
            config.joints,
            rate_hz=config.rate_hz,
            silence_s=config.silence_s,
            max_lost=config.max_lost,
        )
        self._arm, self._joints = arm, config.joints
        self._stopped = False

    def prepare(self) -> None:
        """Motors on, servo mode, ready. Raises RobotError for a controller with an error."""
        code, errors = self._arm.get_err_warn_code()
        self._require(code, "reading errors")
        if errors[0]:
            raise RobotConnectionError(
                f"{self.name} reports {error_text(int(errors[0]))}; clear it in UFACTORY Studio or"
                " at the control box, then connect again"
            )
        self._require(self._arm.motion_enable(enable=True), "enabling the motors")
        self._arm_motion()

    def exchange(self) -> None:
        """Send the newest set-point, read and publish the state."""
        goal = self.take_goal()
        if goal is not None:
            if self._stopped:
                self._arm_motion()
            code = self._arm.set_servo_angle_j(goal.tolist())
            # What else is wrong shows in the errors below.
            if code in LOST or code in GONE:
                self._require(code, "a set-point")
        code, values = self._arm.get_joint_states(num=3)
        self._require(code, "reading the joints")
        t_ns = time.monotonic_ns()
        q, qd = (np.array(v[: self._joints], dtype=np.float64) for v in values[:2])
        if not np.isfinite([*q, *qd]).all():
            raise RobotError(f"{self.name}: joint angles are not finite")
        self._require_sound()
        self.cycles += 1
        self.state = RobotState(t_ns * 1e-9, t_ns, q, qd, RobotMode.RUNNING)

    def hold(self) -> bool:
        """State 4: the controller decelerates and holds."""
        self.take_goal()
        self._stopped = True
        if self._arm.set_state(_STOP) != 0:
            return False
        code, state = self._arm.get_state()
        return code == 0 and state == _STOP

    def hold_who_listens(self) -> None:
        """A stop without waiting for what comes back."""
        self._arm.set_state(_STOP)

    def disconnect(self) -> None:
        """Close both sockets of the client."""
        self._arm.disconnect()

    def _arm_motion(self) -> None:
        self._require(self._arm.set_mode(SERVO_MODE), "servo mode")
        self._require(self._arm.set_state(0), "making ready")
        self._stopped = False

    def _require_sound(self) -> None:
        self._require_no_error()
        code, state = self._arm.get_state()
        self._require(code, "reading the state")
        if state not in _READY_STATES and not self._stopped:
            # An error stops the controller, and may have come between the two questions.
            self._require_no_error()
            self._stop_mode = RobotMode.IDLE
            raise RobotError(
                f"{self.name} is in state {state}, not ready: somebody stopped or paused it."
                " Connect again"
            )

    def _require_no_error(self) -> None:
        code, errors = self._arm.get_err_warn_code()
        self._require(code, "reading errors")
        if errors[0]:
            self._stop_mode = _MODES.get(int(errors[0]), RobotMode.FAULT)
            raise RobotError(
                f"{self.name} reports {error_text(int(errors[0]))}; clear the cause at the control"
                " box, then connect again"
            )

    def _require(self, code: int, what: str) -> None:
        if code == 0:
            return
        if code in LOST:
            raise LostPacketError(f"{self.name}: no answer to {what}")
        if code in GONE:
            self._stop_mode = RobotMode.DISCONNECTED
            raise RobotConnectionError(f"{self.name}: the connection is gone; connect again")
        raise RobotError(f"{self.name}: {what} was answered with code {code}")


def _ranges(arm: Any, joints: int) -> tuple[Joints, Joints]:
    """Joint ranges of this model by the SDK's table, each ``[joints]`` [rad]; a turn if unknown."""
    from xarm.core.config.x_config import XCONF

    table = XCONF.Robot.JOINT_LIMITS.get(joints, {}).get(int(arm.device_type), ())
    ranges = np.array([*table, *[(-math.tau, math.tau)] * joints][:joints], dtype=np.float64)
    return ranges[:, 0], ranges[:, 1]
