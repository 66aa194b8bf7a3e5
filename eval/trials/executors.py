"""Runs chunks of trials in this process, or in worker processes that may die.

Tasks may be any iterable: the next one is made when somebody is free to run it, so that it can
depend on what came out of those before. Workers are given their next task before the caller gets
the result of the last one: they go on while the caller makes something of it.

A worker is built by a picklable callable in a fresh (spawned) process and handles one task at a
time. A task whose worker dies or hangs is handed out once more; a second loss is reported to the
caller, never dropped. Errors that a task raises itself are not retried: they would come again.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from robolearn.errors import ConfigError, RobolearnError
from robolearn.machine.process import exit_with_parent
from robolearn.machine.threads import one_thread_in_children

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")
# A new process may take this long until its first task counts.
_START_ALLOWANCE_S = 120.0
MAX_STILLBORN = 5


class WorkerFailedError(RobolearnError, RuntimeError):
    """A task raised an unexpected error inside a worker (its traceback is in the log)."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T, R]):
    """A finished task: its result, or ``lost`` with the reason after the last attempt."""

    task: T
    result: R | None
    lost: str = ""


def run_in_process(
    build: Callable[[], Callable[[T], R]], tasks: Iterable[T]
) -> Iterator[Done[T, R]]:
    """Run the tasks one after the other in this process."""
    handle = build()
    for task in tasks:
        yield Done(task, handle(task))


def run_in_workers(
    build: Callable[[], Callable[[T], R]],
    tasks: Iterable[T],
    *,
    workers: int,
    attempts: int = 2,
    timeout_s: float = 900.0,
) -> Iterator[Done[T, R]]:
    """Run the tasks in ``workers`` processes; yields results as they finish, in any order.

    ``timeout_s``: a worker that is busy with one task for longer counts as hung and is ended.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    queue = Queue(tasks)
    pool: list[_Worker] = []
    stillborn: list[str] = []
    try:
        _hand_out(queue, pool, workers, build)
        while any(worker.busy for worker in pool):
            settled: list[Done[T, R]] = []
            try:
                for worker in _ready(pool, timeout_s):
                    settled += _settle(worker, pool, queue, attempts, stillborn)
                _hand_out(queue, pool, workers, build)
            except BaseException:
                # What is done is done, although there will be no next task.
                yield from settled
                raise
            yield from settled
    finally:
        for worker in pool:
            worker.end()


class Queue(Generic[T]):
    """Tasks to be handed out: those that were lost first, each with the number of its attempt."""

    def __init__(self, tasks: Iterable[T]) -> None:
        self._fresh = iter(tasks)
        self._again: deque[tuple[T, int]] = deque()
        self._exhausted = False

    def take(self) -> tuple[T, int] | None:
        """The next task, made now; None when there is no other."""
        if self._again:
            return self._again.popleft()
        if not self._exhausted:
            for task in self._fresh:
                return task, 1
            self._exhausted = True
        return None

    def put_back(self, task: T, attempt: int) -> None:
        """It is run again, for the ``attempt``-th time."""
        self._again.append((task, attempt))

    @property
    def empty(self) -> bool:
        """Nothing is waiting, and :meth:`take` has found the end."""
        return self._exhausted and not self._again


def _hand_out(
    queue: Queue[T], pool: list[_Worker], workers: int, build: Callable[[], Callable[[T], R]]
) -> None:
    """Give every free worker a task, new ones included."""
    while True:
        free = next((worker for worker in pool if not worker.busy), None)
        if free is None and len(pool) >= workers:
            return
        given = queue.take()
        if given is None:
            return
        if free is None:
            free = _Worker(build)
            pool.append(free)
        free.give(*given)


def _ready(pool: list[_Worker], timeout_s: float) -> list[_Worker]:
    busy = [w for w in pool if w.busy]
    left = min((w.started_s + timeout_s - time.monotonic() for w in busy), default=0.0)
    speaking = wait([w.pipe for w in busy], timeout=max(0.0, left))
    ready = [w for w in busy if w.pipe in speaking]
    late = [w for w in busy if w not in ready and time.monotonic() - w.started_s >= timeout_s]
    for worker in late:
        log.warning("worker %s hangs for %g s; it is ended", worker.pid, timeout_s)
        worker.kill()
    return ready + late


def _settle(
    worker: _Worker,
    pool: list[_Worker],
    queue: Queue[Any],
    attempts: int,
    stillborn: list[str],
) -> Iterator[Done[Any, Any]]:
    task, attempt = worker.task, worker.attempt
    try:
        kind, value = worker.take()
        if kind == "ready":
            return
    except (EOFError, OSError) as error:
        pool.remove(worker)
        why = worker.epitaph()
        if not worker.ready:
            # It never saw its task: that is no fault of the task, and no result of it.
            stillborn.append(why)
            if len(stillborn) >= MAX_STILLBORN:
                raise WorkerFailedError(
                    f"{len(stillborn)} worker processes died before they had started ({why});"
                    " their errors are above. Memory, or a script without a file of its own?"
                ) from error
            queue.put_back(task, attempt)
            return
        if attempt < attempts:
            log.warning("%s; its task is run again", why)
            queue.put_back(task, attempt + 1)
        else:
            log.error("%s; its task is given up after %d attempts", why, attempts)
            yield Done(task, None, why)
        return
    if kind == "error":
        raise value
    yield Done(task, value)


class _Worker:
    def __init__(self, build: Callable[[], Callable[[Any], Any]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=True)
        self._process = context.Process(target=_serve, args=(build, theirs), daemon=True)
        with one_thread_in_children():
            self._process.start()
        theirs.close()
        self.pid = self._process.pid
        self.busy = False
        self.task: Any = None
        self.attempt = 0
        self.ready = False
        self.started_s = time.monotonic() + _START_ALLOWANCE_S

    def give(self, task: Any, attempt: int) -> None:
        self.task, self.attempt, self.busy = task, attempt, True
        if self.ready:
            self.started_s = time.monotonic()
        # A worker that died while idle is noticed when its answer is read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(task)

    def take(self) -> tuple[str, Any]:
        kind, value = self.pipe.recv()
        # The clock of a task starts when the process has started.
        self.started_s = time.monotonic()
        self.ready = True
        self.busy = kind == "ready"
        return kind, value

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def epitaph(self) -> str:
        self._process.join(5.0)
        code = self._process.exitcode
        self.end()
        return f"worker process {self.pid} died with exit code {code}"

    def end(self) -> None:
        self.pipe.close()
        if not self.busy:
            self._process.join(2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(build: Callable[[], Callable[[Any], Any]], pipe: Connection) -> None:
    exit_with_parent()
    pipe.send(("ready", None))
    handle: Callable[[Any], Any] | None = None
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        handle, reply = answer(build, handle, task)
        try:
            pipe.send(reply)
        except OSError:
            return


def answer(
    build: Callable[[], Callable[[Any], Any]], handle: Callable[[Any], Any] | None, task: Any
) -> tuple[Callable[[Any], Any] | None, tuple[str, Any]]:
    """Build the runner if need be, run a task; ``("done", result)`` or ``("error", error)``."""
    try:
        handle = handle or build()
        return handle, ("done", handle(task))
    except RobolearnError as error:
        return handle, ("error", error)
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return handle, ("error", WorkerFailedError(text))
