"""Chunks of trials on Ray: many machines, the same interface and rules as worker processes.

Optional: on one machine Ray adds nothing but seconds of start and some 600 MB of memory. Every
machine of the cluster needs the same installation of robolearn; the trial table stays with the
process that started the evaluation.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from eval.trials.executors import ONE_THREAD, Done, WorkerFailedError, answer
from robolearn.errors import ConfigError, MissingDependencyError, RobolearnError

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


def run_on_ray(
    build: Callable[[], Callable[[T], R]],
    tasks: Sequence[T],
    *,
    workers: int,
    attempts: int = 2,
    timeout_s: float = 900.0,
    address: str = "",
) -> Iterator[Done[T, R]]:
    """Run the tasks in ``workers`` actors; yields results as they finish, in any order.

    ``address``: a running cluster (``auto``, ``ray://host:10001``); empty: start Ray here and stop
    it at the end. An actor that dies or is busy for longer than ``timeout_s`` is replaced, its task
    is handed out again, and reported as lost after the last attempt.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    ray = _connect(workers, address)
    actor: Any = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Actor)
    queue: deque[tuple[T, int]] = deque((task, 1) for task in tasks)
    idle = [actor.remote(build) for _ in range(min(workers, len(queue)))]
    busy: dict[Any, tuple[Any, T, int, float]] = {}
    try:
        while queue or busy:
            while idle and queue:
                worker, (task, attempt) = idle.pop(), queue.popleft()
                busy[worker.run.remote(task)] = (worker, task, attempt, time.monotonic())
            ready, _ = ray.wait(list(busy), num_returns=1, timeout=1.0)
            late = [r for r, b in busy.items() if time.monotonic() - b[3] > timeout_s]
            for reference in [*ready, *(r for r in late if r not in ready)]:
                worker, task, attempt, _ = busy.pop(reference)
                if reference in ready:
                    why, reply = _reply(ray, reference)
                else:
                    why, reply = f"the actor hangs for {timeout_s:g} s", None
                if reply is not None:
                    idle.append(worker)
                    yield Done(task, _result(reply))
                    continue
                ray.kill(worker)
                idle.append(actor.remote(build))
                if attempt < attempts:
                    log.warning("%s; its task is run again", why)
                    queue.append((task, attempt + 1))
                else:
                    log.error("%s; its task is given up after %d attempts", why, attempts)
                    yield Done(task, None, why)
    finally:
        for worker in [*idle, *(b[0] for b in busy.values())]:
            ray.kill(worker)
        ray.shutdown()


class _Actor:
    """Lives in a process of its own, builds once, answers one task at a time."""

    def __init__(self, build: Callable[[], Callable[[Any], Any]]) -> None:
        self._build = build
        self._handle: Callable[[Any], Any] | None = None

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
