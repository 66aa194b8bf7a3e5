"""Wraps the vendors' SDKs of serial servos, and adds what their clients lack.

``feetech-servo-sdk`` and ``dynamixel-sdk`` share their shape. Both busy-poll the port (80 % of a
core, holding the interpreter's lock), wait 34 ms for a lost packet, open a port that somebody else
uses, and after a lost packet take the late answer for the next one. :func:`open_port` gives their
``PortHandler`` a port that waits in the kernel, times out after ``reply_slack_s``, is locked, and
starts every request with an empty inbox; a line that babbles without end is cut off.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware.drivers.polling.loop import PORT_ERRORS, LostPacketError
from hardware.wire.servo_registers import HARDWARE_ERRORS, Register, ServoTable, named_bits
from robolearn.errors import MissingDependencyError, RobotConnectionError, RobotError

log = logging.getLogger(__name__)

SUCCESS = 0
# A request to one servo may be repeated without harm: it is, before it counts as lost.
ATTEMPTS = 3
WRITE_TIMEOUT_S = 0.1
# A request whose answers come for longer than this many times its time limit is babble.
_BABBLE = 4.0
# A line that is not quiet for the time of a late answer is waited for so many times as long.
_SETTLE = 5.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One servo's part of a sync read, in counts; ``error``: the status packet's error byte."""

    position: int
    velocity: int
    load: int
    error: int


@dataclass(frozen=True, slots=True)
class Health:
    """What a servo says about itself when asked alone."""

    torque_on: bool
    watchdog_tripped: bool
    # Names of its faults, "" for none.
    fault: str


def open_port(handler_class: type[Any], name: str, baud: int, reply_slack_s: float) -> Any:
    """A vendor's ``PortHandler`` over a locked port at ``baud``.

    Raises RobotConnectionError for a port that is absent, taken, forbidden or refuses the speed.
    """
    import serial

    class Port(handler_class):  # type: ignore[misc]
        cut_off = 0.0

        def setupPort(self, cflag_baud: int) -> bool:  # noqa: N802, ARG002  (the vendor's name)
            if self.is_open:
                self.closePort()
            self.ser = serial.Serial(
                port=self.port_name,
                baudrate=self.baudrate,
                timeout=0,
                write_timeout=WRITE_TIMEOUT_S,
                exclusive=True,
            )
            self.is_open = True
            self.ser.reset_input_buffer()
            self.tx_time_per_byte = 1e4 / self.baudrate
            return True

        def clearPort(self) -> None:  # noqa: N802
            self.ser.reset_input_buffer()

        def settle(self) -> None:
            """Wait until the line is quiet: answers carry no request, late ones would mislead."""
            give_up = time.monotonic() + _SETTLE * reply_slack_s
            while time.monotonic() < give_up:
                if not select.select([self.ser.fileno()], [], [], reply_slack_s)[0]:
                    return
                self.ser.reset_input_buffer()

        def readPort(self, length: int) -> bytes:  # noqa: N802
            left_s = 1e-3 * (self.packet_timeout - self.getTimeSinceStart())
            if left_s > 0.0:
                select.select([self.ser.fileno()], [], [], left_s)
            elif time.monotonic() > self.cut_off:
                raise LostPacketError(f"{self.port_name}: bytes without end that are no answer")
            return bytes(self.ser.read(length))

        def setPacketTimeout(self, packet_length: int) -> None:  # noqa: N802
            limit_ms = self.tx_time_per_byte * packet_length + 1e3 * reply_slack_s
            self.setPacketTimeoutMillis(limit_ms)

        def setPacketTimeoutMillis(self, msec: float) -> None:  # noqa: N802
            self.packet_start_time = self.getCurrentTime()
            self.packet_timeout = msec
            self.cut_off = time.monotonic() + 1e-3 * _BABBLE * msec

        def getCurrentTime(self) -> float:  # noqa: N802
            # The vendors read the wall clock, which may jump.
            return 1e3 * time.monotonic()

    port = Port(name)
    try:
        opened = port.setBaudRate(baud)
        if opened:
            port.settle()
    except (*PORT_ERRORS, ValueError) as error:
        if port.is_open:
            with contextlib.suppress(*PORT_ERRORS):
                port.closePort()
        raise RobotConnectionError(_open_problem(name, error)) from error
    if not opened:
        raise RobotConnectionError(
            f"{name}: the vendor's library has no speed of {baud} baud; 1000000 is usual"
        )
    _warn_of_slow_adapter(name)
    return port


