"""Writes to a terminal on a thread of its own: who drives an arm must not wait for a slow line."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

# Whoever ends waits so long for a terminal that takes nothing [s].
_PATIENCE_S = 1.0


class Writer:
    """Does what it is told in order, one thing after the other, until :meth:`close`. An error of
    one is raised to whoever tells the next.
    """

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], object]] = deque()
        self._newest: Callable[[], object] | None = None
        self._some = threading.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="terminal-writer", daemon=True)
        self._thread.start()

    def every(self, job: Callable[[], object]) -> None:
        """To be done, however late; never blocks."""
        with self._some:
            self._require()
            self._jobs.append(job)
            self._some.notify()

    def newest(self, job: Callable[[], object]) -> None:
        """To be done instead of what was told here before and has not begun; never blocks."""
        with self._some:
            self._require()
            self._newest = job
            self._some.notify()

    def close(self) -> None:
        """Let what was told be done, unless the terminal takes nothing; safe to call twice."""
        with self._some:
            self._closed = True
            self._some.notify()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            log.warning("the terminal takes nothing: what was last said is not shown")
        elif self._error is not None:
            log.warning("what was last said is not shown: %s", self._error)

    def _require(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - it is raised where the next one is told
                with self._some:
                    self._error = error

    def _next(self) -> Callable[[], object] | None:
        """What is due; None at the end."""
        with self._some:
            while not (self._jobs or self._newest or self._closed):
                self._some.wait()
            if self._jobs:
                return self._jobs.popleft()
            job, self._newest = self._newest, None
            return job
