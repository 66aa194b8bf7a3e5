"""Drives Robotiq 2F grippers through the socket that their URCap opens on a UR controller.

Text over TCP 63352 (see ``hardware/emulators/robotiq.py``); no library is needed. Variables:
Robotiq, "2F-85 & 2F-140 Instruction Manual": STA 3 activated, OBJ 0 moving, 1 and 2 stopped on
something while opening or closing, 3 at the request, FLT 0 no fault.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from hardware.devices.gripper import GripperState
from hardware.devices.robot import Robot, RobotMode
from hardware.drivers.polling.gripper import GripperLoop, PolledGripper
from hardware.drivers.polling.loop import LostPacketError
from robolearn.errors import ConfigError, RobotConnectionError, RobotError

PORT = 63352
LINE_LIMIT = 256
ACTIVATE_S = 6.0
_ACTIVATED, _MOVING, _AT_REQUEST = 3, 0, 3
_ON_OBJECT = (1, 2)
# FLT 5, 7 and 9 are priority faults that go away (activation needed, busy, voltage); the rest of
# the manual's list needs a person.


@dataclass(frozen=True, slots=True)
class RobotiqConfig:
    """A gripper on the wrist of a UR arm."""

    # The UR controller's address.
    address: str
    # Where the URCap listens.
    port: int = PORT
    # Largest distance of the fingers [m]: 0.085 or 0.14.
    stroke_m: float = 0.085
    # Position that open fingers report.
    open_counts: int = 3
    # Position that closed fingers report.
    closed_counts: int = 228
    # States per second [Hz].
    rate_hz: float = 30.0
    # Patience with an answer [s].
    answer_s: float = 0.2
    # So many states in a row without an answer are a fault.
    max_lost: int = 3
    # Activate a gripper that is not active when connecting: it opens and closes once.
    activate: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.open_counts < self.closed_counts <= 255 and self.stroke_m > 0):
            raise ConfigError(
                "gripper: 0 <= open_counts < closed_counts <= 255 and a positive stroke are"
                f" needed, got {self.open_counts}, {self.closed_counts}, {self.stroke_m}"
            )

    def counts(self, width_m: float) -> int:
        """The register's value of a width [m]."""
        span = self.closed_counts - self.open_counts
        return round(self.closed_counts - width_m / self.stroke_m * span)

    def width(self, counts: int) -> float:
        """The width [m] of a register's value."""
        share = (self.closed_counts - counts) / (self.closed_counts - self.open_counts)
        return self.stroke_m * max(0.0, min(1.0, share))

    @property
    def mounted(self) -> bool:
        """False: the URCap's socket is there whatever the arm's driver does."""
        return False

    def build(self, arm: Robot | None = None) -> RobotiqGripper:
        """Make the gripper (in the process that will own it)."""
        del arm
        return RobotiqGripper(self)


class RobotiqGripper(PolledGripper["RobotiqLoop"]):
    """A :class:`~hardware.devices.gripper.Gripper`."""

    def __init__(self, config: RobotiqConfig) -> None:
        super().__init__(f"gripper at {config.address}:{config.port}", config.stroke_m)
        self.config = config

    def open(self) -> RobotiqLoop:
        """Connect; with ``activate`` the fingers open and close once unless they were active."""
        loop = RobotiqLoop(self.config)
        try:
            loop.activate()
            loop.exchange()
        except BaseException:
            loop.disconnect()
            raise
        return loop


