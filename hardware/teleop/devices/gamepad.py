"""Drives by a gamepad, read from the kernel (evdev): sticks, triggers, a dead-man button.

    left bumper (or right)  held: the pad drives        left stick   forward, left
    right trigger           closes the gripper          right stick  up, turn
    start, A, B, back       start, keep, discard, quit  cross        pitch, roll

The kernel's names of buttons and axes are the same for all pads
(https://docs.kernel.org/input/gamepad.html). An axis that does not change sends nothing, so silence
says nothing here: what the pad told last holds until it tells another thing or is gone.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.devices.claim import DeviceClaim
from hardware.teleop.device import DeviceReading, Key, Keys, Rate, Surroundings, View
from hardware.teleop.listening import Listener, open_file
from robolearn.errors import ConfigError

# struct input_event of 64-bit Linux: seconds, microseconds, type, code, value.
EVENT = struct.Struct("qqHHi")
SYN, KEY, ABS = 0, 1, 3
DROPPED = 3
X, Y, Z, RX, RY, RZ, HAT_X, HAT_Y = 0, 1, 2, 3, 4, 5, 16, 17
SOUTH, EAST, NORTH, WEST, TL, TR, TL2, SELECT, START = (
    0x130, 0x131, 0x133, 0x134, 0x136, 0x137, 0x138, 0x13A, 0x13B
)  # fmt: skip
DEAD_MAN = (TL, TR)
BUTTONS: dict[int, Key] = {
    START: "start", SOUTH: "keep", EAST: "discard", SELECT: "quit", NORTH: "takeover",
    WEST: "handback",
}  # fmt: skip
# What the same buttons say while the left trigger is held: none is said by a slip of the thumb.
SHIFTED: dict[int, Key] = {
    START: "redo", SOUTH: "success", EAST: "failure", NORTH: "marker"
}  # fmt: skip
# Component of the twist and its sign: sticks grow to the right and down.
_STICKS = {Y: (0, -1), X: (1, -1), RY: (2, -1), RX: (5, -1), HAT_X: (3, 1), HAT_Y: (4, 1)}
TRIGGERS = (Z, RZ)
# Of a trigger's way: from there on it is held. Some pads have a stick there, half over at rest.
_SHIFT = 0.75
_STICK_RANGE, _TRIGGER_RANGE, _HAT_RANGE = (-32768, 32767), (0, 255), (-1, 1)
INPUTS, SYSTEM = Path("/dev/input"), Path("/sys/class/input")
# Of the bits that say which buttons an event device has: one word of sysfs, and all [bytes].
_WORD_BITS, _KEY_BYTES = 64, 96

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GamepadConfig:
    """A gamepad of this computer."""

    # As /dev/input/event5; empty: the only one there is.
    path: str = ""

    @property
    def keys(self) -> Keys:
        """It has buttons of its own; a terminal's keys are welcome."""
        return "welcome"

    def build(self, around: Surroundings) -> Gamepad:
        """Find and open it. ConfigError says what is there; it has one owner at a time."""
        del around
        path = self.path or find_gamepad()
        claim = DeviceClaim(path)
        claim.take()
        try:
            require_gamepad(path)
            return Gamepad(lambda: open_file(path), claim.release)
        except ConfigError:
            claim.release()
            raise
        except OSError as error:
            claim.release()
            raise ConfigError(
                f"cannot open {path}: {error.strerror}. A pad that the system does not know is"
                ' allowed by a udev rule: KERNEL=="event*", ENV{ID_INPUT_JOYSTICK}=="1",'
                ' TAG+="uaccess"'
            ) from error


