"""Polls grippers by a :class:`~hardware.drivers.polling.loop.PollLoop`; refuses what all refuse."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypeVar

from hardware.devices.gripper import GripperState
from hardware.drivers.polling.arm import Polled
from hardware.drivers.polling.loop import PollLoop
from robolearn.errors import DataError

_STOP_S = 1.0


def check_move(width_m: float, speed: float, force: float, stroke_m: float) -> None:
    """Raise DataError for a request that no gripper of this stroke can follow."""
    if not (0.0 <= width_m <= stroke_m and 0.0 < speed <= 1.0 and 0.0 < force <= 1.0):
        raise DataError(
            f"gripper: expected a width in [0, {stroke_m:g}] m, speed and force in (0, 1], got"
            f" {width_m:g}, {speed:g}, {force:g}"
        )


class GripperLoop(PollLoop):
    """A loop that sends the newest request and publishes a :class:`GripperState`.

    A gripper that hears nothing keeps what it holds: silence is no fault.
    """

    def __init__(self, name: str, *, rate_hz: float, max_lost: int) -> None:
        super().__init__(name, rate_hz=rate_hz, silence_s=math.inf, max_lost=max_lost)
        self.state = GripperState(0, 0.0, moving=False, holding=False)

    @abstractmethod
    def set_goal(self, width_m: float, speed: float, force: float) -> None:
        """The newest request; an unsent older one is replaced."""


G = TypeVar("G", bound=GripperLoop)


class PolledGripper(Polled[G]):
    """A :class:`~hardware.devices.gripper.Gripper`."""

    def __init__(self, name: str, stroke_m: float) -> None:
        super().__init__(name, _STOP_S)
        self._stroke_m = stroke_m

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        return self._stroke_m

    def state(self) -> GripperState:
        """Newest state."""
        return self._sound().state

    def move(self, width_m: float, speed: float = 1.0, force: float = 1.0) -> None:
        """Go to a distance."""
        loop = self._sound()
        check_move(width_m, speed, force, self._stroke_m)
        loop.set_goal(width_m, speed, force)

    def close(self) -> None:
        """Disconnect; what is held stays held."""
        self._leave()
