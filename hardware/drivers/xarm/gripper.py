"""Drives UFACTORY's own gripper of an xArm through the controller and ``xarm-python-sdk``.

The controller passes Modbus requests on to the tool's RS-485 line. The driver has a connection of
its own beside the arm's and calls only ``core.gripper_modbus_*``: what the SDK's ``set_gripper_*``
do besides (they wait for the arm, change the line's speed, restart the tool's board and clear the
arm's errors) is nothing that a gripper may do to an arm in motion. Answers are read as they came,
because ``gripper_modbus_get_pos`` calls a missing one position 0 while the arm has an error.

Registers: ``XCONF.ServoConf`` of the SDK. Status, firmware 3.4.3 or newer: 0 at rest, 1 moving, 2
stopped on something. The gripper has no register for a force.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from hardware.devices.gripper import GripperState
from hardware.devices.robot import Robot, RobotMode
from hardware.drivers.polling.gripper import GripperLoop, PolledGripper
from hardware.drivers.polling.loop import LostPacketError
from hardware.drivers.xarm.client import GONE, LOST, open_client
from robolearn.errors import ConfigError, RobotConnectionError, RobotError

_STATUS, _ERROR, _ENABLE, _MODE = 0x0000, 0x000F, 0x0100, 0x0101
_SPEED, _GOAL, _POSITION, _FIRMWARE = 0x0303, 0x0700, 0x0702, 0x0801
_POSITION_MODE = 0
_AT_REST, _MOVING, _GRASPED = 0, 1, 2
_OLDEST = (3, 4, 3)
_LINE, _GRIPPER, _READ, _WRITE = 9, 8, 0x03, 0x10
# "xArm-Python-SDK, set_gripper_speed": 1 to 5000 r/min.
_FULL_SPEED = 5000
# The answer came, and the arm has an error or a warning: that is for the arm's driver to tell.
_ANSWERED = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class XArmGripperConfig:
    """The gripper on the tool's line of an xArm."""

    # IP address of the control box.
    address: str
    # Distance of the open fingers [m]; measure it, fingers differ.
    stroke_m: float = 0.085
    # Position of open fingers.
    open_pulses: int = 850
    # Position of closed fingers.
    closed_pulses: int = 0
    # States per second [Hz]; three questions each.
    rate_hz: float = 20.0
    # Patience with an answer [s].
    answer_s: float = 0.1
    # So many states in a row without an answer are a fault.
    max_lost: int = 3
    # Bound for connecting [s].
    connect_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if not (self.closed_pulses < self.open_pulses and 0.0 < self.stroke_m < 1.0):
            raise ConfigError(
                "xArm gripper: closed_pulses < open_pulses and a positive stroke_m are needed, got"
                f" {self.closed_pulses}, {self.open_pulses}, {self.stroke_m}"
            )
        if not (1.0 <= self.rate_hz <= 50.0 and 0.02 <= self.answer_s <= 2.0):
            raise ConfigError(
                "xArm gripper: rate_hz in [1, 50] and answer_s in [0.02, 2] are needed, got"
                f" {self.rate_hz} and {self.answer_s}"
            )

    @property
    def mounted(self) -> bool:
        """False: it has a connection of its own."""
        return False

    def build(self, arm: Robot | None = None) -> XArmGripper:
        """Make the gripper (in the process that will own it)."""
        del arm
        return XArmGripper(self)


class XArmGripper(PolledGripper["XArmGripperLoop"]):
    """A :class:`~hardware.devices.gripper.Gripper`; the ``force`` of a request is not used."""

    def __init__(self, config: XArmGripperConfig) -> None:
        super().__init__(f"gripper of the xArm at {config.address}", config.stroke_m)
        self.config = config

    def open(self) -> XArmGripperLoop:
        """Connect and enable the motor; the fingers stay where they are."""
        c = self.config
        client = open_client(c.address, answer_s=c.answer_s, timeout_s=c.connect_timeout_s)
        try:
            loop = XArmGripperLoop(client, c)
            loop.prepare()
            loop.exchange()
        except BaseException:
            client.disconnect()
            raise
        return loop


