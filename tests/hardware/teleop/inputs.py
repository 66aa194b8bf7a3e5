"""What a person touches, emulated: keys of a terminal, reports of a puck, events of a pad, a
phone's page, a leader arm's servos, the arm itself.

Each waits until the device has taken what was done, so that simulated time may run faster.
"""

import contextlib
import os
import socket
import struct

import numpy as np

from hardware.teleop.device import HandPose, Rate
from hardware.teleop.devices.gamepad import (
    ABS,
    EVENT,
    KEY,
    RX,
    RY,
    RZ,
    SYN,
    TL,
    X,
    Y,
)
from robolearn.geometry import rot_z
from tests.waiting import wait_until

# Of the keyboard: forward, left, up, about x, y, z.
_KEYS = (("w", "s"), ("a", "d"), ("r", "f"), ("o", "u"), ("k", "i"), ("j", "l"))


class KeysInput:
    """Holds keys of an emulated terminal that tells releases."""

    def __init__(self, terminal, device) -> None:
        self._terminal, self._device = terminal, device
        self._held: dict[str, bool] = {}

    def deflect(self, twist) -> None:
        wanted = {}
        for value, (more, less) in zip(twist, _KEYS, strict=True):
            if abs(value) > 0.15:
                wanted[more if value > 0 else less] = abs(value) < 0.75
        for key, fine in list(self._held.items()):
            if wanted.get(key) != fine:
                self._terminal.release(key)
                del self._held[key]
        for key, fine in wanted.items():
            if key not in self._held:
                self._terminal.press(key, shift=fine)
                self._held[key] = fine
        signs = np.zeros(6)
        for i, (more, less) in enumerate(_KEYS):
            signs[i] = (more in self._held) - (less in self._held)
        wait_until(lambda: np.array_equal(np.sign(self._device.poll().motion.twist), signs))

    def grip(self, closed: bool) -> None:
        self._terminal.press("g")
        self._terminal.release("g")
        wait_until(lambda: self._device.poll().gripper == float(not closed))


class Puck:
    """A SpaceMouse's end of a socket: writes reports as the device does."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.opened = 0

    def open(self) -> int:
        """A descriptor for the device; OSError once it was unplugged."""
        self.opened += 1
        return os.dup(self.theirs.fileno())

    def report(self, number: int, *counts: int) -> None:
        self.ours.send(bytes([number]) + struct.pack(f"<{len(counts)}h", *counts))

    def buttons(self, bits: int) -> None:
        self.ours.send(bytes([3, bits, 0, 0, 0]))

    def move(self, *person: float) -> None:
        """Deflections forward, left, up and about them, in the order of the device's axes."""
        forward, left, up, roll, pitch, yaw = (round(350 * v) for v in person)
        self.report(1, -left, -forward, -up, -pitch, -roll, -yaw)

    def unplug(self) -> None:
        self.ours.close()
        self.theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unplug()


class PuckInput:
    def __init__(self, puck, device) -> None:
        self._puck, self._device = puck, device

    def deflect(self, twist) -> None:
        self._puck.move(*twist)
        wait_until(lambda: np.allclose(self._device.poll().motion.twist, twist, atol=0.01))

    def grip(self, closed: bool) -> None:
        self._puck.buttons(1)
        self._puck.buttons(0)
        wait_until(lambda: self._device.poll().gripper == float(not closed))


class Pad:
    """A gamepad's end of a pipe: writes events as the kernel does."""

    def __init__(self) -> None:
        self._theirs, self._ours = os.pipe()
        self.gone = False

    def open(self) -> int:
        if self.gone:
            raise FileNotFoundError(2, "No such file or directory")
        return os.dup(self._theirs)

    def event(self, kind: int, code: int, value: int) -> None:
        os.write(self._ours, EVENT.pack(0, 0, kind, code, value) + EVENT.pack(0, 0, SYN, 0, 0))

    def write(self, data: bytes) -> None:
        os.write(self._ours, data)

    def press(self, code: int) -> None:
        self.event(KEY, code, 1)

    def release(self, code: int) -> None:
        self.event(KEY, code, 0)

    def stick(self, code: int, share: float) -> None:
        self.event(ABS, code, round(32767 * share))

    def unplug(self) -> None:
        self.gone = True
        for fd in (self._theirs, self._ours):
            with contextlib.suppress(OSError):
                os.close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unplug()


