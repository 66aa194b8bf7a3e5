"""Owns a vendor's interface on one thread, so that a call that never returns can be abandoned.

Vendor control interfaces are not thread safe and may block for minutes when the device dies in the
middle of a call (ur_rtde: 300 s). The caller here never waits longer than it asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from robolearn.errors import RobotConnectionError, RobotError

T = TypeVar("T")

# Calls whose ends are remembered: more than two seconds of set-points.
_REMEMBERED = 1024


class VendorThread:
    """Runs calls one after the other on a daemon thread.

    :meth:`call` waits for a result within a bound. :meth:`post` leaves the newest set-point in a
    one-place mailbox: it never blocks, an unsent older one is replaced.
    """

    def __init__(self, name: str, post_limit_s: float = 0.5) -> None:
        self.name, self.post_limit_s = name, post_limit_s
        self.abandoned = False
        self._wake = threading.Condition()
        self._calls: list[tuple[Callable[[], Any], Future[Any] | None]] = []
        self._newest: Callable[[], None] | None = None
        self._busy_since_ns = 0
        self._post_error: Exception | None = None
        self._closed = False
        # When the last call ended, and how long before it nothing had [ns], of late.
        self._ended_ns = time.monotonic_ns()
        self._silences: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T], timeout_s: float, what: str) -> T:
        """Run ``function`` on the owner thread and wait.

        Raises RobotConnectionError when it did not return within ``timeout_s`` (the thread is
        abandoned: every later call fails at once), else whatever ``function`` raised.
        """
        if self.abandoned:
            raise RobotConnectionError(f"{self.name}: abandoned after a hung call; reconnect")
        future = self.submit(function)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError as error:
            self.abandoned = True
            raise RobotConnectionError(
                f"{self.name}: {what} did not return within {timeout_s:g} s; the device hangs or"
                " the link is down. Check both, then reconnect"
            ) from error

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` on the owner thread without waiting; waiting set-points are dropped."""
        future: Future[T] = Future()
        with self._wake:
            self._calls.append((function, future))
            self._newest = None
            self._wake.notify()
        return future

    def order(self, function: Callable[[], None]) -> Callable[[], bool]:
        """Run ``function`` without waiting, in place of a set-point that waits; as with
        :meth:`post` a later one raises what went wrong. Returns what says whether it is done.
        """
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        with self._wake:
            self._calls.append((run, None))
            self._newest = None
            self._wake.notify()
        return done.is_set

    def post(self, function: Callable[[], None]) -> None:
        """Leave the newest set-point. Raises RobotError when an earlier one failed or hangs."""
        if self.abandoned:
            raise RobotConnectionError(f"{self.name}: abandoned after a hung call; reconnect")
        error, self._post_error = self._post_error, None
        if error is not None:
            raise RobotError(f"{self.name}: set-point refused: {error}") from error
        busy = self._busy_since_ns
        if busy and time.monotonic_ns() - busy > self.post_limit_s * 1e9:
            raise RobotConnectionError(
                f"{self.name}: a set-point has been hanging in the vendor's library for more than"
                f" {1e3 * self.post_limit_s:g} ms"
            )
        with self._wake:
            self._newest = function
            self._wake.notify()

    def longest_silence_s(self, within_s: float = 1.0) -> float:
        """Longest time between the ends of two calls within so many seconds, until now [s]: the
        device heard nothing for about as long.
        """
        now_ns = time.monotonic_ns()
        since_ns = now_ns - round(1e9 * within_s)
        late = [silent for ended, silent in tuple(self._silences) if ended >= since_ns]
        return 1e-9 * max([*late, now_ns - self._ended_ns])

    def close(self) -> None:
        """End the thread once it is idle; a hung one is left behind."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._calls or self._newest or self._closed):
                    self._wake.wait()
                job = self._calls.pop(0) if self._calls else None
                newest = None
                if job is None:
                    if self._newest is None:
                        return
                    newest, self._newest = self._newest, None
            self._busy_since_ns = time.monotonic_ns()
            function, future = job or (newest, None)
            if future is not None and function is not None:
                try:
                    future.set_result(function())
                except Exception as error:  # noqa: BLE001  (delivered to the waiting caller)
                    future.set_exception(error)
                else:
                    self._said()
            elif function is not None:
                try:
                    function()
                except Exception as error:  # noqa: BLE001  (raised by the next post)
                    # The first one is the cause; what follows it is often only its consequence.
                    self._post_error = self._post_error or error
                else:
                    self._said()
            self._busy_since_ns = 0

    def _said(self) -> None:
        """A call that the device heard has ended."""
        now_ns = time.monotonic_ns()
        self._silences.append((now_ns, now_ns - self._ended_ns))
        self._ended_ns = now_ns