class XArmGripperLoop(GripperLoop):
    """One exchange: the newest request out, error, status and position in."""

    def __init__(self, client: Any, config: XArmGripperConfig) -> None:
        name = f"gripper of the xArm at {config.address}"
        super().__init__(name, rate_hz=config.rate_hz, max_lost=config.max_lost)
        self._client, self._config = client, config
        self._request: tuple[int, int] | None = None
        self._speed = 0

    def set_goal(self, width_m: float, speed: float, force: float) -> None:  # noqa: ARG002
        """The newest request; an unsent older one is replaced."""
        with self.lock:
            self._request = (self._pulses(width_m), max(1, round(_FULL_SPEED * speed)))

    def prepare(self) -> None:
        """Motor on, position mode. Raises RobotError for an error and for old firmware."""
        firmware = tuple(self._read(_FIRMWARE + i, 1) for i in range(3))
        if firmware < _OLDEST:
            raise RobotError(
                f"{self.name} has firmware {'.'.join(map(str, firmware))}, which does not tell"
                " whether it holds something; update it to 3.4.3 or newer in UFACTORY Studio"
            )
        self._require_no_error()
        if self._read(_STATUS, 1) & 3 == _GRASPED:
            # It holds something since an earlier program: nothing is sent that may let go.
            return
        self._write(_MODE, _POSITION_MODE, 1)
        self._write(_ENABLE, 1, 1)

    def exchange(self) -> None:
        """Send the newest request, read and publish the state."""
        with self.lock:
            request, self._request = self._request, None
        if request is not None:
            pulses, speed = request
            if speed != self._speed:
                self._write(_SPEED, speed, 1)
                self._speed = speed
            self._write(_GOAL, pulses, 2)
        self._require_no_error()
        status = self._read(_STATUS, 1) & 3
        width_m = self._width(self._read(_POSITION, 2))
        self.cycles += 1
        self.state = GripperState(
            time.monotonic_ns(), width_m, moving=status == _MOVING, holding=status == _GRASPED
        )

    def hold(self) -> bool:
        """Request the present position; fingers that hold something go on gripping."""
        with self.lock:
            self._request = None
        if self._read(_STATUS, 1) & 3 != _GRASPED:
            self._write(_GOAL, self._read(_POSITION, 2), 2)
        return True

    def hold_who_listens(self) -> None:
        """Nothing: who does not answer keeps its last request."""

    def mark(self, mode: RobotMode) -> None:
        """Nothing: the age of the state tells."""

    def disconnect(self) -> None:
        """Close this connection; the arm's is another one."""
        self._client.disconnect()

    def _require_no_error(self) -> None:
        code = self._read(_ERROR, 1)
        if code:
            raise RobotError(
                f"{self.name} reports error {code}; free the fingers, clear it in UFACTORY Studio,"
                " then connect again"
            )

    def _read(self, register: int, count: int) -> int:
        """One or two registers, as a signed number."""
        answer = self._client.core.gripper_modbus_r16s(register, count)
        self._require(answer, f"reading register {register:#06x}")
        if answer[1:5] != [_LINE, _GRIPPER, _READ, 2 * count] or len(answer) != 5 + 2 * count:
            self._lose(f"the answer to register {register:#06x} is not one")
        return int.from_bytes(bytes(answer[5:]), "big", signed=count == 2)

    def _write(self, register: int, value: int, count: int) -> None:
        data = value.to_bytes(2 * count, "big", signed=count == 2)
        answer = self._client.core.gripper_modbus_w16s(register, data, count)
        self._require(answer, f"writing register {register:#06x}")
        if answer[1:4] != [_LINE, _GRIPPER, _WRITE]:
            self._lose(f"writing register {register:#06x} was not confirmed")

    def _require(self, answer: list[int], what: str) -> None:
        code = answer[0]
        if code in LOST:
            self._lose(f"no answer to {what}")
        if code in GONE:
            raise RobotConnectionError(f"{self.name}: the connection is gone; connect again")
        if code not in _ANSWERED:
            raise RobotError(f"{self.name}: {what} was answered with code {code}")

    def _lose(self, reason: str) -> None:
        raise LostPacketError(
            f"{self.name}: {reason}; is it plugged in, and is the tool's line at 2,000,000 baud?"
        )

    def _pulses(self, width_m: float) -> int:
        c = self._config
        return round(c.closed_pulses + width_m / c.stroke_m * (c.open_pulses - c.closed_pulses))

    def _width(self, pulses: int) -> float:
        c = self._config
        share = (pulses - c.closed_pulses) / (c.open_pulses - c.closed_pulses)
        return c.stroke_m * max(0.0, min(1.0, share))
