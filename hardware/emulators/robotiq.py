"""Emulates a Robotiq 2F gripper behind the URCap's socket (TCP 63352), as text.

``GET POS`` is answered by ``POS 128``, ``SET POS 255 SPE 100 FOR 50 GTO 1`` by ``ack``; one request
per line. Variables and values: Robotiq, "2F-85 & 2F-140 Instruction Manual", register mapping.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hardware.emulators.finger_servo import FingerServo
from hardware.emulators.loop import Connection, EmulatorLoop
from hardware.emulators.plant import FingerPlant
from robolearn.errors import ConfigError

PORT = 63352
LINE_LIMIT = 512
MAX_CLIENTS = 4
# Data sheet of the 2F-85: stroke [m] and largest speed [m/s].
STROKE_M, FULL_SPEED_M_S = 0.085, 0.150
SETTABLE = ("ACT", "GTO", "ATR", "ARD", "FOR", "SPE", "POS", "MOD")
READABLE = (*SETTABLE, "STA", "PRE", "OBJ", "FLT")
_PAIR = re.compile(r"([A-Z]{3}) (\d{1,3})")
MOVING, STOPPED_CLOSING, AT_REQUEST = 0, 2, 3
STOPPED_OPENING = 1
# Positions that open and closed fingers report (hardware/drivers/robotiq.py has the same defaults).
OPEN_COUNTS, CLOSED_COUNTS = 3, 228
_COUNTS = CLOSED_COUNTS - OPEN_COUNTS
# Data sheet of the 2F-85: 20 to 235 N.
_LEAST_FORCE = 20.0 / 235.0
FAULTS = ("mute", "listen", "drop_links", "garbage", "fault", "deactivate")


@dataclass(frozen=True, slots=True)
class RobotiqEmulatorConfig:
    """The emulated gripper of a lab."""

    # Where the URCap's socket listens.
    port: int = PORT
    # Active from the start, as after an earlier program.
    activated: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"gripper: port must be 0 (any free one) to 65535, got {self.port}")


class RobotiqEmulator:
    """One gripper, alone or moving the ``fingers`` of a plant."""

    def __init__(self, fingers: FingerPlant | None = None, *, activated: bool = False) -> None:
        self.activated = activated
        self.fingers = FingerServo(fingers, STROKE_M)
        self.fault_code = 0
        self.mute = False
        self.values = {"POS": 0, "SPE": 255, "FOR": 0, "GTO": 0, "ATR": 0, "ARD": 0, "MOD": 0}
        self.garbage_replies = 0
        self._clients: list[Connection] = []

    def serve(self, loop: EmulatorLoop, address: str, port: int = PORT) -> int:
        """Listen; returns the port."""

        def accept(sock: socket.socket) -> None:
            self._clients = [c for c in self._clients if c.open]
            if len(self._clients) >= MAX_CLIENTS:
                sock.close()
                return
            self._clients.append(Connection(loop, sock, self._on_bytes))

        loop.add_tick(lambda now_ns, _periods: self.step(now_ns))
        return loop.listen(address, port, accept, "gripper")

    def drop_links(self) -> None:
        """Fault: close every connection."""
        for connection in self._clients:
            connection.close()

    def step(self, now_ns: int) -> None:
        """Move the fingers."""
        fingers, values = self.fingers, self.values
        if not (self.activated and values["GTO"]) or self.fault_code:
            fingers.rest(now_ns)
            return
        speed_m_s = max(0.1, values["SPE"] / 255) * FULL_SPEED_M_S
        goal_m = (CLOSED_COUNTS - values["POS"]) / _COUNTS * fingers.stroke_m
        share = _LEAST_FORCE + (1.0 - _LEAST_FORCE) * values["FOR"] / 255
        fingers.step(now_ns, goal_m, speed_m_s, share)

    def fault(self, kind: str, amount: int) -> None:
        """Cause one of :data:`FAULTS`; ``amount``: garbage replies, or the code of ``fault``."""
        if kind == "drop_links":
            self.drop_links()
        elif kind == "garbage":
            self.garbage_replies = amount
        elif kind == "fault":
            self.fault_code = amount
        elif kind == "deactivate":
            self.activated = False
        else:
            self.mute = kind == "mute"

    def status(self) -> Mapping[str, int]:
        """Every readable variable."""
        at = round(CLOSED_COUNTS - self.fingers.width_m / self.fingers.stroke_m * _COUNTS)
        # The real one calls a request that ends at the fingers' end reached.
        near = abs(at - max(OPEN_COUNTS, min(CLOSED_COUNTS, self.values["POS"]))) <= 1
        obj = MOVING if not near and self.values["GTO"] else AT_REQUEST
        stopped = STOPPED_OPENING if self.fingers.opening else STOPPED_CLOSING
        return MappingProxyType(
            {
                **self.values,
                "ACT": int(self.activated),
                "STA": 3 if self.activated else 0,
                "PRE": self.values["POS"],
                "POS": at,
                "OBJ": stopped if self.fingers.held else obj,
                "FLT": self.fault_code,
            }
        )

    def answer(self, line: str) -> str:
        """The reply to one request."""
        verb, _, rest = line.partition(" ")
        if verb == "GET" and rest in READABLE:
            return f"{rest} {self.status()[rest]}"
        if verb != "SET" or not re.fullmatch(rf"{_PAIR.pattern}( {_PAIR.pattern})*", rest):
            return "?"
        pairs = [(name, int(value)) for name, value in _PAIR.findall(rest)]
        if any(name not in SETTABLE or value > 255 for name, value in pairs):
            return "?"
        for name, value in pairs:
            if name == "ACT":
                self.activated = bool(value)
                self.fault_code = self.fault_code if value else 0
            else:
                self.values[name] = value
        return "ack"

    def _on_bytes(self, connection: Connection, data: bytes) -> None:
        *lines, rest = (bytes(connection.inbox) + data).split(b"\n")
        connection.inbox = bytearray(rest)
        if len(rest) > LINE_LIMIT:
            connection.close()
            return
        for line in lines:
            if self.mute or not connection.open:
                return
            reply = self.answer(line.decode("ascii", "replace").strip())
            if self.garbage_replies > 0:
                self.garbage_replies -= 1
                reply = "\x00POS 12x"
            connection.send(reply.encode() + b"\n")
