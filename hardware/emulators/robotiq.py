"""A Robotiq 2F gripper behind the URCap's socket (TCP 63352), as text.

``GET POS`` is answered by ``POS 128``, ``SET POS 255 SPE 100 FOR 50 GTO 1`` by ``ack``; one request
per line. Variables and values: Robotiq, "2F-85 & 2F-140 Instruction Manual", register mapping.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from types import MappingProxyType

from hardware.emulators.loop import Connection, EmulatorLoop

PORT = 63352
LINE_LIMIT = 512
MAX_CLIENTS = 4
# Counts per second at the largest speed: 150 mm/s over 85 mm (data sheet of the 2F-85).
FULL_SPEED = 255 * 0.150 / 0.085
SETTABLE = ("ACT", "GTO", "ATR", "ARD", "FOR", "SPE", "POS", "MOD")
READABLE = (*SETTABLE, "STA", "PRE", "OBJ", "FLT")
_PAIR = re.compile(r"([A-Z]{3}) (\d{1,3})")
MOVING, STOPPED_CLOSING, AT_REQUEST = 0, 2, 3
_NO_OBJECT = 1000.0


class RobotiqEmulator:
    """One gripper. :attr:`object_at`: counts at which closing fingers meet something."""

    def __init__(self) -> None:
        self.activated = False
        self.fault = 0
        self.mute = False
        self.position = 3.0
        self.object_at = _NO_OBJECT
        self.values = {"POS": 0, "SPE": 255, "FOR": 0, "GTO": 0, "ATR": 0, "ARD": 0, "MOD": 0}
        self.garbage_replies = 0
        self._held = False
        self._last_ns = 0
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
        dt_s = 0.0 if self._last_ns == 0 else max(0, now_ns - self._last_ns) * 1e-9
        self._last_ns = now_ns
        if not (self.activated and self.values["GTO"]) or self.fault:
            return
        step = max(0.1, self.values["SPE"] / 255) * FULL_SPEED * dt_s
        away = self.values["POS"] - self.position
        target = self.position + max(-step, min(step, away))
        self._held = target >= self.object_at and away > 0
        self.position = min(target, self.object_at) if away > 0 else target

    def status(self) -> Mapping[str, int]:
        """Every readable variable."""
        at = round(self.position)
        obj = MOVING if at != self.values["POS"] and self.values["GTO"] else AT_REQUEST
        return MappingProxyType(
            {
                **self.values,
                "ACT": int(self.activated),
                "STA": 3 if self.activated else 0,
                "PRE": self.values["POS"],
                "POS": at,
                "OBJ": STOPPED_CLOSING if self._held else obj,
                "FLT": self.fault,
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
                self.fault = self.fault if value else 0
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
