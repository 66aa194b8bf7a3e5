"""A gamepad that the kernel itself makes (uinput): the requests that a pipe does not answer.

Skipped where the kernel offers none, as in most containers; ``sudo modprobe uinput`` offers it.
"""

import fcntl
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from hardware.teleop.device import Surroundings
from hardware.teleop.devices.gamepad import (
    ABS,
    EVENT,
    KEY,
    RX,
    RY,
    RZ,
    SOUTH,
    START,
    SYN,
    TL,
    GamepadConfig,
    X,
    Y,
)
from robolearn.errors import ConfigError
from tests.waiting import wait_until

UINPUT = Path("/dev/uinput")
# linux/uinput.h: _IO, _IOW and _IOR of 'U'.
CREATE, DESTROY = 0x5501, 0x5502
# Bus, vendor, product, version; a name; effects.
SETUP = struct.Struct("4H80sI")
# Code; value, least, most, fuzz, flat, resolution.
ABSOLUTE = struct.Struct("Hxx6i")
NAME_BYTES = 64


def _request(number, size, *, reads=False):
    return (2 if reads else 1) << 30 | size << 16 | ord("U") << 8 | number


SET_EVENT, SET_KEY = _request(100, 4), _request(101, 4)


class KernelPad:
    """``path``: its event device. The left stick stands half forward from the start."""

    def __init__(self):
        self._fd = os.open(UINPUT, os.O_RDWR | os.O_NONBLOCK)
        for code in (TL, START, SOUTH):
            fcntl.ioctl(self._fd, SET_KEY, code)
        for kind in (KEY, ABS):
            fcntl.ioctl(self._fd, SET_EVENT, kind)
        for code in (X, Y, RX, RY):
            # Another range than the usual one: it must be asked for.
            self._axis(code, -100 if code == Y else 0, -200, 200)
        self._axis(RZ, 0, 0, 1023)
        setup = SETUP.pack(3, 0x1209, 0x0001, 1, b"robolearn test pad", 0)
        fcntl.ioctl(self._fd, _request(3, SETUP.size), setup)
        fcntl.ioctl(self._fd, CREATE)
        told = fcntl.ioctl(self._fd, _request(44, NAME_BYTES, reads=True), bytes(NAME_BYTES))
        folder = Path("/sys/devices/virtual/input", told.rstrip(b"\0").decode())
        (event,) = (entry.name for entry in folder.glob("event*"))
        self.path = Path("/dev/input", event)

    def _axis(self, code, value, low, high):
        told = ABSOLUTE.pack(code, value, low, high, 0, 0, 0)
        fcntl.ioctl(self._fd, _request(4, ABSOLUTE.size), told)

    def event(self, kind, code, value):
        for words in ((kind, code, value), (SYN, 0, 0)):
            os.write(self._fd, EVENT.pack(0, 0, *words))

    def close(self):
        """Pull the plug."""
        if self._fd >= 0:
            fcntl.ioctl(self._fd, DESTROY)
            os.close(self._fd)
            self._fd = -1


@pytest.fixture
def pad():
    try:
        made = KernelPad()
    except OSError as error:
        pytest.skip(f"no device can be made by {UINPUT}: {error.strerror}")
    try:
        wait_until(lambda: os.access(made.path, os.R_OK), what=f"{made.path} may be read")
        yield made
    finally:
        made.close()


def test_a_pad_of_the_kernel_drives_from_where_its_sticks_stand_until_it_is_unplugged(pad):
    device = GamepadConfig(str(pad.path)).build(Surroundings())
    try:
        device.begin(1.0)
        wait_until(lambda: np.isclose(device.poll().motion.twist[0], 0.5, atol=0.01))
        assert not device.poll().clutch
        pad.event(KEY, TL, 1)
        wait_until(lambda: device.poll().clutch)
        pad.event(ABS, Y, -200)
        wait_until(lambda: np.isclose(device.poll().motion.twist[0], 1.0, atol=0.01))
        pad.event(ABS, RZ, 1023)
        wait_until(lambda: device.poll().gripper == 0.0)
        pad.event(KEY, START, 1)
        wait_until(lambda: device.pressed() == ("start",))
        with pytest.raises(ConfigError):
            # It has one owner.
            GamepadConfig(str(pad.path)).build(Surroundings())
        pad.close()
        wait_until(lambda: not device.poll().present)
        assert not device.poll().clutch
    finally:
        device.close()
