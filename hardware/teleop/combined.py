"""Joins a device with the terminal's keys: the hand drives, the keys start, keep and discard."""

from __future__ import annotations

from hardware.teleop.device import DeviceReading, Key, TeleopDevice, View


class WithKeys:
    """``hand`` moves; ``keys`` decides, shows, and has the gripper where the hand has none."""

    def __init__(self, hand: TeleopDevice, keys: TeleopDevice) -> None:
        self._hand, self._keys = hand, keys

    @property
    def name(self) -> str:
        """The hand's."""
        return self._hand.name

    @property
    def lease_s(self) -> float:
        """The hand's."""
        return self._hand.lease_s

    def begin(self, opening: float | None) -> None:
        """To both."""
        self._hand.begin(opening)
        self._keys.begin(opening)

    def poll(self) -> DeviceReading:
        """The hand's."""
        reading = self._hand.poll()
        if reading.gripper is not None:
            return reading
        opening = self._keys.poll().gripper
        return DeviceReading(reading.t_ns, reading.present, reading.clutch, reading.motion, opening)

    def pressed(self) -> tuple[Key, ...]:
        """Of both."""
        return (*self._hand.pressed(), *self._keys.pressed())

    def show(self, view: View) -> None:
        """To both."""
        self._hand.show(view)
        self._keys.show(view)

    def close(self) -> None:
        """Both; safe to call twice."""
        try:
            self._hand.close()
        finally:
            self._keys.close()