class PadInput:
    def __init__(self, pad, device) -> None:
        self._pad, self._device = pad, device
        pad.press(TL)
        wait_until(lambda: device.poll().clutch)

    def deflect(self, twist) -> None:
        for code, value in ((Y, -twist[0]), (X, -twist[1]), (RY, -twist[2]), (RX, -twist[5])):
            self._pad.stick(code, value)
        wanted = [*twist[:3], 0.0, 0.0, twist[5]]
        wait_until(lambda: np.allclose(self._device.poll().motion.twist, wanted, atol=0.01))

    def grip(self, closed: bool) -> None:
        self._pad.event(ABS, RZ, 255 if closed else 0)
        wait_until(lambda: self._device.poll().gripper == float(not closed))


class PageInput:
    """The hand at an open page."""

    def __init__(self, opened, device) -> None:
        self._page, self._device = opened, device

    def deflect(self, twist) -> None:
        self._page.deflect(twist)
        wait_until(lambda: np.allclose(self._device.poll().motion.twist, twist))

    def grip(self, closed: bool) -> None:
        self._page.say("gripper", opening=float(not closed))
        wait_until(lambda: self._device.poll().gripper == float(not closed))


class TiltInput:
    """A phone on which the page is open: turned in the hand while its button is held, and pads.

    One or the other: whoever changes lets go in between, as a person does.
    """

    def __init__(self, opened, device, dt_s: float, turn_rad_s: float) -> None:
        self._page, self._device = opened, device
        self._most, self._yaw, self._turns = turn_rad_s * dt_s, 0.0, False
        self.turned = 0

    def deflect(self, twist) -> None:
        turning = abs(twist[5]) > 0.1
        if turning:
            # The first look with the button held is where the turn begins.
            self._yaw += self._most * twist[5] * self._turns
            self._page.turn(rot_z(self._yaw))
            self.turned += self._turns
            wait_until(lambda: self._shows(rot_z(self._yaw)))
        else:
            # Pads are at rest first.
            pushed = np.zeros(6) if self._turns else np.array([*twist[:3], 0.0, 0.0, 0.0])
            self._page.deflect(pushed)
            wait_until(lambda: self._pushed(pushed))
        self._turns = turning

    def grip(self, closed: bool) -> None:
        self._page.say("gripper", opening=float(not closed))
        wait_until(lambda: self._device.poll().gripper == float(not closed))

    def _shows(self, R) -> bool:
        motion = self._device.poll().motion
        return isinstance(motion, HandPose) and np.allclose(motion.T[:3, :3], R, atol=1e-9)

    def _pushed(self, twist) -> bool:
        motion = self._device.poll().motion
        return isinstance(motion, Rate) and np.allclose(motion.twist, twist)


class ServoArm:
    """A leader arm of emulated servos in a person's hand; ``signs`` as it is paired."""

    def __init__(self, arm, device, signs) -> None:
        self._arm, self._device, self._signs = arm, device, np.array(signs)

    def bring(self, q) -> None:
        own = np.append(q * self._signs, 0.2)
        self._arm.do(lambda: self._arm.plant.set_joints(own))
        wait_until(lambda: np.allclose(self._device.poll().motion.q, q, atol=2e-3))


class GrippedArm:
    """The arm itself in a person's hand, which pulls it, and the terminal's gripper key."""

    REACH_M, FORCE_N = 0.05, 40.0

    def __init__(self, arm, terminal, device) -> None:
        self._arm, self._terminal, self._device = arm, terminal, device

    def deflect(self, twist) -> None:
        self._arm.pull(self.REACH_M * np.asarray(twist[:3]), self.FORCE_N)

    def grip(self, closed: bool) -> None:
        self._terminal.press("g")
        self._terminal.release("g")
        wait_until(lambda: self._device.poll().gripper == float(not closed))
