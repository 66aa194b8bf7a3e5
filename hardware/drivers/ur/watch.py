"""Watches whether a UR controller is alive while ``ur_rtde`` connects.

The constructors of ur_rtde 1.6.5 hold the interpreter's lock and have no time limit: when the
controller hangs, the whole process hangs with them. The owner's other process therefore looks at
the controller through a small RTDE client of its own, and connecting is given up when the
controller's clock stands still, however long a healthy connection may take.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable

from hardware.wire import rtde
from robolearn.errors import DataError, RobotConnectionError

RTDE_PORT = 30004
RATE_HZ = 50.0
_LONGEST = 1024
_STAMP = struct.Struct(">Bd")


class URWatch:
    """A client that reads the controller's clock; see :meth:`problem`.

    ``silence_s``: a controller that sends nothing new for so long does not live any more [s].
    """

    def __init__(
        self, address: str, silence_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.address, self._silence_s, self._clock = address, silence_s, clock
        self._stamp = -1.0
        self._inbox = bytearray()
        self._connected = False
        self._problem = ""
        self._progress_s = clock()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            code = self._socket.connect_ex((address, RTDE_PORT))
        except OSError as error:  # the name cannot be resolved
            self._problem = self._unreachable(error.strerror or str(error))
        else:
            if code not in (0, errno.EINPROGRESS):
                self._problem = self._unreachable(os.strerror(code))

    @property
    def alive(self) -> bool:
        """True once the controller's clock was seen."""
        return self._stamp >= 0.0 and not self._problem

    def problem(self) -> str:
        """Why connecting cannot succeed any more, "" while all is well. Never blocks; whoever
        waits calls it at least every 50 ms.
        """
        if self._problem:
            return self._problem
        try:
            self._look()
        except (DataError, OSError, struct.error) as error:
            self._problem = self._problem or (
                f"UR at {self.address}: the controller broke the connection off or sent what is no"
                f" RTDE ({error}); check cable and controller, then connect again"
            )
        silent_s = self._clock() - self._progress_s
        if not self._problem and silent_s > self._silence_s:
            self._problem = self._silent(silent_s)
        return self._problem

    def wait(self) -> None:
        """Until the clock was seen; raises RobotConnectionError for a :meth:`problem`."""
        while not self.alive:
            if problem := self.problem():
                raise RobotConnectionError(problem)
            time.sleep(0.002)

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        self._socket.close()

    def _silent(self, silent_s: float) -> str:
        duration = f"for {1e3 * silent_s:.0f} ms while connecting"
        if not self._connected:
            return self._unreachable(f"no answer {duration}")
        return (
            f"UR at {self.address}: the controller's clock stood still {duration}; it hangs or the"
            " link is down. Check both, then connect again"
        )

    def _unreachable(self, why: str) -> str:
        return (
            f"no UR controller answers at {self.address}:{RTDE_PORT} ({why}); check the address,"
            " the cable and that the controller is on (for the virtual lab: 'robolearn lab' or"
            " deploy --start-lab)"
        )

    def _look(self) -> None:
        if not self._connected:
            self._finish_connecting()
        while self._connected:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            if not data:
                raise DataError("end of stream")
            self._inbox += data
            while (item := rtde.take_frame(self._inbox)) is not None:
                self._message(*item)
            if len(self._inbox) >= 2 and int.from_bytes(self._inbox[:2]) > _LONGEST:
                raise DataError("a frame longer than any that was asked for")

    def _finish_connecting(self) -> None:
        if not select.select([], [self._socket], [], 0.0)[1]:
            return
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._problem = self._unreachable(os.strerror(code))
            return
        self._connected = True
        self._send(rtde.VERSION, struct.pack(">H", 2))

    def _message(self, kind: int, body: bytes) -> None:
        if kind == rtde.VERSION and body == b"\x01":
            self._send(rtde.OUTPUTS, struct.pack(">d", RATE_HZ) + b"timestamp")
        elif kind == rtde.OUTPUTS and body[1:] == b"DOUBLE":
            self._send(rtde.START, b"")
        elif kind == rtde.START and body == b"\x01":
            self._progress_s = self._clock()
        elif kind == rtde.DATA and len(body) == _STAMP.size:
            stamp = float(_STAMP.unpack(body)[1])
            if stamp != self._stamp:
                self._stamp, self._progress_s = stamp, self._clock()
        elif kind != rtde.TEXT:
            raise DataError(f"an unexpected message of type {kind} and {len(body)} bytes")

    def _send(self, kind: int, body: bytes) -> None:
        self._progress_s = self._clock()
        self._socket.sendall(rtde.frame(kind, body))
