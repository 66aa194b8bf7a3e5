"""Fixes the robot contract and its typed states.

Liveness is the age of the last *changed* device timestamp. Vendor clients keep answering with the
frozen last value after a hang or a cable pull, and return True from commands that reach nobody.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hardware.shapes import Wrench
from robolearn.arms.shapes import Joints
from robolearn.errors import RobotError, StaleSignalError


class RobotMode(enum.IntEnum):
    """What the device says about itself."""

    IDLE = 0  # powered, no program that listens to us
    RUNNING = 1  # accepts set-points
    PROTECTIVE_STOP = 2
    EMERGENCY_STOP = 3
    FAULT = 4
    DISCONNECTED = 5
    SILENCED = 6  # its watchdog ended our program: this computer said nothing for too long


@dataclass(frozen=True, slots=True)
class RobotState:
    """Newest state: ``joint_position`` [rad] and ``joint_velocity`` [rad/s], each ``[joints]``.

    ``device_t_s`` is the device's own clock [s]; ``changed_ns`` the monotonic time at which this
    process saw that clock change (its age is the liveness of the link). ``tool_force_n``: norm of
    the force at the tool [N]; ``load``: largest joint load as a share of what that joint is rated
    for; both NaN where the device does not tell. ``reference_velocity``: what the device's own
    servo loop is told, ``[joints]`` [rad/s]; ``wrench``: force [N] and torque [N m] at the tool
    ``[6]`` in axes of the arm's base; None where it does not tell.
    """

    device_t_s: float
    changed_ns: int
    joint_position: Joints
    joint_velocity: Joints
    mode: RobotMode
    tool_force_n: float = math.nan
    load: float = math.nan
    reference_velocity: Joints | None = None
    wrench: Wrench | None = None


@dataclass(frozen=True, slots=True)
class Freedrive:
    """How the device lets a hand guide the arm; see :attr:`Robot.freedrive`.

    ``begin()``: the arm carries its own weight and gives way to a hand, until ``end()`` or
    ``Robot.stop()``; set-points are refused meanwhile. ``end()``: the arm holds where it is. Both
    return within 0.5 s and raise RobotError when the device did not confirm. The watchdog stays
    armed: the owner goes on with ``Robot.keep_alive()``.
    """

    begin: Callable[[], None]
    end: Callable[[], None]


@runtime_checkable
class Robot(Protocol):
    """A position-controlled arm. Exactly one owner (the supervisor) calls it, from one thread.

    Every method returns within a bound, whatever the device does.
    """

    @property
    def joints(self) -> int:
        """Number of joints."""
        ...

    @property
    def rate_hz(self) -> float:
        """Rate at which the device wants set-points."""
        ...

    @property
    def has_watchdog(self) -> bool:
        """True when the device itself stops if this program falls silent."""
        ...

    @property
    def freedrive(self) -> Freedrive | None:
        """How a hand may guide the arm; None where the device has no such mode. Motors without
        torque are none: the arm would fall.
        """
        ...

    @property
    def halt(self) -> Callable[[], Callable[[], bool]] | None:
        """How the arm is brought to rest without waiting for it: set-points that are still on their
        way (a network pauses) move nothing any more, and the next one may begin where the arm then
        stands, once the answer says True: the device has confirmed it and takes set-points at once.
        Never blocks; raises RobotError where the device cannot be told. None where no set-point can
        be on its way.
        """
        ...

    def connect(self) -> None:
        """Connect and wait for the first state; the device's watchdog is armed before any motion.

        Raises RobotConnectionError when the device cannot be reached or is not ready. Calling it
        again is the only way back after a fault (recovery by the operator).
        """
        ...

    def state(self) -> RobotState:
        """The newest state; never blocks and never fails for a silent device (look at its age).

        Raises RobotConnectionError before the first connect.
        """
        ...

    def fault_text(self) -> str:
        """Why the device does not run, in its own words: modes, error numbers with their text, the
        joint. "" while all is well and before the first connect; never blocks and never fails.
        """
        ...

    def servo(self, q: Joints) -> None:
        """Hand the next joint set-point ``[joints]`` [rad] to the device; never blocks.

        Raises DataError for a wrong shape or non-finite values (nothing is sent then), RobotError
        when an earlier command failed.
        """
        ...

    def keep_alive(self) -> None:
        """Tell the device's watchdog that this program lives, without moving."""
        ...

    def stop(self) -> bool:
        """Command a stop on the device's own ramp; True when the device confirmed within 0.5 s."""
        ...

    def close(self) -> None:
        """Stop and release the device; safe to call twice."""
        ...


@runtime_checkable
class ConnectWatch(Protocol):
    """Looks at a device while another process connects to it.

    For vendors' libraries that may hang with the interpreter's lock: nobody in that process could
    tell any more.
    """

    def problem(self) -> str:
        """Why connecting cannot succeed any more, "" while all is well; never blocks."""
        ...

    def wait(self) -> None:
        """Until the device was seen alive; raises RobotConnectionError for a :meth:`problem`."""
        ...

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        ...


@runtime_checkable
class WatchedConfig(Protocol):
    """A driver's config whose device can be watched."""

    def watch(self) -> ConnectWatch:
        """Begin to look."""
        ...


@runtime_checkable
class Recovery(Protocol):
    """Brings a device back after a stop, each step by an operator's consent. Never the supervisor's
    business: it stays stopped until somebody clears it.
    """

    def told(self) -> str:
        """How the device is, in its own words."""
        ...

    def next_step(self) -> str:
        """What :meth:`take` would do, "" when nothing is left to do; raises RobotError for what
        only a person at the device can do.
        """
        ...

    def take(self) -> None:
        """Do the next step and wait for it; raises RobotError when the device refuses."""
        ...

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        ...


@runtime_checkable
class WrenchConfig(Protocol):
    """A driver's config whose device tells force and torque at the tool."""

    @property
    def tells_wrench(self) -> bool:
        """Whether this one does."""
        ...


@runtime_checkable
class RecoverableConfig(Protocol):
    """A driver's config whose device can be brought back from here."""

    def recovery(self) -> Recovery:
        """Connect to what brings it back."""
        ...


def require_healthy(state: RobotState, now_ns: int, max_age_s: float) -> None:
    """Raise the typed error for a robot that must not be driven.

    StaleSignalError when the device clock stands still for longer than ``max_age_s``; RobotError
    for any mode other than RUNNING.
    """
    age_s = (now_ns - state.changed_ns) * 1e-9
    if age_s > max_age_s:
        raise StaleSignalError(
            f"robot state: device clock stands at {state.device_t_s:.3f} s for {1e3 * age_s:.0f} ms"
            f" (limit {1e3 * max_age_s:.0f} ms); check the link and the controller, then reconnect"
        )
    if state.mode is not RobotMode.RUNNING:
        raise RobotError(
            f"robot reports {state.mode.name}; expected RUNNING. Clear the cause at the robot's"
            " own panel, then reconnect"
        )
