"""Owns the gripper inside the supervisor, on a thread of its own.

The supervisor's tick leaves the newest width here and asks for trouble; neither ever waits. The
thread sends the newest order, reads the state and publishes it. An order that was not sent when a
newer one comes is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hardware.devices.gripper import Gripper, GripperState
from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.robot import Robot
from hardware.shapes import Widths
from hardware.supervisor.link import Cause
from hardware.supervisor.shared_memory import Ring
from robolearn.errors import DataError, RobotConnectionError, RobotError

log = logging.getLogger(__name__)

# Newer commands that differ less than this are the same one: a new order restarts a grasp.
SAME_M = 0.0005
AT_GOAL_M = 0.003
# Fingers that went on by more than this since they held something have lost it.
LOST_M = 0.003
_SETTLE_NS = 200_000_000
_JOIN_S = 1.5


@dataclass(frozen=True, slots=True)
class Trouble:
    """What the supervisor must hear of: the cause, the value, its limit; ``latches``: stop."""

    cause: Cause
    value: float
    limit: float
    latches: bool


@runtime_checkable
class Keeper(Protocol):
    """What the supervisor asks; widths are arrays ``[grippers]`` [m], empty without one."""

    @property
    def goals(self) -> tuple[float, ...]:
        """The widths that are in force [m]."""
        ...

    @property
    def settled(self) -> bool:
        """True when the newest order was carried out, as far as what is between allows."""
        ...

    def outside(self, widths: Widths) -> float:
        """How far a command is outside the range [m]; infinite for another number of widths."""
        ...

    def aim(self, widths: Widths) -> bool:
        """Go there; False when a width had to be clipped to the range."""
        ...

    def hold(self) -> None:
        """Fingers that move stop where they are; fingers that hold something keep gripping."""
        ...

    def trouble(self, now_ns: int) -> Trouble | None:
        """What went wrong; a lost object is told once."""
        ...

    def connect(self, *, mounted: bool) -> None:
        """Connect if it is ``mounted`` (or not); raises what the driver raises."""
        ...

    def recover(self, *, mounted: bool) -> None:
        """The operator's clear: connect again if the gripper is in trouble."""
        ...

    def start(self) -> None:
        """Begin to talk to the gripper."""
        ...

    def close(self) -> None:
        """Disconnect; what is held stays held. Safe to call twice."""
        ...


