"""Makes documents in a process beside the server: it stays small and answers while they are made.

What they need (torch, MuJoCo, SciPy) takes hundreds of megabytes and seconds. The process is
started by the first question and ends after a while without one; one that was killed is replaced.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from robolearn.errors import RobolearnError
from robolearn.machine.process import exit_with_parent
from robolearn.operations.studio.encoding import encode
from robolearn.table import resolve

IDLE_S = 180.0
WAITING = 2
"""Questions that wait for one process; the server has threads for other things, too."""
WAIT_S = 4.0
"""How long a further one waits for its turn to wait."""

log = logging.getLogger(__name__)


class ComputingError(RobolearnError, RuntimeError):
    """A document could not be made beside the server."""


class BusyError(ComputingError):
    """It was not begun: others wait for the same process."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the process answers: a document as JSON, or bytes as they are, or why there is none."""

    data: bytes
    problem: str = ""


class Apart:
    """One process, started when it is needed; safe to be asked from several threads."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(WAITING)
        self._pool: ProcessPoolExecutor | None = None
        self._asked = 0
        self._end: threading.Timer | None = None

    def make(self, place: str, *args: Any) -> bytes:
        """The document that ``module:function`` makes of ``args``, as JSON; bytes as they are.

        Raises :class:`ComputingError` where it makes none, :class:`BusyError` where too many wait
        already.
        """
        if not self._waiting.acquire(timeout=WAIT_S):
            raise BusyError("other things are being computed; ask again in a moment")
        try:
            made = self._pool_now().submit(_made, place, args).result()
        except BrokenProcessPool as error:
            self.close()
            raise ComputingError(
                "the process that was computing this has ended (out of memory, or killed); ask"
                " again"
            ) from error
        finally:
            self._waiting.release()
            self._later()
        if made.problem:
            raise ComputingError(made.problem)
        return made.data

    def close(self) -> None:
        """End the process; the next question starts another one."""
        with self._lock:
            pool, self._pool = self._pool, None
            if self._end is not None:
                self._end.cancel()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _pool_now(self) -> ProcessPoolExecutor:
        with self._lock:
            self._asked += 1
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    max_workers=1,
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=exit_with_parent,
                )
            return self._pool

    def _later(self) -> None:
        """End the process in a while, unless somebody asks until then."""
        with self._lock:
            if self._end is not None:
                self._end.cancel()
            self._end = threading.Timer(self._idle_s, self._end_idle, (self._asked,))
            self._end.daemon = True
            self._end.start()

    def _end_idle(self, asked: int) -> None:
        if asked == self._asked:
            self.close()


DOCUMENTS, COMPUTING = Apart(), Apart()
"""For what takes a second, and for what takes longer (rendering, sampling)."""


def _made(place: str, args: tuple[Any, ...]) -> Made:
    """In the process: errors come back as words, which everybody can read."""
    try:
        found = resolve(place)(*args)
        return Made(found if isinstance(found, bytes) else encode(found))
    except (RobolearnError, OSError, LookupError) as error:
        return Made(b"", str(error))
    except Exception as error:
        log.exception("%s failed", place)
        return Made(b"", f"internal error: {type(error).__name__}: {error}")
