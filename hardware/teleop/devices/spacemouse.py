"""Drives by a 3Dconnexion SpaceMouse, read from the kernel (hidraw): six axes and two buttons.

    report 1: x, y, z (int16, little endian), and in the newer models the rotations behind them
    report 2: the rotations of the older ones
    report 3: buttons, one bit each

Its axes are x right, y back, z down. It reports about every 8 ms while it is deflected, and zeros
when it is let go: non-zero and silent means that it is gone. Layouts: pyspacemouse 2.1,
``devices.toml``. The first button opens and closes the gripper; the second starts and keeps, and
discards when it is held for a second.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.devices.claim import DeviceClaim
from hardware.teleop.device import (
    DeviceReading,
    Key,
    Keys,
    Phase,
    Rate,
    Surroundings,
    View,
)
from hardware.teleop.listening import Listener, open_file
from hardware.teleop.shapes import Deflection
from robolearn.errors import ConfigError

# 3Dconnexion, and the Logitech that it was; of the latter only these are such devices.
_VENDOR, _LOGITECH = 0x256F, 0x046D
_LOGITECH_PRODUCTS = range(0xC603, 0xC640)
HIDRAW = Path("/sys/class/hidraw")
_LONG_S = 1.0
# Forward, left, up from x right, y back, z down; a rotation, so that turns go the same way.
_AXES = np.array([[0.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])


@dataclass(frozen=True, slots=True)
class SpaceMouseConfig:
    """A SpaceMouse of this computer."""

    # As /dev/hidraw3; empty: the only one there is.
    path: str = ""
    # Counts at full deflection (350; some wireless ones reach 500).
    full_scale: float = 350.0
    # -1 turns an axis around: x, y, z, and about them.
    signs: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        scaled = 0.0 < self.full_scale < math.inf
        if len(self.signs) != 6 or {abs(s) for s in self.signs} != {1.0} or not scaled:
            raise ConfigError(
                "spacemouse: six signs of 1 or -1 and a positive full_scale are needed, got"
                f" {self.signs} and {self.full_scale}"
            )

    @property
    def keys(self) -> Keys:
        """It has buttons of its own; a terminal's keys are welcome."""
        return "welcome"

    def build(self, around: Surroundings) -> SpaceMouse:
        """Find and open it. ConfigError says what is there; it has one owner at a time."""
        del around
        path = self.path or find_space_mouse()
        require_space_mouse(path)
        claim = DeviceClaim(path)
        claim.take()
        try:
            return SpaceMouse(self, lambda: open_file(path), claim.release)
        except OSError as error:
            claim.release()
            raise ConfigError(
                f"cannot open {path}: {error.strerror}. Allow it by a file of /etc/udev/rules.d"
                ' whose name begins below 73: KERNEL=="hidraw*", ATTRS{idVendor}=="256f",'
                ' TAG+="uaccess", and plug it in again'
            ) from error


# Phases that wait for the start key: it begins, clears a stop, and says that things are placed.
_WAITING: tuple[Phase, ...] = ("ready", "stopped", "placing")


@dataclass(slots=True)
class _State:
    twist: Deflection = field(default_factory=lambda: np.zeros(6))
    t_ns: int = 0
    buttons: int = 0
    # When the second button went down.
    down_ns: int = 0
    opening: float | None = None
    present: bool = True
    phase: Phase = "ready"
    pressed: list[Key] = field(default_factory=list[Key])


