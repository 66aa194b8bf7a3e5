"""Shares what all drivers over a :class:`~hardware.drivers.polling.loop.PollLoop` do with it.

A driver is then the device's calls only: how to open it, and one exchange.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from hardware.devices.claim import DeviceClaim
from hardware.devices.robot import RobotMode, RobotState
from hardware.drivers.polling.loop import PollLoop
from robolearn.arms.shapes import Joints
from robolearn.errors import DataError, RobotConnectionError, RobotError

L = TypeVar("L", bound=PollLoop)
log = logging.getLogger(__name__)

STOP_S = 0.5


class Polled(ABC, Generic[L]):
    """A device and, from :meth:`connect` on, its loop. ``stop_s``: patience with a stop [s]."""

    def __init__(self, name: str, stop_s: float = STOP_S) -> None:
        self.name = name
        self._stop_s = stop_s
        self._claim = DeviceClaim(name)
        self._cycle: L | None = None

    @abstractmethod
    def open(self) -> L:
        """Connect, make ready, read the first state; closes what it opened when it raises."""

    def connect(self) -> None:
        """Connect anew; raises what :meth:`open` raises, and RobotConnectionError for a device that
        another program owns.
        """
        self._disconnect()
        self._claim.take()
        try:
            loop = self.open()
        except BaseException:
            self._claim.release()
            raise
        self._cycle = loop
        loop.start()

    def fault_text(self) -> str:
        """The latched fault, as the device or its line told it."""
        return "" if self._cycle is None else self._cycle.fault_text

    def keep_alive(self) -> None:
        """The owner lives."""
        self._sound().heard()

    def stop(self) -> bool:
        """Stay where it is; True when the device confirmed, now or when its fault was latched."""
        loop = self._cycle
        if loop is None:
            return False
        if loop.ended:
            return loop.held
        try:
            return loop.call(loop.hold, self._stop_s)
        except RobotError as error:
            log.warning("stop not confirmed: %s", error)
            return loop.held

    @property
    def halt(self) -> Callable[[], Callable[[], bool]]:
        """Between two exchanges the device is told to stay where it is."""
        return lambda: _told(self._sound())

    def _connected(self) -> L:
        """The loop. Raises RobotConnectionError before the first connect."""
        if self._cycle is None:
            raise RobotConnectionError(f"{self.name}: not connected; call connect() first")
        return self._cycle

    def _sound(self) -> L:
        """The loop. Raises the latched fault, if there is one."""
        loop = self._connected()
        loop.raise_fault()
        return loop

    def _stop_and_leave(self) -> None:
        try:
            self.stop()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Disconnect, and leave the device to others, whatever the line says to it."""
        try:
            self._disconnect()
        finally:
            self._claim.release()

    def _disconnect(self) -> None:
        loop, self._cycle = self._cycle, None
        if loop is not None:
            loop.leave()


def _told(loop: PollLoop) -> Callable[[], bool]:
    return loop.submit(loop.hold).done


class ArmLoop(PollLoop):
    """A loop that sends joint angles and publishes a :class:`RobotState`."""

    def __init__(
        self, name: str, joints: int, *, rate_hz: float, silence_s: float, max_lost: int
    ) -> None:
        super().__init__(name, rate_hz=rate_hz, silence_s=silence_s, max_lost=max_lost)
        self._goal: Joints | None = None
        # What the arm itself named as the cause of its stop.
        self._stop_mode = RobotMode.RUNNING
        zeros = np.zeros(joints)
        self.state = RobotState(-1.0, 0, zeros, zeros, RobotMode.IDLE)

    def set_goal(self, q: Joints) -> None:
        """The newest set-point; an unsent older one is replaced."""
        with self.lock:
            self._goal = q.copy()
        self.heard()

    def take_goal(self) -> Joints | None:
        """The set-point that was not sent yet, which is then none any more."""
        with self.lock:
            goal, self._goal = self._goal, None
        return goal

    def mark(self, mode: RobotMode) -> None:
        """Publish a mode with the last state; a cause that the arm named goes first."""
        s = self.state
        shown = mode if self._stop_mode is RobotMode.RUNNING else self._stop_mode
        self.state = RobotState(
            s.device_t_s, s.changed_ns, s.joint_position, s.joint_velocity, shown
        )


class PolledArm(Polled[ArmLoop]):
    """Joint set-points, each sent with the next exchange."""

    def __init__(self, name: str, joints: int, rate_hz: float) -> None:
        super().__init__(name)
        self._joints, self._rate_hz = joints, rate_hz
        self._low = self._high = np.zeros(joints)

    @property
    def joints(self) -> int:
        """Number of joints."""
        return self._joints

    @property
    def rate_hz(self) -> float:
        """Exchanges per second [Hz]."""
        return self._rate_hz

    @property
    def freedrive(self) -> None:
        """None: this program does not know how a hand may guide the arm."""
        return

    def state(self) -> RobotState:
        """Newest state."""
        return self._connected().state

    def servo(self, q: Joints) -> None:
        """Leave the next set-point for the next exchange ``[joints]`` [rad]."""
        if q.shape != (self.joints,) or not np.all(np.isfinite(q)):
            raise DataError(f"{self.name}: expected {self.joints} finite angles, got {q}")
        loop = self._sound()
        outside = np.flatnonzero((q < self._low) | (q > self._high))
        if outside.size:
            i = int(outside[0])
            raise DataError(
                f"{self.name}: set-point of joint {i + 1}, {q[i]:.3f} rad, is outside the arm's"
                f" range [{self._low[i]:.3f}, {self._high[i]:.3f}]"
            )
        loop.set_goal(q)

    def close(self) -> None:
        """Stop and disconnect; safe to call twice."""
        self._stop_and_leave()
