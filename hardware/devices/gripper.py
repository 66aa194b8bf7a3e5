"""Fixes the gripper contract and its typed state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from robolearn.errors import StaleSignalError


@dataclass(frozen=True, slots=True)
class GripperState:
    """Newest state. ``changed_ns``: monotonic time of the last answer (its age is the liveness).

    ``holding``: the fingers stopped on something before they reached what was commanded.
    """

    changed_ns: int
    width_m: float
    moving: bool
    holding: bool


@runtime_checkable
class Gripper(Protocol):
    """Two fingers at a commanded distance. No method blocks for long."""

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        ...

    def connect(self) -> None:
        """Connect and make ready; raises RobotConnectionError or RobotError.

        The fingers may move (a Robotiq opens and closes once to find its ends).
        """
        ...

    def state(self) -> GripperState:
        """Newest state; raises RobotConnectionError before the first connect, RobotError for a
        latched fault.
        """
        ...

    def move(self, width_m: float, speed: float = 1.0, force: float = 1.0) -> None:
        """Go to a distance [m] at shares of the largest speed and force; never blocks.

        Raises DataError for values outside [0, stroke] and (0, 1], RobotError for a latched fault.
        """
        ...

    def stop(self) -> bool:
        """Stay at the present distance, or keep gripping what is held; True when confirmed."""
        ...

    def close(self) -> None:
        """Disconnect; what is held stays held. Safe to call twice."""
        ...


def require_fresh(state: GripperState, now_ns: int, max_age_s: float) -> None:
    """Raise StaleSignalError for a gripper that has not answered for longer than ``max_age_s``."""
    age_s = (now_ns - state.changed_ns) * 1e-9
    if age_s > max_age_s:
        raise StaleSignalError(
            f"gripper: no answer for {1e3 * age_s:.0f} ms (limit {1e3 * max_age_s:.0f} ms); check"
            " the link, then reconnect"
        )
