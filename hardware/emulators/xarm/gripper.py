"""Emulates UFACTORY's gripper on the tool's RS-485 line of an emulated xArm controller.

The controller passes on ``host u8 | gripper u8 | function u8 | ...`` of register 124 and answers
with the same host and what the gripper said; the checksums are the controller's business. Functions
3 (read) and 16 (write) of Modbus; registers: ``XCONF.ServoConf`` of ``xarm-python-sdk``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hardware.emulators.finger_servo import FingerServo
from hardware.emulators.lab.admin import number
from hardware.emulators.plant import FingerPlant
from robolearn.errors import ConfigError

HOST, GRIPPER = 9, 8
OPEN_PULSES = 850
STROKE_M = 0.085
# At 5000 r/min: a guess, UFACTORY names no figure.
FULL_SPEED_M_S, FULL_SPEED = 0.1, 5000
STATUS, ERROR, ENABLE, MODE, RESET_ERROR = 0x0000, 0x000F, 0x0100, 0x0101, 0x0109
SPEED, GOAL, POSITION, FIRMWARE = 0x0303, 0x0700, 0x0702, 0x0801
AT_REST, MOVING, GRASPED = 0, 1, 2
_READ, _WRITE = 0x03, 0x10
_AT_GOAL = 2


@dataclass(frozen=True, slots=True)
class XArmGripperEmulatorConfig:
    """The emulated gripper of a lab's xArm."""

    # Its version.
    firmware: tuple[int, int, int] = (3, 4, 3)

    def __post_init__(self) -> None:
        if len(self.firmware) != 3 or not all(0 <= n < 1 << 16 for n in self.firmware):
            raise ConfigError(f"gripper: firmware is three numbers, got {self.firmware}")


class XArmGripperEmulator:
    """One gripper, alone or moving the ``fingers`` of a plant."""

    def __init__(
        self, config: XArmGripperEmulatorConfig, fingers: FingerPlant | None = None
    ) -> None:
        self.config = config
        self.fingers = FingerServo(fingers, STROKE_M)
        self.enabled, self.mode, self.error, self.speed = False, 0, 0, 1500
        self.unplugged = False
        self._goal = OPEN_PULSES
        self.requests: list[int] = []
        self.faults: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "gripper_error": lambda r: self.fail(int(number({"code": 11, **r}, "code", 0, 127))),
            "gripper_unplug": lambda r: setattr(self, "unplugged", bool(r.get("on", True))),
        }

    def fail(self, code: int) -> None:
        """Fault: an error of the gripper (11 current, 14 position command); the fingers stay."""
        self.error = code

    @property
    def position(self) -> int:
        """Of the fingers [pulses]."""
        return round(OPEN_PULSES * self.fingers.width_m / self.fingers.stroke_m)

    @property
    def status(self) -> int:
        """What the status register says."""
        if self.fingers.held:
            return GRASPED
        return MOVING if self._driven and abs(self._goal - self.position) > _AT_GOAL else AT_REST

    @property
    def _driven(self) -> bool:
        return self.enabled and not self.error

    def step(self, now_ns: int) -> None:
        """Move the fingers."""
        if not self._driven:
            self.fingers.rest(now_ns)
            return
        goal_m = self._goal / OPEN_PULSES * self.fingers.stroke_m
        speed_m_s = FULL_SPEED_M_S * min(1.0, self.speed / FULL_SPEED)
        self.fingers.step(now_ns, goal_m, speed_m_s, 1.0)

    def answer(self, request: bytes) -> bytes | None:
        """The reply to ``gripper | function | ...``; None: no reply within the line's patience."""
        if self.unplugged or len(request) < 6 or request[0] != GRIPPER:
            return None
        function, register, count = struct.unpack_from(">BHH", request, 1)
        if function == _READ and 1 <= count <= 16:
            words = b"".join(struct.pack(">H", self._word(register + i)) for i in range(count))
            return bytes([GRIPPER, _READ, len(words)]) + words
        data = request[7:]
        if function == _WRITE and count >= 1 and request[6:7] == bytes([2 * count]):
            if len(data) == 2 * count and self._set(register, int.from_bytes(data, "big")):
                return bytes([GRIPPER, _WRITE]) + struct.pack(">HH", register, count)
            return bytes([GRIPPER, _WRITE | 0x80, 3])
        return bytes([GRIPPER, function | 0x80, 1])

    def _word(self, register: int) -> int:
        position, goal = self.position & 0xFFFFFFFF, self._goal & 0xFFFFFFFF
        words = {
            STATUS: self.status,
            ERROR: self.error,
            ENABLE: int(self.enabled),
            MODE: self.mode,
            SPEED: self.speed,
            GOAL: goal >> 16,
            GOAL + 1: goal & 0xFFFF,
            POSITION: position >> 16,
            POSITION + 1: position & 0xFFFF,
            **{FIRMWARE + i: n for i, n in enumerate(self.config.firmware)},
        }
        return words.get(register, 0)

    def _set(self, register: int, value: int) -> bool:
        if register == ENABLE:
            self.enabled = bool(value)
            # Fingers that are switched on stay where they are.
            self._goal = self.position
        elif register == MODE:
            self.mode = value
        elif register == SPEED and 1 <= value <= FULL_SPEED:
            self.speed = value
        elif register == RESET_ERROR:
            self.error = 0
        elif register == GOAL:
            goal = value - (1 << 32) if value >= 1 << 31 else value
            self._goal = max(-10, min(OPEN_PULSES, goal))
            self.requests.append(goal)
        else:
            return False
        return True
