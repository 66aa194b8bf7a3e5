"""Fakes an arm for tests: follows at once, has a device clock, a watchdog and faults to inject.

With a :class:`FakeLink` a test in another process sees what the fake device did, and injects
faults, through shared memory.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hardware.devices.robot import Freedrive, RobotMode, RobotState
from hardware.supervisor.shared_memory import Ring, RingHandle
from robolearn.arms.shapes import Joints
from robolearn.errors import DataError, RobotConnectionError, RobotError


class FakeFault(enum.IntEnum):
    """Faults of the fake device."""

    NONE = 0
    FROZEN = 1  # the device clock stands still, commands are accepted and lost (a hang)
    PROTECTIVE_STOP = 2
    EMERGENCY_STOP = 3
    REFUSES = 4  # commands raise
    PAUSED = 5  # the link pauses: what is sent arrives when it goes on, all at once


@dataclass(frozen=True, slots=True)
class FakeLink:
    """Rings to and from a fake in another process: ``trace`` rows ``[mode, q...]`` at every
    set-point or stop, ``faults`` rows ``[FakeFault]``.
    """

    trace: RingHandle
    faults: RingHandle


class FakeRobot:
    """Reaches each set-point at once; stops itself when it hears nothing for ``watchdog_s``.

    Tests set ``fault``, ``tool_force_n``, ``load`` and ``push`` (how far something holds it off).
    """

    def __init__(
        self,
        q: Joints,
        rate_hz: float = 500.0,
        watchdog_s: float = 0.1,
        clock: Callable[[], int] = time.monotonic_ns,
        link: FakeLink | None = None,
    ) -> None:
        self._q = np.array(q, dtype=np.float64)
        self._qd = np.zeros_like(self._q)
        self._rate_hz, self._watchdog_s, self._clock = rate_hz, watchdog_s, clock
        self.fault = FakeFault.NONE
        self.sent: list[tuple[int, Joints]] = []
        self.stops, self.halts, self.free = 0, 0, False
        # Until then a halt is not confirmed, as by a client that is late itself.
        self.ready_ns = 0
        # What a paused link holds back: set-points, or None for a halt.
        self._held_back: list[Joints | None] = []
        self.tool_force_n = self.load = math.nan
        self.push: Joints | None = None
        # What a controller would lead its servos with; tests that model one set it.
        self.reference_velocity: Joints | None = None
        self._mode = RobotMode.DISCONNECTED
        self._heard_ns = self._moved_ns = self._device_ns = self._changed_ns = 0
        self._trace: Ring | None = None if link is None else link.trace.attach()
        self._faults: Ring | None = None if link is None else link.faults.attach()

    @property
    def joints(self) -> int:
        """Number of joints."""
        return len(self._q)

    @property
    def rate_hz(self) -> float:
        """Set-point rate [Hz]."""
        return self._rate_hz

    @property
    def has_watchdog(self) -> bool:
        """True."""
        return True

    @property
    def freedrive(self) -> Freedrive:
        """Gives way to whoever calls :meth:`guide`."""
        return Freedrive(lambda: self._let_go(free=True), lambda: self._let_go(free=False))

    def guide(self, qd: Joints, dt_s: float) -> None:
        """A hand moves the free arm at ``qd`` [rad/s] for ``dt_s``; a stiff one stays."""
        self._qd = np.array(qd) if self.free else np.zeros_like(self._q)
        self._q = self._q + dt_s * self._qd

    def _let_go(self, *, free: bool) -> None:
        if self.fault is FakeFault.REFUSES:
            raise RobotError("fake robot: refuses freedrive")
        self.free = free

    def connect(self) -> None:
        """Ready again unless a fault is still there."""
        self._read_faults()
        if self.fault is not FakeFault.NONE:
            raise RobotConnectionError(f"fake robot: not ready, fault {self.fault.name} is active")
        self._mode, self.free = RobotMode.RUNNING, False
        self._heard_ns = self._changed_ns = self._device_ns = self._clock()
        self._qd[:] = 0.0

    def state(self) -> RobotState:
        """Newest state."""
        if self._mode is RobotMode.DISCONNECTED:
            raise RobotConnectionError("fake robot: not connected; call connect() first")
        self._read_faults()
        now = self._clock()
        silent = self.fault in (FakeFault.FROZEN, FakeFault.PAUSED)
        if not silent:
            self._deliver()
        if not silent and now != self._device_ns:
            self._device_ns = self._changed_ns = now
        if self._mode is RobotMode.RUNNING and now - self._heard_ns > self._watchdog_s * 1e9:
            self._halt(RobotMode.SILENCED)
        q = self._q.copy() if self.push is None else self._q + self.push
        return RobotState(
            *(self._device_ns * 1e-9, self._changed_ns, q, self._qd.copy(), self._mode),
            *(self.tool_force_n, self.load, self.reference_velocity),
        )

    def fault_text(self) -> str:
        """The name of its mode, and of the fault that a test injected."""
        if self._mode in (RobotMode.RUNNING, RobotMode.DISCONNECTED):
            return ""
        return f"fake robot: {self._mode.name}, fault {self.fault.name}"

    def servo(self, q: Joints) -> None:
        """Reach ``q`` at once."""
        if q.shape != self._q.shape or not np.all(np.isfinite(q)):
            raise DataError(f"fake robot: expected {self._q.shape} finite angles, got {q}")
        self._read_faults()
        if self.fault is FakeFault.REFUSES or self.free:
            raise RobotError("fake robot: refuses commands")
        if self.fault is FakeFault.PAUSED:
            self._held_back.append(q.copy())
            self._qd[:] = 0.0
            return
        if self.fault is FakeFault.FROZEN or self._mode is not RobotMode.RUNNING:
            return
        self._reach(q)

    def _reach(self, q: Joints) -> None:
        now = self._clock()
        dt = max((now - self._moved_ns) * 1e-9, 1e-4)
        self._qd = (q - self._q) / dt
        self._q, self._moved_ns, self._heard_ns = q.copy(), now, now
        self.sent.append((now, q.copy()))
        self._note()

    def keep_alive(self) -> None:
        """Resets the watchdog."""
        self._heard_ns = self._clock()

    @property
    def halt(self) -> Callable[[], Callable[[], bool]]:
        """Stand still, with the next command on."""
        return self._halt_here

    def _halt_here(self) -> Callable[[], bool]:
        self.halts += 1
        if self.fault is FakeFault.PAUSED:
            self._held_back.append(None)
        self._qd[:] = 0.0
        return lambda: self._clock() >= self.ready_ns and self.fault is not FakeFault.PAUSED

    def _deliver(self) -> None:
        """What a paused link held back: the last of it counts, as in a controller's registers."""
        last, self._held_back = self._held_back[-1:], []
        if last and last[0] is not None and self._mode is RobotMode.RUNNING:
            self._reach(last[0])

    def stop(self) -> bool:
        """Stand still."""
        self.stops, self.free = self.stops + 1, False
        self._qd[:] = 0.0
        self._note()
        return self.fault not in (FakeFault.FROZEN, FakeFault.PAUSED)

    def close(self) -> None:
        """Stop and disconnect."""
        if self._mode is not RobotMode.DISCONNECTED:
            self.stop()
            self._mode = RobotMode.DISCONNECTED
            self._note()

    def _halt(self, mode: RobotMode) -> None:
        self._mode = mode
        self._qd[:] = 0.0
        self._note()

    def _read_faults(self) -> None:
        row = None if self._faults is None else self._faults.latest()
        if row is not None:
            self.fault = FakeFault(int(row.value[0]))
        if self.fault is FakeFault.PROTECTIVE_STOP and self._mode is RobotMode.RUNNING:
            self._halt(RobotMode.PROTECTIVE_STOP)
        if self.fault is FakeFault.EMERGENCY_STOP and self._mode is RobotMode.RUNNING:
            self._halt(RobotMode.EMERGENCY_STOP)

    def _note(self) -> None:
        if self._trace is not None:
            self._trace.put(self._clock(), [float(self._mode), *self._q])


@dataclass(frozen=True, slots=True)
class FakeConfig:
    """Picklable recipe of a :class:`FakeRobot`."""

    # Where the arm stands at the start [rad].
    joint_position: tuple[float, ...] = (0.0, -1.6, 2.0, -2.0, -1.57, 0.0)
    # Set-point rate [Hz].
    rate_hz: float = 500.0
    # Silence after which the device stops itself [s].
    watchdog_s: float = 0.1
    # Rings for tests.
    link: FakeLink | None = field(default=None)

    def build(self) -> FakeRobot:
        """Make the robot (in the process that will own it)."""
        return FakeRobot(
            np.array(self.joint_position), self.rate_hz, self.watchdog_s, link=self.link
        )