class SpaceMouse:
    """Reads reports until :meth:`close`; ``open_fd`` opens the device, also after it was away."""

    name = "spacemouse"
    lease_s = 0.1

    def __init__(
        self,
        config: SpaceMouseConfig,
        open_fd: Callable[[], int],
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._closed = config, closed
        self._lock, self._state = threading.Lock(), _State()
        self._listener = Listener("spacemouse", open_fd, self._take, self._lost)

    def begin(self, opening: float | None) -> None:
        """The first button turns this around."""
        with self._lock:
            self._state.opening = None if opening is None else float(round(opening))

    def poll(self) -> DeviceReading:
        """The newest deflection; at rest it needs no proof that it still is."""
        with self._lock:
            state = self._state
            t_ns = state.t_ns if state.twist.any() else time.monotonic_ns()
            here = state.present
            return DeviceReading(t_ns, here, here, Rate(state.twist.copy()), state.opening)

    def pressed(self) -> tuple[Key, ...]:
        """What the second button said since the last call."""
        with self._lock:
            pressed, self._state.pressed = tuple(self._state.pressed), []
        return pressed

    def show(self, view: View) -> None:
        """The second button means what comes next."""
        with self._lock:
            self._state.phase = view.phase

    def close(self) -> None:
        """Let go of the device; safe to call twice."""
        self._listener.close()
        self._closed()

    def _lost(self) -> None:
        with self._lock:
            self._state.present = False
            self._state.twist = np.zeros(6)
            self._state.buttons = 0

    def _take(self, report: bytes) -> None:
        with self._lock:
            self._state.present = True
            if report[0] == 1 and len(report) >= 7:
                self._deflect(0, report[1:7])
                if len(report) >= 13:
                    self._deflect(3, report[7:13])
            elif report[0] == 2 and len(report) >= 7:
                self._deflect(3, report[1:7])
            elif report[0] == 3 and len(report) >= 2:
                self._press(report[1])

    def _deflect(self, first: int, data: bytes) -> None:
        counts = np.array(struct.unpack("<3h", data), dtype=np.float64)
        part = slice(first, first + 3)
        signs = np.array(self._config.signs[part])
        twist = self._state.twist.copy()
        twist[part] = np.clip(signs * (_AXES @ counts) / self._config.full_scale, -1.0, 1.0)
        self._state.twist, self._state.t_ns = twist, time.monotonic_ns()

    def _press(self, bits: int) -> None:
        state, now = self._state, time.monotonic_ns()
        pressed, released = bits & ~state.buttons, state.buttons & ~bits
        state.buttons = bits
        if pressed & 1 and state.opening is not None:
            state.opening = 1.0 - state.opening
        if pressed & 2:
            state.down_ns = now
        if released & 2:
            long = now - state.down_ns > _LONG_S * 1e9
            waits = state.phase in _WAITING
            state.pressed.append("start" if waits else "discard" if long else "keep")


def find_space_mouse(folder: Path = HIDRAW) -> str:
    """The device file of the only SpaceMouse; ConfigError when there is none, or several."""
    entries = sorted(folder.glob("hidraw*"))
    found = [f"/dev/{entry.name}" for entry in entries if _is_one(_ids(entry))]
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        f"there are {len(found)} SpaceMouse devices ({', '.join(found) or 'none'}): plug one in, or"
        " say which: device: {kind: spacemouse, path: /dev/hidrawN}"
    )


def require_space_mouse(path: str, folder: Path = HIDRAW) -> None:
    """ConfigError for a file that the kernel says is of another device: a keyboard's reports are
    bytes like others. Of a file that it does not know nothing is said here.
    """
    ids = _ids(folder / Path(path).resolve().name)
    if ids is not None and not _is_one(ids):
        vendor, product = ids
        raise ConfigError(
            f"{path} is no SpaceMouse, but device {vendor:04x}:{product:04x}: leave 'path' out, or"
            f" name the file of one ('{folder}/*/device/uevent' say which is whose)"
        )


def _ids(entry: Path) -> tuple[int, int] | None:
    """Vendor and product of a device of the kernel's; None where it does not say."""
    told = entry / "device" / "uevent"
    if not told.is_file():
        return None
    lines = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    # Bus, vendor and product, as 0003:0000256F:0000C635.
    _, vendor, product = (int(n, 16) for n in lines.get("HID_ID", "0:0:0").split(":"))
    return vendor, product


def _is_one(ids: tuple[int, int] | None) -> bool:
    if ids is None:
        return False
    vendor, product = ids
    return vendor == _VENDOR or (vendor == _LOGITECH and product in _LOGITECH_PRODUCTS)
