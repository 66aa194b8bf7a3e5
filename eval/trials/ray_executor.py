"""Runs chunks of trials on Ray: many machines, the same interface and rules as worker processes.

Optional: on one machine Ray adds nothing but seconds of start and some 600 MB of memory. Every
machine of the cluster needs the same installation of robolearn; the trial table stays with the
process that started the evaluation.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from eval.trials.executors import (
    MAX_STILLBORN,
    Done,
    Queue,
    WorkerFailedError,
    answer,
)
from robolearn.errors import ConfigError, MissingDependencyError, RobolearnError
from robolearn.machine.threads import ONE_THREAD

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")
# So many actors may die under one task before it counts as lost: machines come and go.
DEATHS = 5
# How often it is said that no actor can start.
WAIT_TOLD_S = 60.0


def run_on_ray(
    build: Callable[[], Callable[[T], R]],
    tasks: Iterable[T],
    *,
    workers: int,
    attempts: int = 2,
    timeout_s: float = 900.0,
    address: str = "",
) -> Iterator[Done[T, R]]:
    """Run the tasks in ``workers`` actors; yields results as they finish, in any order.

    ``address``: a running cluster (``auto``, ``ray://host:10001``); empty: start Ray here and stop
    it at the end. Actors that the cluster has no room for yet wait, however long: the others work
    on, and the time of a task begins when its actor runs. An actor that is busy for longer than
    ``timeout_s`` is replaced, its task is run again, at most ``attempts`` times in all; an actor
    that dies (its machine may have gone) takes its task along at most :data:`DEATHS` times. Then
    the task is reported as lost.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    ray = _connect(workers, address)
    try:
        yield from _Pool(ray, build, tasks, workers, attempts, timeout_s).run()
    finally:
        ray.shutdown()


class _Pool:
    """The actors of one call: starting, idle, or busy with a task."""

    def __init__(
        self,
        ray: Any,
        build: Callable[[], Callable[[Any], Any]],
        tasks: Iterable[Any],
        workers: int,
        attempts: int,
        timeout_s: float,
    ) -> None:
        self._ray, self._build = ray, build
        self._queue: Queue[_Try] = Queue(_Try(task) for task in tasks)
        self._attempts, self._timeout_s = attempts, timeout_s
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Actor)
        self._starting: dict[Any, Any] = {}
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, _Try, float]] = {}
        self._stillborn = 0
        self._told_s = time.monotonic()
        # Of a list nobody starts more actors than it has tasks.
        for _ in range(min(workers, len(tasks)) if isinstance(tasks, Sized) else workers):
            self._start()

    def run(self) -> Iterator[Done[Any, Any]]:
        """Results as they come."""
        try:
            self._hand_out()
            while self._actors() and (self._busy or not self._queue.empty):
                waiting = [*self._busy, *(() if self._queue.empty else self._starting)]
                ready, _ = self._ray.wait(waiting, num_returns=1, timeout=1.0)
                settled: list[Done[Any, Any]] = []
                try:
                    for reference in ready:
                        if reference in self._starting:
                            self._started(reference)
                        else:
                            settled += self._settle(reference)
                    settled += self._end_late()
                    self._hand_out()
                except BaseException:
                    # What is done is done, although there will be no next task.
                    yield from settled
                    raise
                yield from settled
                self._tell()
        finally:
            for actor in self._actors():
                self._ray.kill(actor)

    def _hand_out(self) -> None:
        """Give every idle actor a task."""
        while self._idle and (given := self._queue.take()) is not None:
            actor, task = self._idle.pop(), given[0]
            self._busy[actor.run.remote(task.task)] = (actor, task, time.monotonic())

    def _actors(self) -> list[Any]:
        return [*self._starting.values(), *self._idle, *(b[0] for b in self._busy.values())]

    def _start(self) -> None:
        actor = self._actor.remote(self._build)
        self._starting[actor.here.remote()] = actor

    def _started(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        why, there = _reply(self._ray, reference)
        if there is not None:
            self._idle.append(actor)
            return
        # It never saw a task: that is no fault of one, and no result.
        self._stillborn += 1
        if self._stillborn >= MAX_STILLBORN:
            raise WorkerFailedError(f"{self._stillborn} actors died before they had started: {why}")
        self._start()

    def _settle(self, reference: Any) -> Iterator[Done[Any, Any]]:
        actor, task, _ = self._busy.pop(reference)
        why, reply = _reply(self._ray, reference)
        if reply is not None:
            self._idle.append(actor)
            yield Done(task.task, _result(reply))
            return
        self._ray.kill(actor)
        self._start()
        task.deaths += 1
        yield from self._again(task, why, task.deaths < DEATHS)

    def _end_late(self) -> Iterator[Done[Any, Any]]:
        now = time.monotonic()
        for reference in [r for r, b in self._busy.items() if now - b[2] > self._timeout_s]:
            actor, task, _ = self._busy.pop(reference)
            self._ray.kill(actor)
            self._start()
            task.hangs += 1
            why = f"the actor hangs for {self._timeout_s:g} s"
            yield from self._again(task, why, task.hangs < self._attempts)

    def _again(self, task: _Try, why: str, again: bool) -> Iterator[Done[Any, Any]]:
        if again:
            log.warning("%s; its task is run again", why)
            self._queue.put_back(task, task.deaths + task.hangs + 1)
        else:
            log.error("%s; its task is given up after %d attempts", why, task.deaths + task.hangs)
            yield Done(task.task, None, why)

    def _tell(self) -> None:
        if self._busy or time.monotonic() - self._told_s < WAIT_TOLD_S:
            return
        self._told_s = time.monotonic()
        log.warning("the cluster has no free core for %d actors; waiting", len(self._starting))


@dataclass(slots=True)
class _Try:
    """A task and how often it was lost."""

    task: Any
    deaths: int = 0
    hangs: int = 0


class _Actor:
    """Lives in a process of its own, builds once, answers one task at a time."""

    def __init__(self, build: Callable[[], Callable[[Any], Any]]) -> None:
        self._build = build
        self._handle: Callable[[Any], Any] | None = None

    def here(self) -> tuple[str, Any]:
        """Answers once the actor runs."""
        return "done", None

    def run(self, task: Any) -> tuple[str, Any]:
        self._handle, reply = answer(self._build, self._handle, task)
        return reply


def _reply(ray: Any, reference: Any) -> tuple[str, tuple[str, Any] | None]:
    try:
        return "", ray.get(reference)
    except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
        return f"an actor died ({type(error).__name__})", None
    except ray.exceptions.RayTaskError as error:
        raise WorkerFailedError(str(error)) from error


def _result(reply: tuple[str, Any]) -> Any:
    kind, value = reply
    if kind == "error":
        raise value
    return value


def _connect(workers: int, address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise MissingDependencyError(
            f"Ray cannot be imported ({error}); install it with pip install 'robolearn[ray]', or"
            " use --executor processes"
        ) from error
    if ray.is_initialized():
        raise RobolearnError("Ray runs in this process already; evaluate from a fresh one")
    here: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            runtime_env={"env_vars": dict(ONE_THREAD)},
            **({} if address else here),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at '{address}'" if address else "Ray on this machine"
        raise ConfigError(f"cannot reach {where}: {error}") from error
    return ray