def ports() -> list[str]:
    """Serial ports of this machine, those of USB adapters first."""
    from serial.tools import list_ports

    found = sorted(list_ports.comports(), key=lambda p: (p.vid is None, p.device))
    return [str(p.device) for p in found]


def port_serial(name: str) -> str:
    """Serial number of the USB adapter behind a port ("" for ports without one)."""
    from serial.tools import list_ports

    real = str(Path(name).resolve())
    return next((p.serial_number or "" for p in list_ports.comports() if p.device == real), "")


def import_sdk(module: str, package: str, extra: str) -> Any:
    """An SDK's module, or MissingDependencyError that names its extra."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"this driver needs the package {package} ({error}); install it with"
            f" 'pip install robolearn[{extra}]' in this environment"
        ) from error


class SdkLine:
    """Requests to servos by id, through a vendor's packet handler. One thread at a time.

    Every method raises :class:`LostPacketError` for an answer that did not come or was damaged,
    RobotError for one that refuses, and OSError or ``termios.error`` when the port is gone.
    """

    def __init__(self, table: ServoTable, packets: Any, port: Any, ids: Sequence[int]) -> None:
        self.table, self.ids = table, tuple(ids)
        self._packets, self._port = packets, port
        # Dynamixel's syncReadTx has one more argument (Fast Sync Read, which not all models know).
        self._fast = (False,) if table.space > 256 else ()
        # Where a status packet has its id, its error byte and its data.
        self._id_at, self._error_at = (4, 8) if self._fast else (2, 4)
        # Bytes that the length counts besides the data, and those between length and error.
        self._overhead, self._skip = (4, 1) if self._fast else (2, 0)
        self._suspect = False

    def close(self) -> None:
        """Close the port."""
        self._port.closePort()

    def settle(self) -> None:
        """Wait until no late answer is on its way."""
        self._port.settle()

    def read(self, servo: int, register: Register, attempts: int = ATTEMPTS) -> int:
        """One register of one servo."""
        return register.decode(self._read(servo, register.address, register.size, attempts))

    def write(self, servo: int, register: Register, value: int) -> None:
        """Write one register of one servo and wait for its acknowledgement."""
        data = list(register.encode(value))
        result, error = -1, 0
        for _ in range(ATTEMPTS):
            self._begin()
            result, error = self._packets.writeTxRx(
                self._port, servo, register.address, register.size, data
            )
            if result == SUCCESS:
                break
        self._check(servo, result, f"a write to register {register.address}")
        refused = error & ~sum(self.table.errors)
        if refused:
            raise RobotError(
                f"servo {servo} refuses {value} for register {register.address}:"
                f" {self._packets.getRxPacketError(refused)}"
            )

    def readings(self) -> list[Reading]:
        """Position, velocity and load of all servos, in one sync read."""
        t = self.table
        first = t.state_address

        def part(data: bytes, register: Register) -> int:
            at = register.address - first
            return register.decode(data[at : at + register.size])

        return [
            Reading(
                part(data, t.present_position),
                part(data, t.present_velocity),
                part(data, t.load),
                error,
            )
            for data, error in self._sync_read(first, t.state_size)
        ]

    def read_all(self, register: Register) -> list[int]:
        """One register of all servos, in one sync read."""
        answers = self._sync_read(register.address, register.size)
        return [register.decode(data) for data, _ in answers]

    def send_all(self, register: Register, values: Sequence[int]) -> None:
        """One register of all servos in one sync write, which servos do not acknowledge."""
        params: list[int] = []
        for servo, value in zip(self.ids, values, strict=True):
            params += [servo, *register.encode(value)]
        self._begin()
        result = self._packets.syncWriteTxOnly(
            self._port, register.address, register.size, params, len(params)
        )
        if result != SUCCESS:
            raise LostPacketError(self._packets.getTxRxResult(result))

    def write_all(self, register: Register, values: Sequence[int]) -> None:
        """:meth:`send_all`, read back. Raises RobotError when a servo kept another value."""
        self.send_all(register, values)
        for servo, value, kept in zip(self.ids, values, self.read_all(register), strict=True):
            if kept != value:
                raise RobotError(
                    f"servo {servo} does not take {value} for register {register.address}, it"
                    f" keeps {kept}"
                )

    def health(self, servo: int) -> Health:
        """Torque, watchdog and faults of one servo."""
        return self._healthy(self._read(servo, self.table.health_address, self.table.health_size))

    def health_all(self) -> list[Health]:
        """The same of all servos, in one sync read."""
        t = self.table
        return [self._healthy(data) for data, _ in self._sync_read(t.health_address, t.health_size)]

    def _healthy(self, data: bytes) -> Health:
        t = self.table

        def value(register: Register | None) -> int:
            if register is None:
                return 0
            at = register.address - t.health_address
            return register.decode(data[at : at + register.size])

        fault = named_bits(value(t.hardware_error), HARDWARE_ERRORS)
        return Health(bool(value(t.torque_enable)), value(t.watchdog) < 0, fault)

    def _read(self, servo: int, address: int, size: int, attempts: int = ATTEMPTS) -> bytes:
        what = f"a read of register {address}"
        for _ in range(attempts - 1):
            with contextlib.suppress(LostPacketError):
                return self._read_once(servo, address, size, what)
        return self._read_once(servo, address, size, what)

    def _read_once(self, servo: int, address: int, size: int, what: str) -> bytes:
        self._begin()
        self._check(servo, self._packets.readTx(self._port, servo, address, size), what)
        return self._receive(servo, size, what)[0]

    def _begin(self) -> None:
        # A request that an exception cut off would leave the SDK's port busy for ever.
        self._port.is_using = False
        if self._suspect:
            self._port.settle()
            self._suspect = False

    def _receive(self, servo: int, size: int, what: str) -> tuple[bytes, int]:
        """One status packet of exactly ``size`` bytes and its error byte.

        The SDKs' ``readRx`` cuts a longer packet (a late answer to another request) to size.
        """
        while True:
            packet, result = self._packets.rxPacket(self._port, *self._fast)
            self._check(servo, result, what)
            if packet[self._id_at] == servo:
                break
        length = int.from_bytes(
            bytes(packet[self._id_at + 1 : self._error_at - self._skip]), "little"
        )
        if length != size + self._overhead:
            self._suspect = True
            raise LostPacketError(f"servo {servo}, {what}: an answer of another length")
        first = self._error_at + 1
        return bytes(packet[first : first + size]), int(packet[self._error_at])

    def _sync_read(self, address: int, size: int) -> list[tuple[bytes, int]]:
        ids = list(self.ids)
        self._begin()
        result = self._packets.syncReadTx(self._port, address, size, ids, len(ids), *self._fast)
        self._check(ids[0], result, "a sync read")
        return [self._receive(servo, size, "a sync read") for servo in ids]

    def _check(self, servo: int, result: int, what: str) -> None:
        if result != SUCCESS:
            self._suspect = True
            text = str(self._packets.getTxRxResult(result)).removeprefix("[TxRxResult] ")
            raise LostPacketError(f"servo {servo} at {self._port.port_name}, {what}: {text}")


def _open_problem(name: str, error: Exception) -> str:
    code = getattr(error, "errno", None)
    path = Path(name)
    if not path.exists():
        existing = ports()
        return f"there is no serial port {name}; there are: {existing or 'none'}"
    if code in (errno.EACCES, errno.EPERM):
        return (
            f"no permission to open {name}; add yourself to its group with 'sudo usermod -aG"
            ' dialout $USER\' and log in again (or a udev rule: SUBSYSTEM=="tty",'
            ' MODE="0660", GROUP="dialout", TAG+="uaccess")'
        )
    if code in (errno.EAGAIN, errno.EBUSY) or "exclusively lock" in str(error):
        return f"{name} is in use by another process; 'fuser -v {name}' shows which. End it first"
    return f"cannot open {name}: {error}"


def _warn_of_slow_adapter(name: str) -> None:
    """FTDI adapters hold bytes back for 16 ms unless told."""
    timer = Path("/sys/bus/usb-serial/devices") / Path(name).resolve().name / "latency_timer"
    if not timer.exists():
        return
    latency_ms = int(timer.read_text())
    if latency_ms > 1:
        log.warning(
            "%s holds answers back for %d ms; 'echo 1 | sudo tee %s' cures it",
            *(name, latency_ms, timer),
        )
