"""Emulates a serial line on a pseudo-terminal: wire time, wrong speed, garbage, unplugging.

A pty carries bytes at once and takes any speed without effect. Here an answer arrives when its
last byte would have, and a client that set another speed than the line's hears nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import selectors
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path

from hardware.emulators.loop import READ_BYTES, EmulatorLoop
from robolearn.errors import ConfigError, RobotConnectionError

log = logging.getLogger(__name__)

BITS_PER_BYTE = 10  # start, eight, stop
# A line that is flooded (garbage from the host) drops what waits longer than this.
MAX_BACKLOG_S = 0.5


class PtyLine:
    """``receive(data)`` gets what a client writes and returns the answers, one after the other.

    ``link``: a symbolic link to the pty's name, so that a config can name it; ``baud``: the
    line's speed. :attr:`mute` drops everything (a device that hangs or has no power).
    """

    def __init__(
        self,
        loop: EmulatorLoop,
        receive: Callable[[bytes], list[bytes]],
        *,
        baud: int,
        link: Path | None = None,
        wire_time: bool = True,
    ) -> None:
        speed = getattr(termios, f"B{baud}", None)
        if speed is None:
            known = sorted(int(n[1:]) for n in dir(termios) if n[0] == "B" and n[1:].isdigit())
            raise ConfigError(f"baud must be one of {known}, got {baud}")
        self.mute = False
        self.sent = 0
        self._loop, self._receive, self._link = loop, receive, link
        self._speed = int(speed)
        self._byte_ns = round(1e9 * BITS_PER_BYTE / baud) if wire_time else 0
        self._free_ns = 0
        self._fds: tuple[int, int] | None = None
        self.name = ""
        self.plug()

    def plug(self) -> None:
        """A pty, and the link to it. Raises RobotConnectionError when the link is not ours."""
        master, slave = pty.openpty()
        tty.setraw(slave)
        os.set_blocking(master, False)
        self._fds = (master, slave)
        self.name = os.ttyname(slave)
        if self._link is not None:
            try:
                _relink(self._link, self.name)
            except RobotConnectionError:
                os.close(master)
                os.close(slave)
                self._fds = None
                raise
        self._loop.selector.register(master, selectors.EVENT_READ, self._ready)

    def unplug(self) -> None:
        """Fault: the adapter leaves; a client's next call fails. Safe to call twice."""
        if self._fds is None:
            return
        master, slave = self._fds
        self._fds = None
        self._loop.selector.unregister(master)
        os.close(master)
        os.close(slave)
        # Another lab may have taken the name over.
        if self._link is not None and self._link.is_symlink():
            with contextlib.suppress(OSError):
                if str(self._link.readlink()) == self.name:
                    self._link.unlink()

    def garbage(self, data: bytes) -> None:
        """Fault: bytes that no device sent."""
        self._write(data)

    def _ready(self, _mask: int) -> None:
        if self._fds is None:
            return
        try:
            data = os.read(self._fds[0], READ_BYTES)
        except OSError:
            return
        # The pair shares its settings: what the client set is visible on this side.
        wrong_speed = termios.tcgetattr(self._fds[0])[5] != self._speed
        if self.mute or wrong_speed or not data:
            return
        now_ns = time.monotonic_ns()
        self._free_ns = max(now_ns, self._free_ns) + len(data) * self._byte_ns
        for answer in self._receive(data):
            self._free_ns += len(answer) * self._byte_ns
            if self._free_ns - now_ns > MAX_BACKLOG_S * 1e9:
                self._free_ns = now_ns
                return
            if self._byte_ns:
                self._loop.call_at(self._free_ns, lambda answer=answer: self._write(answer))
            else:
                self._write(answer)

    def _write(self, data: bytes) -> None:
        if self._fds is None or self.mute:
            return
        try:
            self.sent += os.write(self._fds[0], data)
        except BlockingIOError:
            # Nobody reads: a real line loses the bytes as well.
            log.debug("pty %s is full, %d bytes lost", self.name, len(data))


def _relink(link: Path, name: str) -> None:
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        link.symlink_to(name)
    except OSError as error:
        raise RobotConnectionError(
            f"the lab's serial port cannot be named {link} ({error.strerror}); remove what is"
            " there or choose another 'link'"
        ) from error