class RobotiqLoop(GripperLoop):
    """One exchange: the newest request out, position and status in."""

    def __init__(self, config: RobotiqConfig) -> None:
        name = f"gripper at {config.address}:{config.port}"
        super().__init__(name, rate_hz=config.rate_hz, max_lost=config.max_lost)
        self._config = config
        self._request = ""
        self._inbox = b""
        try:
            self._socket = socket.create_connection((config.address, config.port), timeout=2.0)
        except OSError as error:
            raise RobotConnectionError(
                f"no gripper answers at {config.address}:{config.port} ({error}); check that the"
                " Robotiq URCap is installed and the arm is on"
            ) from error
        self._socket.settimeout(config.answer_s)

    def set_goal(self, width_m: float, speed: float, force: float) -> None:
        """The newest request; an unsent older one is replaced."""
        counts = self._config.counts(width_m)
        request = f"SET POS {counts} SPE {round(255 * speed)} FOR {round(255 * force)} GTO 1"
        with self.lock:
            self._request = request

    def activate(self) -> None:
        """Raises RobotError when the gripper does not become ready."""
        if self._get("STA") == _ACTIVATED and self._get("FLT") == 0:
            return
        if not self._config.activate:
            raise RobotError(
                f"{self.name} is not activated. Keep hands off (it opens and closes once), then"
                " activate it at the pendant, by 'robolearn hardware check', or with 'activate:"
                " true' in the gripper's config"
            )
        self._set("SET ACT 0")
        self._set("SET ACT 1")
        deadline = time.monotonic() + ACTIVATE_S
        while self._get("STA") != _ACTIVATED or self._get("FLT"):
            if time.monotonic() > deadline:
                raise RobotError(
                    f"{self.name} does not become ready (fault {self._get('FLT')}); free the"
                    " fingers, check its supply, then connect again"
                )
            time.sleep(0.05)

    def exchange(self) -> None:
        """Send the newest request, read and publish the state."""
        with self.lock:
            request, self._request = self._request, ""
        if request:
            self._set(request)
        counts, status, fault = self._get("POS"), self._get("OBJ"), self._get("FLT")
        if fault:
            raise RobotError(
                f"{self.name} reports fault {fault}; see the gripper's manual, then connect again"
            )
        if self._get("STA") != _ACTIVATED:
            raise RobotError(
                f"{self.name} is not activated any more (its supply, or somebody at the pendant);"
                " activate it, then connect again"
            )
        self.cycles += 1
        self.state = GripperState(
            time.monotonic_ns(),
            self._config.width(counts),
            moving=status == _MOVING,
            holding=status in _ON_OBJECT,
        )

    def hold(self) -> bool:
        """Request the present position; fingers that hold something go on gripping."""
        with self.lock:
            self._request = ""
        if self._get("OBJ") in _ON_OBJECT:
            return True
        counts = self._get("POS")
        self._set(f"SET POS {counts} GTO 1")
        return abs(self._get("PRE") - counts) <= 1

    def hold_who_listens(self) -> None:
        """Nothing: who does not answer keeps its last request."""

    def mark(self, mode: RobotMode) -> None:
        """Nothing: the age of the state tells."""

    def disconnect(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _get(self, name: str) -> int:
        words = self._ask(f"GET {name}").split()
        if len(words) != 2 or words[0] != name or not words[1].isdigit() or int(words[1]) > 255:
            raise LostPacketError(f"{self.name}: expected '{name} 0..255', got {words}")
        return int(words[1])

    def _set(self, request: str) -> None:
        reply = self._ask(request)
        if reply != "ack":
            raise LostPacketError(f"{self.name}: '{request}' was answered by {reply!r}")

    def _ask(self, request: str) -> str:
        self._inbox = b""
        try:
            self._drop_late_answers()
            self._socket.sendall(request.encode() + b"\n")
            while b"\n" not in self._inbox:
                data = self._socket.recv(LINE_LIMIT)
                if not data:
                    raise ConnectionResetError("closed by the controller")
                self._inbox += data
                if len(self._inbox) > LINE_LIMIT:
                    raise LostPacketError(f"{self.name}: a line without end")
        except TimeoutError as error:
            raise LostPacketError(f"{self.name}: no answer to '{request}'") from error
        return self._inbox.split(b"\n")[0].decode("ascii", "replace").strip()

    def _drop_late_answers(self) -> None:
        self._socket.setblocking(False)
        try:
            if self._socket.recv(1 << 16) == b"":
                raise ConnectionResetError("closed by the controller")
        except BlockingIOError:
            return
        finally:
            self._socket.settimeout(self._config.answer_s)
