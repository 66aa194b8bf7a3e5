"""Catches Ctrl-C so that it cannot get lost, and what ends programs from outside like it.

A batch system, a container or a closed terminal sends SIGTERM or SIGHUP, which would end a command
where it stands; they are Ctrl-C to it. Python raises ``KeyboardInterrupt`` wherever the main thread
happens to be, and drops it when that is a callback whose exceptions are ignored (a weak reference,
a finaliser). The key is therefore also remembered, and loops ask at every step (:func:`check`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

# What asks a command to end, and what it is called; what Python or the system does by itself then.
WORDS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the end of its terminal (SIGHUP)",
}
_DEFAULTS: dict[signal.Signals, Any] = dict.fromkeys(WORDS, signal.SIG_DFL)
_DEFAULTS[signal.SIGINT] = signal.default_int_handler
# A plain list, not an Event: a signal handler must not wait for a lock that it interrupted.
_pressed: list[int] = []
# Whether a command runs, and whether its terminal was found to be gone.
_running: list[bool] = []
_hung_up: list[bool] = []
# The process whose command it is, and what ended the last command.
_owner, _ended_by = [0], [int(signal.SIGINT)]


def stopped_by() -> str:
    """What ended the command that runs or ran last, in words."""
    return WORDS[signal.Signals(_ended_by[-1])]


def hang_up() -> None:
    """Whoever reads the terminal was told that it is gone, which may be before SIGHUP says so, or
    instead (nohup). From any thread; outside of a command it means nothing.
    """
    if _running:
        _hung_up.append(True)


def hung_up() -> bool:
    """Whether the end of its terminal ends the command, which nobody may have meant."""
    return bool(_hung_up) or signal.SIGHUP in _pressed


def check() -> None:
    """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed since the command began."""
    if _pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def remembered() -> Generator[None]:
    """Remember Ctrl-C and its kin while a command runs; a shell that ignores one of them for this
    process is obeyed.
    """
    _pressed.clear()
    _hung_up.clear()
    _running.append(True)
    _owner[0] = os.getpid()
    _ended_by[:] = [signal.SIGINT]
    ours = _handled_by(lambda number, handler: handler is _DEFAULTS[number])
    report = sys.unraisablehook

    def quiet(dropped: sys.UnraisableHookArgs) -> None:
        # The dropped one is remembered: no traceback for a key press.
        if dropped.exc_type is not KeyboardInterrupt:
            report(dropped)

    for number in ours:
        signal.signal(number, _handle)
    if ours:
        sys.unraisablehook = quiet
    try:
        yield
    finally:
        for number, before in ours.items():
            signal.signal(number, before)
        if ours:
            sys.unraisablehook = report
        _pressed.clear()
        _hung_up.clear()
        _running.pop()


@contextlib.contextmanager
def held(patience_s: float = 1.0) -> Generator[Callable[[], bool]]:
    """Ctrl-C (in a command its kin, too) waits while the block runs: yields whether it was pressed,
    for the block to come to a good end by itself; afterwards it is raised. A press more than
    ``patience_s`` after the first comes through at once (a launcher passes one key press on twice).
    """
    ours = _handled_by(lambda _, handler: handler in (signal.default_int_handler, _handle))
    times: list[float] = []
    numbers: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        _leave_forked(number)
        # Also where the block itself raises, as training does once its checkpoint is written.
        _ended_by.append(number)
        times.append(time.monotonic())
        numbers.append(number)
        if times[-1] - times[0] > patience_s:
            _handle(number, frame)

    if ours:
        _owner[0] = os.getpid()
    for number in ours:
        signal.signal(number, wait)
    try:
        yield lambda: bool(times)
    finally:
        for number, before in ours.items():
            signal.signal(number, before)
    if numbers:
        _handle(numbers[0], None)


def _handled_by(ours: Callable[[signal.Signals, Any], bool]) -> dict[signal.Signals, Any]:
    """The signals whose handler is one of ours to replace, with it; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in WORDS}
    return {number: handler for number, handler in handlers.items() if ours(number, handler)}


def _handle(number: int, frame: FrameType | None) -> None:
    del frame
    _leave_forked(number)
    _pressed.append(number)
    _ended_by.append(number)
    raise KeyboardInterrupt


def _leave_forked(number: int) -> None:
    """A child that was forked meanwhile ends by SIGTERM and SIGHUP as if nobody handled them."""
    if number != signal.SIGINT and os.getpid() != _owner[0]:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