class Gamepad:
    """Reads events until :meth:`close`; ``open_fd`` opens the device, also after it was away."""

    name = "gamepad"
    lease_s = 0.5

    def __init__(
        self, open_fd: Callable[[], int], closed: Callable[[], None] = lambda: None
    ) -> None:
        self._open, self._closed = open_fd, closed
        self._lock = threading.Lock()
        self._ranges: dict[int, Range] = {}
        self._pressed: list[Key] = []
        self._rest = b""
        self._let_go()
        self._present = True
        self._gripping = False
        self._listener = Listener("gamepad", self._opened, self._take, self._lost)

    def begin(self, opening: float | None) -> None:
        """The trigger is absolute; the mapping lets it take hold."""
        with self._lock:
            self._gripping = opening is not None

    def poll(self) -> DeviceReading:
        """What the sticks say; held while a bumper is."""
        with self._lock:
            twist = np.zeros(6)
            for axis, (component, sign) in _STICKS.items():
                twist[component] = sign * self._axes.get(axis, 0.0)
            opening = 1.0 - max(0.0, self._axes.get(RZ, 0.0)) if self._gripping else None
            held = bool(self._held)
            return DeviceReading(time.monotonic_ns(), self._present, held, Rate(twist), opening)

    def pressed(self) -> tuple[Key, ...]:
        """Buttons since the last call."""
        with self._lock:
            pressed, self._pressed = tuple(self._pressed), []
        return pressed

    def show(self, view: View) -> None:
        """A pad shows nothing."""

    def close(self) -> None:
        """Let go of the device; safe to call twice."""
        self._listener.close()
        self._closed()

    def _opened(self) -> int:
        fd = self._open()
        with self._lock:
            self._fd, self._present = fd, True
            self._look()
        return fd

    def _look(self) -> None:
        """A stick that is held over tells nothing by itself: where all axes stand now."""
        axes = {code: read_axis(self._fd, code) for code in (*_STICKS, *TRIGGERS)}
        self._ranges = {code: told[1] for code, told in axes.items()}
        self._axes = {code: self._scaled(code, told[0]) for code, told in axes.items()}

    def _let_go(self) -> None:
        self._axes: dict[int, float] = {}
        self._held: set[int] = set()
        self._shifted = False

    def _lost(self) -> None:
        with self._lock:
            self._present, self._rest = False, b""
            self._let_go()

    def _take(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % EVENT.size
        self._rest = data[whole:]
        with self._lock:
            for _, _, kind, code, value in EVENT.iter_unpack(data[:whole]):
                self._event(kind, code, value)

    def _event(self, kind: int, code: int, value: int) -> None:
        if kind == SYN and code == DROPPED:
            # What was lost may be a release: everything is let go, and must be taken anew, at rest.
            self._let_go()
            self._look()
        elif kind == ABS and (code in _STICKS or code in TRIGGERS):
            self._axes[code] = self._scaled(code, value)
        elif kind == KEY and code in DEAD_MAN:
            (self._held.add if value else self._held.discard)(code)
        elif kind == KEY and code == TL2:
            # Pads whose left trigger is a button, too, or nothing else.
            self._shifted = bool(value)
        elif kind == KEY and value == 1:
            shifted = self._shifted or self._axes.get(Z, 0.0) > _SHIFT
            said = (SHIFTED if shifted else BUTTONS).get(code)
            if said is not None:
                self._pressed.append(said)

    def _scaled(self, code: int, value: int) -> float:
        low, high = self._ranges[code]
        share = (value - low) / (high - low)
        least, scaled = (0.0, share) if code in TRIGGERS else (-1.0, 2.0 * share - 1.0)
        return min(1.0, max(least, scaled))


def read_axis(fd: int, code: int) -> tuple[int, Range]:
    """Value and range of an axis as the kernel knows them; at rest, in the usual range, where it
    does not.
    """
    trigger = code in TRIGGERS
    usual = _TRIGGER_RANGE if trigger else _HAT_RANGE if code in (HAT_X, HAT_Y) else _STICK_RANGE
    # EVIOCGABS(code): struct input_absinfo, six numbers.
    request = 2 << 30 | 24 << 16 | ord("E") << 8 | 0x40 + code
    try:
        value, low, high, *_ = struct.unpack("6i", fcntl.ioctl(fd, request, bytes(24)))
    except OSError:
        return (usual[0] + usual[1] + 1) // 2 if not trigger else usual[0], usual
    return (value, (low, high)) if low < high else (0, usual)


def find_gamepad(folder: Path = INPUTS, system: Path = SYSTEM) -> str:
    """The device file of the only gamepad, by a cable or without one; ConfigError when there is
    none, or several. A name that outlives unplugging is preferred.
    """
    links = {path.resolve().name: str(path) for path in sorted(folder.glob("by-id/*"))}
    found = [
        links.get(entry.name, str(folder / entry.name))
        for entry in sorted(system.glob("event*"))
        if _has_south(entry / "device" / "capabilities" / "key")
    ]
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        f"there are {len(found)} gamepads ({', '.join(found) or 'none'}): plug one in, or say"
        " which: device: {kind: gamepad, path: /dev/input/eventN}"
    )


def _has_south(told: Path) -> bool:
    """Whether a device has the button by which the kernel's names tell a gamepad."""
    try:
        words = told.read_text().split()[::-1]
        return bool(int(words[SOUTH // _WORD_BITS], 16) >> SOUTH % _WORD_BITS & 1)
    except (OSError, ValueError, IndexError):
        return False


def require_gamepad(path: str) -> None:
    """ConfigError unless the file is the kernel's event device of a gamepad: a joystick's other
    file (``js0``) and a keyboard tell other things by the same bytes. OSError where it cannot be
    opened.
    """
    # EVIOCGBIT(EV_KEY, ...): a bit for every key and button that it has.
    request = 2 << 30 | _KEY_BYTES << 16 | ord("E") << 8 | 0x20 + KEY
    fd = open_file(path)
    try:
        bits = fcntl.ioctl(fd, request, bytes(_KEY_BYTES))
    except OSError:
        bits = b""
    finally:
        os.close(fd)
    if not bits or not bits[SOUTH // 8] >> SOUTH % 8 & 1:
        what = "another device than a gamepad" if bits else "no event device of the kernel"
        raise ConfigError(
            f"{path} is {what}: name a gamepad's file /dev/input/eventN"
            " (/proc/bus/input/devices says which), or nothing where there is one gamepad alone"
        )
