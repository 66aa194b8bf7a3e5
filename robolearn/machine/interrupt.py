"""Catches Ctrl-C so that it cannot get lost.

Python raises ``KeyboardInterrupt`` wherever the main thread happens to be, and drops it when that
is a callback whose exceptions are ignored (a weak reference, a finaliser). The key is therefore
also remembered, and loops ask at every step (:func:`check`).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType

# A plain list, not an Event: a signal handler must not wait for a lock that it interrupted.
_pressed: list[int] = []


def check() -> None:
    """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed since the command began."""
    if _pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def remembered() -> Generator[None]:
    """Remember Ctrl-C while a command runs; a shell that ignores it for this process is obeyed."""
    _pressed.clear()
    before = signal.getsignal(signal.SIGINT)
    ours = (
        before is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )
    report = sys.unraisablehook

    def quiet(dropped: sys.UnraisableHookArgs) -> None:
        # The dropped one is remembered: no traceback for a key press.
        if dropped.exc_type is not KeyboardInterrupt:
            report(dropped)

    if ours:
        signal.signal(signal.SIGINT, _handle)
        sys.unraisablehook = quiet
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
            sys.unraisablehook = report
        _pressed.clear()


@contextlib.contextmanager
def held(patience_s: float = 1.0) -> Generator[Callable[[], bool]]:
    """Ctrl-C waits while the block runs: yields whether it was pressed, for the block to come to a
    good end by itself; afterwards it is raised. A press more than ``patience_s`` after the first
    comes through at once (a launcher passes one key press on twice).
    """
    before = signal.getsignal(signal.SIGINT)
    ours = (
        before in (signal.default_int_handler, _handle)
        and threading.current_thread() is threading.main_thread()
    )
    times: list[float] = []

    def wait(number: int, frame: FrameType | None) -> None:
        times.append(time.monotonic())
        if times[-1] - times[0] > patience_s:
            _handle(number, frame)

    if ours:
        signal.signal(signal.SIGINT, wait)
    try:
        yield lambda: bool(times)
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
    if times:
        _handle(signal.SIGINT, None)


def _handle(number: int, frame: FrameType | None) -> None:
    del frame
    _pressed.append(number)
    raise KeyboardInterrupt
