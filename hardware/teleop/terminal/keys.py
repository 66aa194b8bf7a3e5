"""Reads keys from a terminal, with releases where the terminal tells them, and gives it back.

    program --CSI ? u-->  terminal      "do you speak the kitty keyboard protocol?"
            <--CSI ? 0 u--              yes: push the modes, and ask whether they hold
            --CSI > 15 u, CSI ? u-->
            <--CSI ? 15 u--             presses, repeats and releases of every key come from now on
            <--(nothing)--              no: presses only, as they always were

Nothing waits for the answers: a terminal far away may take its time. Under the protocol Ctrl-C is a
key like others; it is made a signal again here. A guard gives the terminal back when this program
dies without doing so. Protocol: https://sw.kovidgoyal.net/kitty/keyboard-protocol/
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import threading
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hardware.teleop.terminal.codes import (
    ALIVE,
    FOCUS_IN,
    FOCUS_OUT,
    PASTE_BEGINS,
    PASTE_ENDS,
    Key,
    decode,
    flags_told,
    split_codes,
)
from hardware.teleop.terminal.guard import TerminalGuard
from robolearn.errors import ConfigError

# Disambiguate (1), types of events (2), other layouts' keys (4), all keys as escapes (8).
FLAGS = 15
_NEEDED = 2 | 8
QUERY, PUSH, POP = b"\x1b[?u", b"\x1b[>%du" % FLAGS, b"\x1b[<u"
# Back from the other screen, whose cursor may be hidden.
LEAVE_SCREEN = b"\x1b[?1049l\x1b[?25h"
FOCUS_ON, FOCUS_OFF = b"\x1b[?1004h", b"\x1b[?1004l"
# What is pasted comes between two marks, and is nobody's keys; it may have been cut off: it is over
# when nothing came for so long [s].
PASTE_ON, PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"
_PASTE_S = 0.5
# A terminal answers this at once, which proves that it, and the line to it, still live.
PING = b"\x1b[5n"
PING_S = 0.1
# A lone escape is a key when nothing follows it for so long [s].
_ESCAPE_S = 0.05
# What looks like the rest of a sequence and follows within so long is that: a slow line cut it [s].
_TAIL_S, _TAIL = 0.5, re.compile(rb"\[|O[A-DFHP-S]")
Protocol = Literal["presses", "events"]


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """One key at one time [ns]; ``kind`` is ``press`` alone where the protocol is ``presses``."""

    t_ns: int
    key: Key


class Terminal:
    """A terminal that is read key by key until :meth:`close`; ``heard`` is called for every key,
    and with None when the focus was lost or the terminal is gone, on a thread of its own.
    ``full_screen``: the other screen is shown, and whoever shows it gives it back; if the program
    dies, the guard does.
    """

    def __init__(
        self,
        fd: int,
        heard: Callable[[KeyEvent | None], None],
        *,
        who: str,
        full_screen: bool = False,
    ) -> None:
        if not os.isatty(fd):
            raise ConfigError(
                f"{who} needs a terminal, but standard input is not one; run it from an"
                " interactive shell, or use --agent browser"
            )
        self._heard = heard
        self._leaving = LEAVE_SCREEN if full_screen else b""
        # Reading and writing, whatever the given descriptor was opened for.
        self._fd = os.open(os.ttyname(fd), os.O_RDWR | os.O_NOCTTY)
        self._settings = termios.tcgetattr(self._fd)
        self._lock = threading.Lock()
        self._closed = False
        self.protocol: Protocol = "presses"
        self.focused, self.gone = True, False
        # When the terminal was last heard of.
        self.alive_ns = time.monotonic_ns()
        self._pinging, self._pinged_ns, self._asked = False, 0, 0
        tty.setcbreak(self._fd)
        ours = termios.tcgetattr(self._fd)
        # Ctrl-Z would leave the shell with a terminal that is half ours.
        ours[6][termios.VSUSP] = b"\0"
        # Ctrl-S, which lies beside a key that moves, would stop all that is written here.
        ours[0] &= ~termios.IXON
        termios.tcsetattr(self._fd, termios.TCSADRAIN, ours)
        try:
            # Popping nothing does nothing, so that the guard need not know what was pushed.
            restore = FOCUS_OFF + PASTE_OFF + POP + self._leaving
            self._guard = TerminalGuard(self._fd, self._settings, restore)
        except OSError:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._settings)
            os.close(self._fd)
            raise
        self._woken, self._wake = os.pipe()
        # Until when what comes was pasted.
        self._pasted_ns = 0
        # Until when what comes may be the rest of what was taken for a lone escape.
        self._tail_ns, self._severed = 0, False
        self._write(FOCUS_ON + PASTE_ON + QUERY)
        self._thread = threading.Thread(target=self._run, name="terminal-keys", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def columns(self) -> int:
        """Width of the window in characters; 80 where it does not say."""
        with contextlib.suppress(OSError):
            return os.get_terminal_size(self._fd).columns or 80
        return 80

    def keep_pinging(self, on: bool) -> None:
        """While a key is held: ask the terminal again and again whether it is still there."""
        with self._lock:
            changed, self._pinging = on != self._pinging, on
            if not changed:
                return
            self.alive_ns = time.monotonic_ns()
        if on:
            self._stir(b"p")

    def close(self) -> None:
        """Give the terminal back as it was; safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stir(b"x")
        self._thread.join()
        with contextlib.suppress(OSError, termios.error):
            self._write(self._restoring())
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._settings)
        self._guard.close()
        for fd in (self._fd, self._woken, self._wake):
            os.close(fd)

    def _restoring(self) -> bytes:
        return FOCUS_OFF + PASTE_OFF + (POP if self._asked > 1 else b"")

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, data)

    def _stir(self, why: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake, why)

    def _run(self) -> None:
        try:
            self._listen()
        finally:
            if not self._closed:
                # Nobody can say stop any more.
                self.gone = True
                self._heard(None)

    def _listen(self) -> None:
        """Until the terminal is closed, or gone."""
        rest = b""
        while not self._closed:
            patience = _ESCAPE_S if rest == b"\x1b" else PING_S if self._pinging else None
            ready = select.select([self._fd, self._woken], [], [], patience)[0]
            self._ping()
            if self._woken in ready:
                os.read(self._woken, 64)
            if self._fd in ready:
                try:
                    data = os.read(self._fd, 4096)
                except OSError:
                    data = b""
                if not data:
                    return
                rest = rest or self._severed_by(data)
                codes, rest = split_codes(rest + data)
            elif not ready and rest == b"\x1b":
                codes, rest = [rest], b""
                self._tail_ns = time.monotonic_ns() + round(_TAIL_S * 1e9)
            else:
                continue
            for code in self._meant(codes):
                self._take(code)

    def _severed_by(self, data: bytes) -> bytes:
        """The escape that came long before ``data``, where that is the rest of a sequence."""
        if time.monotonic_ns() >= self._tail_ns or not _TAIL.match(data):
            return b""
        self._tail_ns, self._severed = 0, True
        return b"\x1b"

    def _meant(self, codes: list[bytes]) -> list[bytes]:
        """Without what moves after an escape that was no key's, or may be none: a key that was cut
        in two, or that was pressed with Alt. The escape itself counts, as it may be a stop.
        """
        found: list[bytes] = []
        for before, code in zip([b"", *codes], codes, strict=False):
            severed, self._severed = self._severed, False
            with_alt = before == b"\x1b" and len(code) == 1 and code != b"\x1b"
            if not (with_alt or (severed and decode(code) is not None)):
                found.append(code)
        return found

    def _ping(self) -> None:
        now = time.monotonic_ns()
        if self._pinging and now - self._pinged_ns >= PING_S * 1e9:
            self._pinged_ns = now
            self._write(PING)

    def _take(self, code: bytes) -> None:
        now = time.monotonic_ns()
        self.alive_ns = now
        flags = flags_told(code)
        if flags is not None:
            self._negotiate(flags)
        elif code in (FOCUS_IN, FOCUS_OUT):
            self.focused = code == FOCUS_IN
            if not self.focused:
                self._heard(None)
        elif code in (PASTE_BEGINS, PASTE_ENDS):
            self._pasted_ns = now + round(_PASTE_S * 1e9) if code == PASTE_BEGINS else 0
        elif code != ALIVE:
            # Where every key is told as an event, a character is text that nobody would release.
            text = self.protocol == "events" and len(code) == 1 and code != b"\x1b"
            key = None if text else decode(code)
            if key is None or self._pasted(now, key):
                return
            if key.ctrl and key.name in ("c", "\\") and key.kind == "press":
                # As the terminal's driver does it.
                os.kill(os.getpid(), signal.SIGINT if key.name == "c" else signal.SIGQUIT)
                return
            # A key proves the focus, whatever became of the event that tells it.
            self.focused = True
            self._heard(KeyEvent(now, key))

    def _pasted(self, now: int, key: Key) -> bool:
        """Whether a key is text; terminals paste neither escapes nor releases."""
        if now > self._pasted_ns or key.name == "escape" or key.kind == "release":
            return False
        self._pasted_ns = now + round(_PASTE_S * 1e9)
        return True

    def _negotiate(self, flags: int) -> None:
        if self._asked == 0:
            self._asked = 2
            self._write(PUSH + QUERY)
        elif flags & _NEEDED == _NEEDED:
            self.protocol = "events"
