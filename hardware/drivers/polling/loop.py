"""Owns a polled device on one thread: one exchange per period, faults latched.

Vendors' clients of serial buses and of the xArm answer calls and nothing else. A loop asks for
the state in every period, so the age of the last answer is the liveness of the device, and no
caller ever waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import termios
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from hardware.devices.robot import RobotMode
from robolearn.errors import RobotConnectionError, RobotError, SilencedError

T = TypeVar("T")
log = logging.getLogger(__name__)

PORT_ERRORS = (OSError, termios.error)
JOIN_S = 0.5


class LostPacketError(RobotConnectionError):
    """A device did not answer, or its answer was damaged; the next request may succeed."""


class PollLoop(ABC):
    """Calls :meth:`exchange` at a rate until a fault or :meth:`leave`.

    ``max_lost`` exchanges in a row without an answer are a fault, as is an owner that says nothing
    for ``silence_s``. A fault is kept (:meth:`raise_fault`), a stop is commanded, and the loop
    ends: only a new loop, made by an explicit connect, talks to the device again.
    """

    def __init__(self, name: str, *, rate_hz: float, silence_s: float, max_lost: int) -> None:
        self.name = name
        self.ended = False
        self.held = False
        self.cycles = self.lost = self.late = 0
        self.lock = threading.Lock()
        self._period_ns = round(1e9 / rate_hz)
        self._silence_s, self._max_lost = silence_s, max_lost
        self._jobs: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._fault: RobotError | None = None
        self._leaving = False
        self._lost_in_a_row = 0
        self._heard_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def exchange(self) -> None:
        """Send the newest command, read and publish the state. Raises what goes wrong."""

    @abstractmethod
    def hold(self) -> bool:
        """Command the device to stay where it is; True when it confirmed."""

    @abstractmethod
    def hold_who_listens(self) -> None:
        """The same when not everybody answers."""

    @abstractmethod
    def mark(self, mode: RobotMode) -> None:
        """Publish a mode with the last state; its time stays."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the line to the device."""

    def start(self) -> None:
        """Begin the exchanges."""
        self._thread.start()

    def heard(self) -> None:
        """The owner lives."""
        self._heard_ns = time.monotonic_ns()

    def raise_fault(self) -> None:
        """Raise the latched fault, if there is one."""
        with self.lock:
            fault = self._fault
        if fault is not None:
            raise fault

    @property
    def fault_text(self) -> str:
        """What the latched fault says; "" while there is none."""
        with self.lock:
            return "" if self._fault is None else str(self._fault)

    def call(self, job: Callable[[], T], timeout_s: float) -> T:
        """Run something between two cycles. Raises RobotConnectionError when it takes too long."""
        try:
            return self.submit(job).result(timeout_s)
        except FutureTimeoutError as error:
            raise RobotConnectionError(
                f"{self.name}: no answer within {timeout_s:g} s; check cable and"
                " supply, then connect again"
            ) from error

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run something between two cycles, without waiting; raises the latched fault."""
        self.heard()
        future: Future[T] = Future()
        with self.lock:
            if self.ended:
                raise self._fault or RobotConnectionError(f"{self.name}: not connected")
            self._jobs.append((job, future))
        return future

    def leave(self) -> None:
        """End the exchanges and close the line; never waits long."""
        self._leaving = True
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        with contextlib.suppress(*PORT_ERRORS):
            self.disconnect()

    def _run(self) -> None:
        due_ns = time.monotonic_ns()
        while not self._leaving:
            try:
                self._do_jobs()
                self.exchange()
                self._lost_in_a_row = 0
                self._require_owner()
            except LostPacketError as error:
                self.lost += 1
                self._lost_in_a_row += 1
                if self._lost_in_a_row >= self._max_lost:
                    self._latch(error, RobotMode.DISCONNECTED)
            except SilencedError as error:
                self._latch(error, RobotMode.SILENCED)
            except RobotError as error:
                self._latch(error, RobotMode.FAULT)
            except PORT_ERRORS as error:
                gone = RobotConnectionError(
                    f"{self.name}: the port is gone ({error}); plug it in, then connect"
                )
                self._latch(gone, RobotMode.DISCONNECTED)
            except Exception as error:  # noqa: BLE001  (the vendors' parsers trust what arrives)
                what = f"{self.name}: the vendor's library failed: {type(error).__name__}: {error}"
                self._latch(RobotError(what), RobotMode.FAULT)
            if self.ended:
                return
            due_ns += self._period_ns
            now_ns = time.monotonic_ns()
            if now_ns > due_ns:
                self.late += 1
                due_ns = now_ns
            else:
                time.sleep((due_ns - now_ns) * 1e-9)
        self._end()

    def _do_jobs(self) -> None:
        while True:
            with self.lock:
                if not self._jobs:
                    return
                job, future = self._jobs.pop(0)
            try:
                future.set_result(job())
            except RobotError as error:
                future.set_exception(error)
            except BaseException as error:
                future.set_exception(RobotConnectionError(f"{self.name}: {error}"))
                raise

    def _require_owner(self) -> None:
        silent_s = (time.monotonic_ns() - self._heard_ns) * 1e-9
        if silent_s > self._silence_s:
            fault = RobotError(
                f"{self.name}: the program said nothing for {1e3 * silent_s:.0f} ms (limit"
                f" {1e3 * self._silence_s:.0f} ms); the arm is held. Connect again"
            )
            self._latch(fault, RobotMode.SILENCED)

    def _latch(self, fault: RobotError, mode: RobotMode) -> None:
        """Command a stop to whoever listens, and end."""
        # Whoever is told the fault also sees its mode, and the other way round.
        with self.lock:
            self._fault = fault
            self.mark(mode)
        log.error("%s", fault)
        # Whatever the library raises now, the fault that is told is the first one.
        with contextlib.suppress(Exception):
            if mode is RobotMode.DISCONNECTED:
                self.hold_who_listens()
            else:
                self.held = self.hold()
        self._end()

    def _end(self) -> None:
        with self.lock:
            self.ended = True
            jobs, self._jobs = self._jobs, []
        for _, future in jobs:
            future.set_exception(
                self._fault or RobotConnectionError(f"{self.name}: the connection was closed")
            )
