"""Runs the supervisor's process: its own session, real-time priority if permitted.

No garbage collector runs in it, and memory that it used once is not taken from it again. A signal
to the agent's process group does not reach it. It ends when told to, when the agent's pipe closes
(however the agent ended), or on SIGTERM; in every case the arm is brought to rest first. It never
writes to a stream that somebody else might stop reading: log records go through a queue to a
thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import logging.handlers
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.robot import Robot
from hardware.supervisor.checks import CollisionGuard
from hardware.supervisor.follower import Follower
from hardware.supervisor.gripper_keeper import make_keeper
from hardware.supervisor.link import Cause, LinkHandles, Request, SupervisorConfig
from hardware.supervisor.loop import Supervisor
from robolearn.errors import DataError, RobolearnError
from robolearn.timing.clocks import Rate

log = logging.getLogger(__name__)

FIFO_PRIORITY, SESSION_NICE = 50, -15
# Of mlockall(2), Linux on x86-64: pages are kept once they were used, not fetched before.
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


@runtime_checkable
class FollowerRecipe(Protocol):
    """What decides set-points, before it crosses into the supervisor's process. Picklable."""

    @property
    def joints(self) -> int:
        """Joints of a set-point."""
        ...

    @property
    def width(self) -> int:
        """Values of a target."""
        ...

    @property
    def far(self) -> float:
        """How far outside a target may be before it is refused, in its own unit."""
        ...

    def build(self, rate_hz: float) -> Follower:
        """Check the limits and make the follower."""
        ...

    def guard(self, rate_hz: float) -> CollisionGuard | None:
        """The distance checks, if there are any."""
        ...


class PipeInbox:
    """Requests from the agent's pipe; its end of file, or SIGTERM, means that the agent is gone.

    So does another parent process: a program that the agent started may keep the pipe open.
    """

    def __init__(self, pipe: Connection, agent_pid: int) -> None:
        self._pipe, self._agent_pid = pipe, agent_pid
        self._closed = Cause.NONE

    @property
    def closed(self) -> Cause:
        """NONE while the agent is there."""
        return self._closed

    def terminate(self, *_: Any) -> None:
        """Signal handler."""
        self._closed = Cause.TERMINATED

    def read(self) -> Sequence[Request]:
        """Requests that have arrived."""
        out: list[Request] = []
        if self._closed is Cause.NONE and os.getppid() != self._agent_pid:
            self._closed = Cause.AGENT_DEAD
        while self._closed is Cause.NONE:
            try:
                if not self._pipe.poll(0):
                    break
                out.append(Request.decode(self._pipe.recv_bytes(1 << 16)))
            except (EOFError, OSError):
                self._closed = Cause.AGENT_DEAD
            except DataError as error:
                log.warning("%s", error)
        return out


