"""Lets an arm go on after a stop: a lab's by the program, a real one's by who stands beside it."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Protocol, runtime_checkable

from hardware.cell.config import CellConfig
from hardware.supervisor.link import Cause, Status
from robolearn.errors import ConfigError, RobotConnectionError, RobotError
from robolearn.operations.deploy.operator import Attendant

# How often somebody is asked to release an arm that refuses to go on.
_ASKED = 3
# A controller may keep a protective stop locked for some seconds [s].
_PATIENCE_S = 15.0
AGAIN_S = 0.2
"""Between two tries to release it [s]."""
_PANEL = "release the robot at its own panel, or by 'robolearn hardware recover'"


@runtime_checkable
class Stopped(Protocol):
    """An env whose supervisor latched a stop."""

    def status(self) -> Status:
        """The supervisor's."""
        ...

    def clear_stop(self) -> None:
        """Recover from it; RobotError where the robot itself refuses."""
        ...


def why_stopped_for_good(env: Stopped, cell: CellConfig, attendant: Attendant, text: str) -> str:
    """Clear the stop; why that may not be, "" once the arm may go on. ``text``: what the person is
    asked to do.

    A lab is released by the program, by the steps of ``robolearn hardware recover``; a real arm,
    and a stop that somebody asked for, by the person, who is asked again while the robot refuses.
    Errors: :class:`RobotConnectionError` for a robot that is gone.
    """
    if cell.lab and env.status().cause != Cause.ESTOP:
        return why_not_cleared(env, cell)
    if not attendant.places:
        return "nobody is there to clear it"
    refused = ""
    for _ in range(_ASKED):
        attendant.place(f"{text} ({refused})" if refused else text)
        refused = why_not_cleared(env, cell)
        if not refused:
            break
    return refused


def why_not_cleared(env: Stopped, cell: CellConfig) -> str:
    """Clear the stop, as somebody who looked at the cell asks for; why that may not be, and what
    to do, "" once the arm may go on. In a lab the emulated robot's own fault is released, too.

    Errors: :class:`RobotConnectionError` for a robot that is gone.
    """
    refused = _refusal(env)
    if not refused:
        return ""
    return _recovered(env, cell, refused) if cell.lab else f"{refused}; {_PANEL}"


def _refusal(env: Stopped) -> str:
    try:
        env.clear_stop()
    except RobotConnectionError:
        raise
    except RobotError as error:
        return str(error)
    return ""


def _recovered(env: Stopped, cell: CellConfig, refused: str) -> str:
    """A fault of the emulated robot itself is released as a person would, where its driver can."""
    try:
        opened = cell.recovery()
    except ConfigError:
        return refused
    deadline = time.monotonic() + _PATIENCE_S
    with closing(opened) as recovery:
        while time.monotonic() < deadline:
            try:
                if recovery.next_step():
                    recovery.take()
                    continue
            except RobotError as error:
                refused = str(error)
                time.sleep(AGAIN_S)
                continue
            refused = _refusal(env)
            if not refused:
                return ""
            time.sleep(AGAIN_S)
    return refused
