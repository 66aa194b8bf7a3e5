"""Lets a hand guide the arm itself (freedrive); the terminal's keys do the rest, and grip.

The arm gives way from the start key on, and holds again at the end of the attempt, when a limit of
the supervisor comes near, and when the terminal loses the focus or is closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardware.teleop.device import DeviceReading, Guided, Key, Keys, Surroundings, View
from hardware.teleop.devices.keyboard import KeyboardDevice

HELP = (
    "space: the arm gives way, guide it by hand   g gripper   enter keep   x discard   q quit\n"
    "escape emergency stop; the arm holds when this window loses the focus"
)


@dataclass(frozen=True, slots=True)
class FreedriveConfig:
    """The arm, and the terminal that the program runs in."""

    # Descriptor of the terminal.
    fd: int = -1

    @property
    def keys(self) -> Keys:
        """It has the terminal's keys: whoever is away from them has let go."""
        return "own"

    def build(self, around: Surroundings) -> FreedriveDevice:
        """Take the terminal; the arm gives way once an episode begins."""
        keys = KeyboardDevice(
            around.write,
            None if self.fd < 0 else self.fd,
            full_screen=around.full_screen,
            who="--agent freedrive",
            help_text=HELP,
        )
        return FreedriveDevice(keys)


class FreedriveDevice:
    """``keys``, and a hand at the arm as long as they are in reach."""

    name = "freedrive"

    def __init__(self, keys: KeyboardDevice) -> None:
        self._keys = keys
        self.lease_s = keys.lease_s

    def begin(self, opening: float | None) -> None:
        """The gripper's key turns this around."""
        self._keys.begin(opening)

    def poll(self) -> DeviceReading:
        """Who guides the arm, and the gripper as the keys want it."""
        seen = self._keys.poll()
        return DeviceReading(seen.t_ns, seen.present, seen.clutch, Guided(), seen.gripper)

    def pressed(self) -> tuple[Key, ...]:
        """Keys since the last call."""
        return self._keys.pressed()

    def show(self, view: View) -> None:
        """As the keyboard does."""
        self._keys.show(view)

    def close(self) -> None:
        """Give the terminal back."""
        self._keys.close()