def run_supervisor(
    build_robot: Callable[[], Robot],
    follower: FollowerRecipe,
    config: SupervisorConfig,
    handles: LinkHandles,
    pipe: Connection,
    log_level: int,
    want_real_time: bool = True,
    gripper: GripperCellConfig | None = None,
) -> None:
    """Main of the process; answers ``ready`` or a typed error through the pipe, then runs."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A vendor library that prints must not spoil a --json answer on standard output.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # It may take a minute, of which no other arm of this machine shall notice anything.
    from robolearn.arms.compiled.ahead import compile_all

    compile_all()
    # Before any thread is made: threads inherit it. A thread of normal priority that holds the
    # interpreter's lock while others use the processor would stop the loop for 100 ms.
    refused = _take_real_time_priority() if want_real_time else "real-time priority not wanted"
    listener = _log_through_queue(log_level)
    if refused:
        log.warning("%s", refused)
    code = 0
    try:
        _connect_and_loop(
            *(build_robot, follower, config, handles, pipe, gripper), real_time=not refused
        )
    except Exception as error:
        # A typed error reaches the user through the pipe; only a bug needs its traceback.
        trace = None if isinstance(error, RobolearnError) else error
        log.error("supervisor failed; the device's watchdog stops the arm", exc_info=trace)
        _report(pipe, error)
        code = 1
    _end_log(listener)
    # Vendor libraries may hang in their destructors; everything of ours is released already.
    os._exit(code)


def _connect_and_loop(
    build_robot: Callable[[], Robot],
    follower: FollowerRecipe,
    config: SupervisorConfig,
    handles: LinkHandles,
    pipe: Connection,
    gripper: GripperCellConfig | None,
    *,
    real_time: bool,
) -> None:
    agent = multiprocessing.parent_process()
    inbox = PipeInbox(pipe, os.getppid() if agent is None else agent.pid or 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, inbox.terminate)
    link = handles.attach()
    for ring in link.rings:
        ring.touch()
    robot = build_robot()
    keeper = make_keeper(gripper, robot, link.grips)
    try:
        motion, guard = follower.build(robot.rate_hz), follower.guard(robot.rate_hz)
        gc.collect()
        gc.freeze()
        gc.disable()
        if real_time:
            _keep_memory()
        keeper.connect(mounted=False)
        # From here on the device's watchdog runs: nothing slow may come before the loop.
        robot.connect()
        keeper.connect(mounted=True)
        keeper.start()
        supervisor = Supervisor(
            *(robot, motion, config, link, inbox, time.monotonic_ns),
            real_time=real_time,
            guard=guard,
            keeper=keeper,
        )
        rate = Rate(robot.rate_hz)
        ready = {
            "kind": "ready",
            "real_time": real_time,
            "watchdog": robot.has_watchdog,
            "freedrive": robot.freedrive is not None,
            "pid": os.getpid(),
        }
        pipe.send_bytes(json.dumps(ready).encode())
        rate.restart()
        while not supervisor.finished:
            late_ns = rate.wait()
            supervisor.tick(time.monotonic_ns(), late_ns, rate.missed)
    finally:
        keeper.close()
        robot.close()
        link.close()


def _take_real_time_priority() -> str:
    """Why it was not given ("" when it was)."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except (OSError, AttributeError) as error:
        return (
            f"no real-time priority ({error}): set-points may be late on a busy machine; allow it"
            f" with 'ulimit -r {FIFO_PRIORITY}' or CAP_SYS_NICE"
        )
    # Where the kernel shares by session (autogroup), this is the nice value that counts for the
    # vendor's threads, which stay ordinary ones. It takes a privilege of its own.
    autogroup = Path("/proc/self/autogroup")
    with contextlib.suppress(OSError):
        if autogroup.exists():
            autogroup.write_text(str(SESSION_NICE))
    return ""


def _keep_memory() -> None:
    """Pages stay where they are: one that was reclaimed costs a tick some hundred microseconds."""
    if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT):
        why = os.strerror(ctypes.get_errno())
        log.info("memory may be reclaimed (%s); allow it with 'ulimit -l unlimited'", why)


def _log_through_queue(level: int) -> logging.handlers.QueueListener:
    records: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s supervisor: %(message)s"))
    root = logging.getLogger()
    root.setLevel(level)
    root.handlers = [logging.handlers.QueueHandler(records)]
    listener = logging.handlers.QueueListener(records, handler)
    listener.start()
    return listener


def _end_log(listener: logging.handlers.QueueListener, timeout_s: float = 2.0) -> None:
    """Write what is left; whoever reads the log may have stopped reading, and this still ends."""
    flush = threading.Thread(target=listener.stop, daemon=True)
    flush.start()
    flush.join(timeout_s)


def _report(pipe: Connection, error: Exception) -> None:
    kind = type(error).__name__ if isinstance(error, RobolearnError) else ""
    text = str(error) if kind else f"{type(error).__name__}: {error}"
    try:
        pipe.send_bytes(json.dumps({"kind": "error", "error": kind, "text": text}).encode())
    except OSError:
        log.debug("nobody listens any more")
