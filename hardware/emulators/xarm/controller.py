"""Emulates an xArm controller as the unmodified ``xarm-python-sdk`` sees it: commands and reports.

Commands, TCP 502: ``id u16 | protocol u16 | length u16 | register u8 | params`` with a big-endian
header and little-endian floats; the answer repeats id, protocol and register and adds a state
byte (0x40 error, 0x20 warning, 0x10 not ready). Reports, TCP 30002: a stream of fixed frames.
Port 502 needs root (or ``net_bind_service``) and is fixed in the SDK.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.emulators.lab.admin import number
from hardware.emulators.loop import Connection, EmulatorLoop
from hardware.emulators.plant import Plant
from hardware.emulators.ur.log import ControllerLog
from hardware.emulators.xarm.gripper import HOST, XArmGripperEmulator
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError

COMMAND_PORT, REPORT_PORT = 502, 30002
LENGTH_LIMIT = 1024
MAX_CLIENTS = 8
REPORT_BYTES = 245  # 233 would set off a legacy guess in the client
SERVO_MODE = 1
_LAST_MODE = 11
# State of the controller (UFACTORY developer manual): 1 in motion, 2 standby, 3 paused, 4 stopped.
STANDBY, PAUSED, STOPPED = 2, 3, 4
_ERROR, _WARNING, _NOT_READY, _INVALID = 0x40, 0x20, 0x10, 0x08
_ALL_MOTORS = 0xFF
EMERGENCY_ERROR = 2
_STEP_RAD = 0.06
_GET_VERSION, _MOTION_ENABLE, _SET_STATE, _GET_STATE, _GET_CMDNUM, _GET_ERROR = (
    1,
    11,
    12,
    13,
    14,
    15,
)
_CLEAN_ERROR, _CLEAN_WARNING, _SET_MODE, _SERVO_J = 16, 17, 19, 29
_GET_POSE, _GET_JOINTS, _GET_TORQUES, _TOOL_LINE = 41, 42, 55, 124
# "End Effector Communication Error" (the SDK's table of error codes).
TOOL_LINE_ERROR = 19


@dataclass(frozen=True, slots=True)
class XArmEmulatorConfig:
    """The emulated controller."""

    # Control periods per second; set-points are taken once per period [Hz].
    rate_hz: float = 250.0
    # Reports per second [Hz].
    report_hz: float = 100.0
    # Speed limit of the joints [rad/s].
    joint_speed_rad_s: float = 3.14
    version: str = "v2.5.0"

    def __post_init__(self) -> None:
        if not (1 <= self.report_hz <= self.rate_hz <= 1000 and self.joint_speed_rad_s > 0):
            raise ConfigError(
                "1 <= report_hz <= rate_hz <= 1000 and a positive speed are needed, got"
                f" {self.report_hz}, {self.rate_hz}, {self.joint_speed_rad_s}"
            )


def take_request(inbox: bytearray) -> tuple[int, int, int, bytes] | None:
    """Remove the first complete request: ``(id, protocol, register, params)``.

    Raises DataError for a length that no request has; the controller then drops the client.
    """
    if len(inbox) < 6:
        return None
    request, protocol, length = struct.unpack_from(">HHH", inbox)
    if not 1 <= length <= LENGTH_LIMIT:
        # The client's heartbeat has no body.
        if length == 0:
            del inbox[:6]
            return request, protocol, 0, b""
        raise DataError(f"a request of {length} bytes")
    if len(inbox) < 6 + length:
        return None
    register, params = inbox[6], bytes(inbox[7 : 6 + length])
    del inbox[: 6 + length]
    return request, protocol, register, params


class XArmController:
    """State machine, joints and both servers."""

    def __init__(
        self,
        loop: EmulatorLoop,
        plant: Plant,
        config: XArmEmulatorConfig,
        address: str,
        gripper: XArmGripperEmulator | None = None,
    ) -> None:
        self.config, self._loop, self._plant, self.gripper = config, loop, plant, gripper
        q = plant.joint_positions()
        if not 5 <= len(q) <= 7:
            raise ConfigError(f"an xArm has 5 to 7 joints, this plant has {len(q)}")
        self.log = ControllerLog(len(q))
        self.enabled, self.mode, self.state, self.error, self.warning = False, 0, STOPPED, 0, 0
        self.garbage_replies = 0
        self.mute = False
        self._target, self._reference = q.copy(), q.copy()
        self._clients: list[Connection] = []
        self._reports: list[Connection] = []
        self._report_ns = 0
        self._rest_ticks = 0
        self.faults: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "error": lambda r: self.fail(int(number({"code": 31, **r}, "code", 1, 255))),
            "emergency_stop": lambda _: self.fail(EMERGENCY_ERROR),
            "drop_links": lambda _: self.drop_links(),
            "mute": lambda r: setattr(self, "mute", bool(r.get("on", True))),
            "garbage": lambda r: setattr(
                self, "garbage_replies", int(number({"count": 1, **r}, "count", 0, 1e6))
            ),
            **({} if gripper is None else gripper.faults),
        }
        loop.listen(address, COMMAND_PORT, self._accept, "xArm commands")
        loop.listen(address, REPORT_PORT, self._accept_report, "xArm reports")

    # -- faults ----------------------------------------------------------------------------------

    def fail(self, code: int) -> None:
        """Fault: an error of the controller (2 emergency stop, 31 collision); the arm stops."""
        self.error = code
        self.state = STOPPED
        self.log.event("error", f"code {code}")

    def drop_links(self) -> None:
        """Fault: close every connection."""
        for connection in [*self._clients, *self._reports]:
            connection.close()

    # -- servers ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections."""
        self.drop_links()

    def _accept(self, sock: socket.socket) -> None:
        self._clients = [c for c in self._clients if c.open]
        if len(self._clients) >= MAX_CLIENTS:
            sock.close()
            return
        self._clients.append(Connection(self._loop, sock, self._on_bytes))

    def _accept_report(self, sock: socket.socket) -> None:
        self._reports = [c for c in self._reports if c.open]
        if len(self._reports) >= MAX_CLIENTS:
            sock.close()
            return
        self._reports.append(Connection(self._loop, sock, lambda _c, _d: None))

    def _on_bytes(self, connection: Connection, data: bytes) -> None:
        connection.inbox += data
        try:
            while connection.open and (request := take_request(connection.inbox)) is not None:
                self._answer(connection, *request)
        except DataError as error:
            self.log.event("bad_client", str(error))
            connection.close()

    def _answer(
        self, connection: Connection, request: int, protocol: int, register: int, params: bytes
    ) -> None:
        if register == 0 or self.mute:
            return
        ok, values = self.execute(register, params)
        state = (_ERROR if self.error else 0) | (_WARNING if self.warning else 0)
        state |= 0 if self.ready else _NOT_READY
        state |= 0 if ok else _INVALID
        body = bytes([register, state]) + values
        frame = struct.pack(">HHH", request, protocol, len(body)) + body
        if self.garbage_replies > 0:
            self.garbage_replies -= 1
            frame = np.random.default_rng(request).bytes(len(frame))
        connection.send(frame)

    @property
    def ready(self) -> bool:
        """True when set-points are accepted."""
        return self.enabled and self.state != STOPPED and not self.error

    def execute(self, register: int, params: bytes) -> tuple[bool, bytes]:
        """One command; returns whether it was understood, and the answer's values."""
        if register == _GET_VERSION:
            text = (
                f"{len(self._target)},{len(self._target)},XI130100,AC130100,{self.config.version}"
            )
            return True, text.encode()[:40].ljust(40, b"\0")
        if register == _MOTION_ENABLE and len(params) == 2:
            self.enabled = bool(params[1])
            self.log.event("enabled" if self.enabled else "disabled", "")
        elif register == _SET_STATE and len(params) == 1:
            self._set_state(params[0])
        elif register == _SET_MODE and params and params[0] <= _LAST_MODE:
            self.mode = params[0]
            self.state = STOPPED
        elif register == _SERVO_J and len(params) >= 28:
            return self._servo(np.array(struct.unpack_from("<7f", params), dtype=np.float64)), b""
        elif register in (_CLEAN_ERROR, _CLEAN_WARNING):
            if register == _CLEAN_ERROR:
                self.error = 0
            else:
                self.warning = 0
        elif register == _GET_STATE:
            return True, bytes([self.state])
        elif register == _GET_CMDNUM:
            return True, b"\0\0"
        elif register == _GET_ERROR:
            return True, bytes([self.error, self.warning])
        elif register == _GET_JOINTS:
            return True, self._joint_states(params[0] & 0x0F if params else 1)
        elif register == _GET_TORQUES:
            return True, struct.pack("<7f", *self._seven(self._plant.joint_torques()))
        elif register == _GET_POSE:
            return True, struct.pack("<6f", *self._pose())
        elif register == _TOOL_LINE and params:
            return True, self._pass_on(params)
        else:
            return False, b""
        return True, b""

    def _pass_on(self, params: bytes) -> bytes:
        """To the tool's line and back; who is not there is an error of the controller."""
        reply = None
        if self.gripper is not None and params[0] == HOST:
            reply = self.gripper.answer(params[1:])
        if reply is None:
            self.fail(TOOL_LINE_ERROR)
            return b""
        return bytes([HOST]) + reply

    def _set_state(self, state: int) -> None:
        if state == 0 and not self.error:
            self.state = STANDBY
            self._target = self._reference.copy()
        elif state in (PAUSED, STOPPED):
            self.state = state
            self._target = self._reference.copy()
            self.log.event("stopped", f"state {state}")

    def _servo(self, angles: Joints) -> bool:
        target = angles[: len(self._target)]
        if self.mode != SERVO_MODE or not self.ready or not np.isfinite(target).all():
            return False
        if np.abs(target - self._target).max() > _STEP_RAD * 250.0 / self.config.rate_hz:
            # The manual asks for small steps in servo mode; the real arm stops with a joint error.
            self.fail(24)
            return False
        self._target = target
        self.log.setpoint(time.monotonic_ns(), target)
        return True

    # -- physics ---------------------------------------------------------------------------------

    def control(self, now_ns: int, dt_s: float) -> None:
        """Follow the target at no more than the speed limit; the gripper follows its own."""
        if self.gripper is not None:
            self.gripper.step(now_ns)
        step = self.config.joint_speed_rad_s * dt_s
        goal = self._target if self.ready else self._reference
        before = self._reference
        self._reference = before + np.clip(goal - before, -step, step)
        self._plant.set_joint_targets(self._reference, (self._reference - before) / dt_s)

    def publish(self, now_ns: int) -> None:
        """Reports at their rate; motion and rest into the log."""
        speed = float(np.abs(self._plant.joint_velocities()).max())
        if self.log.moving:
            self._rest_ticks = self._rest_ticks + 1 if speed < 0.01 else 0
            if self._rest_ticks >= 10:
                self.log.rest(now_ns)
        elif speed > 0.05:
            self._rest_ticks = 0
            self.log.motion(now_ns)
        if now_ns - self._report_ns < 1e9 / self.config.report_hz or self.mute:
            return
        self._report_ns = now_ns
        frame = self.report()
        for connection in self._reports:
            connection.send(frame)

    def report(self) -> bytes:
        """One frame of the report stream (type "rich")."""
        on = _ALL_MOTORS if self.enabled else 0
        body = struct.pack(">BH", self.mode << 4 | self.state, 0)
        body += struct.pack("<7f", *self._seven(self._plant.joint_positions()))
        body += struct.pack("<6f", *self._pose())
        body += struct.pack("<7f", *self._seven(self._plant.joint_torques()))
        body += bytes([on, on, self.error, self.warning])
        return struct.pack(">I", REPORT_BYTES) + body.ljust(REPORT_BYTES - 4, b"\0")

    def _joint_states(self, count: int) -> bytes:
        plant = self._plant
        rows = (plant.joint_positions(), plant.joint_velocities(), plant.joint_torques())
        return b"".join(struct.pack("<7f", *self._seven(row)) for row in rows[: max(1, count)])

    def _seven(self, values: Joints) -> list[float]:
        return [*values.tolist(), *[0.0] * (7 - len(values))]

    def _pose(self) -> list[float]:
        x, y, z, *rotation = self._plant.tool_pose().tolist()
        return [1e3 * x, 1e3 * y, 1e3 * z, *rotation]
