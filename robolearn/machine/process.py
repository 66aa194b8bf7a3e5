"""Starts children that never outlive their parent, and asks for real-time priority."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator

log = logging.getLogger(__name__)


def take_real_time(pid: int, priority: int, *, inherit: bool) -> bool:
    """Give a process (0: this thread) real-time priority; False where that is not permitted.
    ``inherit``: what it starts has it, too.
    """
    policy = os.SCHED_FIFO if inherit else os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    try:
        os.sched_setscheduler(pid, policy, os.sched_param(priority))
    except OSError as error:
        log.info("no real-time priority for process %d: %s", pid, error)
        return False
    return True


def leave_real_time(niceness: int = 0) -> None:
    """Be an ordinary program again, whatever this one was started by; ``niceness``: and let others
    go first.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(niceness)


@contextlib.contextmanager
def ordinary_children() -> Generator[None]:
    """What is started inside is an ordinary program from its first instruction on; so is this
    thread meanwhile. A process that loads its libraries with the priority of a control loop keeps
    a busy machine from the ordinary threads that serve the robot.
    """
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    if policy == os.SCHED_OTHER:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        try:
            os.sched_setscheduler(0, policy, param)
        except OSError as error:
            log.warning("the priority that this thread had is not given again: %s", error)


def exit_with_parent() -> None:
    """Call first in a spawned child: it ends when the parent ends, however that happened.

    A daemon thread waits on the parent's sentinel (closed by the kernel, so SIGKILL counts too).
    Ctrl-C is left to the parent, which decides in which order its children stop.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="exit-with-parent", daemon=True).start()
