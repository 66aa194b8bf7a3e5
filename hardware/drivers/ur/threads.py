"""Gives the threads of ``ur_rtde`` their priority, and lets its interfaces go safely."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

# Real-time priorities, the lowest of all (the process that commands has 5, the supervisor 50): the
# threads that receive, and the calls that wait for them.
_RECEIVING, _WAITING = 4, 3


def receiving(call: Callable[[], Any]) -> Any:
    """Run a constructor, whose threads receive what the controller sends, polling every 100 us.

    They inherit what this thread has then. At the supervisor's own priority they would keep others
    waiting; at an ordinary one, however high, others kept them waiting: on two cores states that
    had arrived in time were 17 to 28 ms old before they were looked at, which stopped the arm.
    """
    return _at(_RECEIVING, call)


def waiting(call: Callable[[], Any]) -> Any:
    """Run a call that waits for what those threads receive: above them its spinning could keep them
    from it.
    """
    return _at(_WAITING, call)


def _at(priority: int, call: Callable[[], Any]) -> Any:
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    if policy == os.SCHED_OTHER:
        # Without real-time priority there is none to give away.
        return call()
    os.sched_setscheduler(0, policy, os.sched_param(priority))
    try:
        return call()
    finally:
        os.sched_setscheduler(0, policy, param)


def leave(interface: Any) -> None:
    """Disconnect, and never destroy: the destructors of ur_rtde 1.6.5 disconnect a second time, and
    hold the interpreter's lock while they wait, which would stop the supervisor's loop.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(interface))
    interface.disconnect()
