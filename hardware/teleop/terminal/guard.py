"""Gives a terminal back when the program that reads its keys dies without doing so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
from typing import Any

_GUARD = """
import json, os, select, sys, termios
ours, theirs, restore, parent = json.loads(sys.argv[1])
watched = [0]
try:
    watched.append(os.pidfd_open(parent))
except (AttributeError, OSError):
    pass
ready = select.select(watched, [], [])[0]
if 0 not in ready or os.read(0, 1) != b".":
    def plain(attributes):
        return [*attributes[:6], [c if isinstance(c, int) else c[0] for c in attributes[6]]]
    try:
        if restore:
            os.write(1, restore.encode())
        if plain(termios.tcgetattr(1)) == ours:
            termios.tcsetattr(1, termios.TCSAFLUSH, [*theirs[:6], [bytes([c]) for c in theirs[6]]])
    except (OSError, termios.error):
        pass
"""


class TerminalGuard:
    """A child process that waits for the end of this one, and makes the terminal ``fd`` again what
    it was ``before``, unless somebody has changed it since; ``restore``: written to it first.
    To be started once the terminal is as the program wants it; OSError where it cannot.
    """

    def __init__(self, fd: int, before: list[Any], restore: bytes = b"") -> None:
        ours, theirs = _plain(termios.tcgetattr(fd)), _plain(before)
        told = json.dumps([ours, theirs, restore.decode(), os.getpid()])
        # In a session of its own, so that no signal of the terminal ends it first.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, told],
            stdin=subprocess.PIPE,
            stdout=fd,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """The terminal was given back; nothing is left to do."""
        try:
            self._process.communicate(b".", timeout=2.0)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


def _plain(attributes: list[Any]) -> list[Any]:
    """Terminal attributes as JSON values."""
    characters = [c if isinstance(c, int) else c[0] for c in attributes[6]]
    return [*attributes[:6], characters]
