"""Keeps the threads of ``ur_rtde`` at an ordinary priority, and lets its interfaces go safely."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any


def without_real_time(call: Callable[[], Any]) -> Any:
    """Run a constructor whose threads must not inherit real-time priority, or a call that waits for
    what those threads receive: at real-time priority its spinning could keep them from it.

    The client's receive threads poll every 100 us; at real-time priority they would take most of
    a core from everybody else. A high normal priority keeps them prompt.
    """
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    thread = threading.get_native_id()
    nice = os.getpriority(os.PRIO_PROCESS, thread)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        if policy != os.SCHED_OTHER:
            # Real-time priority may be permitted where this is not; then they are ordinary.
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, thread, -15)
        return call()
    finally:
        if policy != os.SCHED_OTHER:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
        os.sched_setscheduler(0, policy, param)


def leave(interface: Any) -> None:
    """Disconnect, and never destroy: the destructors of ur_rtde 1.6.5 disconnect a second time, and
    hold the interpreter's lock while they wait, which would stop the supervisor's loop.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(interface))
    interface.disconnect()
