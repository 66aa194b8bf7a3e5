"""Reads the terminal as a device: arrow keys or w a s d move the target, raw and unbuffered.

A terminal reports no key releases, so every key press is one step of the target: letting go holds
the tool where it was sent.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.teleop.device import Key, Reading, View
from robolearn.errors import ConfigError
from robolearn.geometry import XY
from robolearn.pusht import TABLE_SIZE_M

STEP_M = 0.006
FINE_STEP_M = 0.001
MOVES: dict[bytes, tuple[float, float]] = {
    b"\x1b[A": (0, 1), b"\x1b[B": (0, -1), b"\x1b[C": (1, 0), b"\x1b[D": (-1, 0),
    b"\x1bOA": (0, 1), b"\x1bOB": (0, -1), b"\x1bOC": (1, 0), b"\x1bOD": (-1, 0),
    b"w": (0, 1), b"s": (0, -1), b"d": (1, 0), b"a": (-1, 0),
}  # fmt: skip
FINE = {k.upper(): v for k, v in MOVES.items() if len(k) == 1}
KEYS: dict[bytes, Key] = {
    b" ": "start", b"\r": "keep", b"\n": "keep", b"\x7f": "discard", b"\x08": "discard",
    b"x": "discard", b"q": "quit", b"\x03": "quit",
}  # fmt: skip
HELP = "arrow keys or w a s d move (capitals: fine)   space start   enter keep   x discard   q quit"


class KeyboardDevice:
    """Reads the terminal ``fd`` until :meth:`close`, which restores its settings."""

    name = "keyboard"

    def __init__(self, write: Callable[[str], Any], fd: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if fd is None else fd
        if not os.isatty(self._fd):
            raise ConfigError(
                "--agent keyboard needs a terminal, but standard input is not one;"
                " run it from an interactive shell, or use --agent browser"
            )
        self._write = write
        self._target: XY | None = None
        self._pressed: list[Key] = []
        self._rest = b""
        self._settings: list[Any] | None = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        self._write(HELP + "\n")

    def begin(self, tool: XY) -> None:
        """The target starts where the tool is."""
        self._target = np.array(tool, dtype=np.float64)

    def poll(self) -> Reading:
        """The target after all keys pressed so far."""
        self._read()
        target = None if self._target is None else self._target.copy()
        return Reading(time.monotonic_ns(), target)

    def pressed(self) -> tuple[Key, ...]:
        """Start, keep, discard and quit since the last call."""
        self._read()
        pressed, self._pressed = tuple(self._pressed), []
        return pressed

    def show(self, view: View) -> None:
        """One line that is rewritten in place."""
        self._write(f"\r\x1b[K{status_line(view)}")

    def close(self) -> None:
        """Give the terminal back as it was; safe to call twice."""
        if self._settings is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._settings)
            self._settings = None
            self._write("\n")

    def _read(self) -> None:
        while select.select([self._fd], [], [], 0.0)[0]:
            data = os.read(self._fd, 256)
            if not data:
                # The terminal is gone; nobody can say stop later.
                self._pressed.append("quit")
                return
            self._rest += data
        codes, self._rest = split_codes(self._rest)
        for code in codes:
            self._press(code)

    def _press(self, code: bytes) -> None:
        if code in KEYS:
            self._pressed.append(KEYS[code])
            return
        step = FINE_STEP_M if code in FINE else STEP_M
        move = MOVES.get(code) or FINE.get(code)
        if move is not None and self._target is not None:
            moved = self._target + step * np.array(move)
            self._target = np.clip(moved, 0.0, TABLE_SIZE_M)


def split_codes(data: bytes) -> tuple[list[bytes], bytes]:
    """Cut terminal input into key codes; an unfinished escape sequence is the rest."""
    codes: list[bytes] = []
    while data:
        if data[:1] == b"\x1b" and data[1:2] in (b"[", b"O", b""):
            if len(data) < 3:
                return codes, data
            size = 3
        else:
            size = 1
        codes.append(data[:size])
        data = data[size:]
    return codes, b""


def status_line(view: View) -> str:
    """The whole state in one line of at most 100 characters."""
    bar = "#" * round(20 * view.progress)
    x, y, yaw = view.block
    return (
        f"{view.phase:<8}{view.step:4d}/{view.max_steps} [{bar:<20}] {100 * view.progress:3.0f} %"
        f"  T {1e3 * x:4.0f} {1e3 * y:4.0f} mm {np.degrees(yaw):4.0f} deg  {view.rate_hz:4.1f} Hz"
        f"  saved {view.saved}/{view.wanted}  {view.message}"
    )[:140]