class NoGripper:
    """A cell without one."""

    goals: tuple[float, ...] = ()
    settled = True

    def outside(self, widths: Widths) -> float:
        """0 for no width."""
        return math.inf if len(widths) else 0.0

    def aim(self, widths: Widths) -> bool:
        """True for no width."""
        return len(widths) == 0

    def hold(self) -> None:
        """Nothing."""

    def trouble(self, now_ns: int) -> Trouble | None:
        """None."""
        del now_ns

    def connect(self, *, mounted: bool) -> None:
        """Nothing."""

    def recover(self, *, mounted: bool) -> None:
        """Nothing."""

    def start(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class _Order:
    """``width_m`` to go to, or None: stay."""

    width_m: float | None


class GripperKeeper:
    """Owns one gripper. ``grips``: the ring of states ``[width, moving, holding]``."""

    def __init__(
        self,
        gripper: Gripper,
        config: GripperCellConfig,
        grips: Ring,
        *,
        mounted: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config, self._mounted = config, mounted
        self._gripper, self._grips, self._clock = gripper, grips, clock
        self._lock = threading.Lock()
        self._order: _Order | None = None
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None
        self._state = GripperState(0, config.start, moving=False, holding=False)
        self._goal_m, self._ordered_ns = config.start, 0
        self._held_m: float | None = None
        self._connected = False

    # -- the supervisor's side: never waits ------------------------------------------------------

    @property
    def goals(self) -> tuple[float, ...]:
        """The width that is in force [m]."""
        return (self._goal_m,)

    @property
    def settled(self) -> bool:
        """True when the newest order was carried out, as far as what is between allows."""
        state, since_ns = self._state, self._state.changed_ns - self._ordered_ns
        if self._order is not None or state.moving or since_ns < 0:
            return False
        near = abs(state.width_m - self._goal_m) < AT_GOAL_M
        return near or (state.holding and since_ns > _SETTLE_NS)

    def outside(self, widths: Widths) -> float:
        """How far a width is outside the range [m]; infinite for another number of widths."""
        if len(widths) != 1:
            return math.inf
        low_m, high_m, width_m = self.config.low_m, self.config.high_m, float(widths[0])
        return max(low_m - width_m, width_m - high_m, 0.0)

    def aim(self, widths: Widths) -> bool:
        """Go to a width [m]; False when it had to be clipped to the range."""
        width_m = float(widths[0])
        wanted = min(max(width_m, self.config.low_m), self.config.high_m)
        if abs(wanted - self._goal_m) >= SAME_M or self._order is not None:
            held = self._held_m
            if held is not None and wanted >= held:
                # What is let go on command is not lost.
                self._held_m = None
            self._goal_m = wanted
            self._leave(_Order(wanted))
        return wanted == width_m

    def hold(self) -> None:
        """Fingers that move stop where they are; fingers that hold something keep gripping."""
        if not self._state.holding:
            self._goal_m = self._state.width_m
        self._leave(_Order(None))

    def trouble(self, now_ns: int) -> Trouble | None:
        """What went wrong; a lost object is told once."""
        limit_s, state = self.config.max_age_s, self._state
        if self._fault is not None:
            return Trouble(Cause.GRIPPER_FAULT, state.width_m, 0.0, latches=True)
        age_s = (now_ns - state.changed_ns) * 1e-9
        if age_s > limit_s:
            return Trouble(Cause.GRIPPER_STALE, age_s, limit_s, latches=True)
        if state.holding:
            self._held_m = state.width_m if self._goal_m < state.width_m else None
        elif self._held_m is not None and state.width_m < self._held_m - LOST_M:
            held, self._held_m = self._held_m, None
            lost = self.config.stop_on_lost
            return Trouble(Cause.OBJECT_LOST, state.width_m, held, latches=lost)
        return None

    # -- connecting, and the thread --------------------------------------------------------------

    def connect(self, *, mounted: bool) -> None:
        """Connect if it is ``mounted`` (or not); raises what the driver raises."""
        if mounted == self._mounted:
            self._connect()

    def _connect(self) -> None:
        self._connected = False
        self._end()
        self._gripper.connect()
        self._fault, self._order, self._held_m = None, None, None
        self._publish(self._gripper.state())
        self._goal_m = self._state.width_m
        self._connected = True

    def start(self) -> None:
        """Begin the exchanges on a thread."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="gripper", daemon=True)
        self._thread.start()

    def recover(self, *, mounted: bool) -> None:
        """The operator's clear: connect again if the gripper is in trouble."""
        if mounted != self._mounted:
            return
        stale = self._clock() - self._state.changed_ns > self.config.max_age_s * 1e9
        if self._connected and not stale and self._fault is None:
            return
        threaded = self._thread is not None
        self._connect()
        if threaded:
            self.start()

    def exchange(self) -> None:
        """Once: the newest order out, the state in. A fault is kept until :meth:`connect`."""
        if self._fault is not None:
            return
        with self._lock:
            order, self._order = self._order, None
        try:
            if order is not None and order.width_m is None:
                self._gripper.stop()
            elif order is not None and order.width_m is not None:
                self._gripper.move(order.width_m, self.config.speed, self.config.force)
            self._publish(self._gripper.state())
        except (RobotError, DataError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  (a bug of a driver must stop the arm, too)
            self._fail(RobotError(f"the gripper's driver failed: {type(error).__name__}: {error}"))

    def close(self) -> None:
        """End the thread, disconnect; what is held stays held. Safe to call twice."""
        self._connected = False
        with contextlib.suppress(RobotConnectionError):
            self._end()
        self._gripper.close()

    def _leave(self, order: _Order) -> None:
        with self._lock:
            self._order = order
            self._ordered_ns = self._clock()
        self._wake.set()

    def _publish(self, state: GripperState) -> None:
        if state.changed_ns > self._state.changed_ns:
            row = [state.width_m, float(state.moving), float(state.holding)]
            self._grips.put(state.changed_ns, row)
        self._state = state

    def _fail(self, error: Exception) -> None:
        log.error("%s", error)
        self._fault = error

    def _run(self) -> None:
        period_s = 1.0 / self.config.rate_hz
        while not self._ending.is_set() and self._fault is None:
            self.exchange()
            self._wake.wait(period_s)
            self._wake.clear()

    def _end(self) -> None:
        thread = self._thread
        self._ending.set()
        self._wake.set()
        if thread is not None and thread.is_alive():
            thread.join(_JOIN_S)
            if thread.is_alive():
                raise RobotConnectionError(
                    "the gripper's driver hangs in a call; end this program and start again"
                )
        self._thread = None


def make_keeper(config: GripperCellConfig | None, arm: Robot, grips: Ring) -> Keeper:
    """The keeper of a cell's gripper, not connected yet."""
    if config is None:
        return NoGripper()
    mounted = config.driver_config().mounted
    return GripperKeeper(config.build(arm), config, grips, mounted=mounted)
