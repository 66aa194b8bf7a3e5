"""Reads the operator's keys in a deployment: emergency stop, success, failure, end of the trial."""

from __future__ import annotations

import logging
import os
import select
import termios
import threading
import tty
from collections.abc import Callable

from hardware.teleop.terminal.guard import TerminalGuard

log = logging.getLogger(__name__)

STOP = (" ", "\x1b")
VERDICTS = ("s", "f", "q")
HELP = "space or Esc: emergency stop; s: success, f: failure, q: end this trial"


class Keys:
    """Reads single keys of a terminal in a thread of its own, so that the stop never waits for the
    control loop. The terminal is left alone until :meth:`start`; :meth:`close` gives it back, and a
    guard where the program dies before.
    """

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._verdict = ""
        self._entered = threading.Event()
        # What was typed since a line was asked for; None: nobody asked.
        self._line: str | None = None
        self._stop: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._guard: TerminalGuard | None = None
        self._wake = self._end = -1

    def start(self, stop: Callable[[], None]) -> None:
        """Read keys from now on; ``stop`` is the emergency stop."""
        self._before = termios.tcgetattr(self._terminal)
        self._stop = stop
        self._wake, self._end = os.pipe()
        tty.setcbreak(self._terminal)
        try:
            self._guard = TerminalGuard(self._terminal, self._before)
        except OSError as error:
            log.warning("nobody gives the terminal back should this program be killed: %s", error)
        self._thread = threading.Thread(target=self._read, name="keys", daemon=True)
        self._thread.start()

    def verdict(self) -> str:
        """The last of s, f and q since :meth:`forget` ("" for none)."""
        return self._verdict

    def forget(self) -> None:
        """A new trial begins."""
        self._verdict = ""

    def wait_enter(self) -> bool:
        """Wait until Enter is pressed; False when the terminal is gone."""
        self._entered.clear()
        while self._thread is not None and self._thread.is_alive():
            if self._entered.wait(0.2):
                return True
        return False

    def wait_line(self) -> str | None:
        """What is typed until Enter; None when the terminal is gone. The arm stands meanwhile: the
        space bar is a space, Esc stops.
        """
        self._line = ""
        try:
            return self._line if self.wait_enter() else None
        finally:
            self._line = None

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        os.write(self._end, b"x")
        thread.join(2.0)
        os.close(self._end)
        os.close(self._wake)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
        if self._guard is not None:
            self._guard.close()

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._terminal, self._wake], [], [])
            if self._wake in ready:
                return
            try:
                pressed = os.read(self._terminal, 32).decode(errors="ignore")
            except OSError as error:
                log.warning("the terminal is gone: %s; no keys any more", error)
                return
            if not pressed:
                return
            self._handle(pressed)

    def _handle(self, pressed: str) -> None:
        typed = self._line
        stops = STOP if typed is None else STOP[1:]
        if any(key in pressed for key in stops) and self._stop is not None:
            log.warning("emergency stop by key")
            try:
                self._stop()
            except Exception:
                # Whatever it was, the next press must be read.
                log.exception("the emergency stop could not be asked for")
        if typed is not None:
            self._line = self._typed(typed, pressed)
        for key in pressed.lower() if typed is None else "":
            if key in VERDICTS:
                self._verdict = key
        if "\n" in pressed or "\r" in pressed:
            self._entered.set()

    def _typed(self, line: str, pressed: str) -> str:
        """The line after these keys; what follows Enter does not belong to it."""
        for key in pressed:
            if key in "\r\n":
                break
            if key in "\x7f\b":
                line = line[:-1]
            elif key.isprintable():
                line += key
        return line
