"""Fakes a gripper in memory for tests: moves at a speed, meets an object, has faults to inject."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass

from hardware.devices.gripper import GripperState
from hardware.devices.robot import Robot
from hardware.drivers.polling.gripper import check_move
from hardware.supervisor.shared_memory import Ring, RingHandle
from robolearn.errors import RobotConnectionError, RobotError


class FakeGripperFault(enum.IntEnum):
    """Faults of the fake gripper."""

    NONE = 0
    SILENT = 1  # the last state is all there is
    REFUSES = 2  # every call raises
    OBJECT_GONE = 3  # what is between the fingers slips out
    SLOW = 4  # every call takes a quarter of a second


@dataclass(frozen=True, slots=True)
class FakeGripperConfig:
    """Picklable recipe of a :class:`FakeGripper`."""

    # Largest distance of the fingers [m].
    stroke_m: float = 0.08
    # Largest speed of the opening [m/s].
    speed_m_s: float = 0.4
    # Width of what lies between the fingers [m]; 0 for nothing.
    object_m: float = 0.0
    # Rows ``[FakeGripperFault]`` from a test in another process.
    faults: RingHandle | None = None
    # Rows ``[width_m]`` of every request that arrived, -1 for a stop.
    trace: RingHandle | None = None

    @property
    def mounted(self) -> bool:
        """False."""
        return False

    def build(self, arm: Robot | None = None) -> FakeGripper:
        """Make the gripper."""
        del arm
        return FakeGripper(self)


class FakeGripper:
    """A :class:`~hardware.devices.gripper.Gripper`. Tests set ``fault``; ``moves`` are the
    requests.
    """

    def __init__(
        self, config: FakeGripperConfig, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.config, self._clock = config, clock
        self.fault = FakeGripperFault.NONE
        self.object_m = config.object_m
        self.moves: list[float] = []
        self.stops = 0
        self._connected = False
        self._width = self._goal = config.stroke_m
        self._speed = config.speed_m_s
        self._changed_ns = 0
        self._faults: Ring | None = None if config.faults is None else config.faults.attach()
        self._trace: Ring | None = None if config.trace is None else config.trace.attach()

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        return self.config.stroke_m

    def connect(self) -> None:
        """Ready unless it refuses."""
        self._meet_fault()
        self._connected, self._changed_ns = True, self._clock()

    def state(self) -> GripperState:
        """Newest state."""
        self._require()
        self._advance()
        holding = self._goal < self._width <= self.object_m
        moving = not holding and self._width != self._goal
        return GripperState(self._changed_ns, self._width, moving=moving, holding=holding)

    def move(self, width_m: float, speed: float = 1.0, force: float = 1.0) -> None:
        """Go to a distance."""
        self._require()
        check_move(width_m, speed, force, self.stroke_m)
        self._advance()
        self._goal, self._speed = width_m, speed * self.config.speed_m_s
        self.moves.append(width_m)
        if self._trace is not None:
            self._trace.put(self._clock(), [width_m])

    def stop(self) -> bool:
        """Stay; what is held is kept."""
        self._require()
        self._advance()
        if not self._goal < self._width <= self.object_m:
            self._goal = self._width
        self.stops += 1
        if self._trace is not None:
            self._trace.put(self._clock(), [-1.0])
        return True

    def close(self) -> None:
        """Disconnect."""
        self._connected = False

    def _require(self) -> None:
        if not self._connected:
            raise RobotConnectionError("fake gripper: not connected; call connect() first")
        self._meet_fault()

    def _meet_fault(self) -> None:
        row = None if self._faults is None else self._faults.latest()
        if row is not None:
            self.fault = FakeGripperFault(int(row.value[0]))
        if self.fault is FakeGripperFault.REFUSES:
            raise RobotError("fake gripper: refuses")
        if self.fault is FakeGripperFault.OBJECT_GONE:
            self.object_m = 0.0
        if self.fault is FakeGripperFault.SLOW:
            time.sleep(0.25)

    def _advance(self) -> None:
        now = self._clock()
        if self.fault is FakeGripperFault.SILENT:
            return
        step = self._speed * (now - self._changed_ns) * 1e-9
        away = self._goal - self._width
        to = self._width + max(-step, min(step, away))
        self._width = max(to, min(self.object_m, self._width)) if away < 0 else to
        self._changed_ns = now
