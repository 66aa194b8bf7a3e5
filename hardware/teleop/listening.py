"""Listens to a device file on a thread: every report is read at once, and none waits in a queue.

listening --(unplugged)--> away --(tried every half second)--> listening
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_AGAIN_S = 0.5
_LARGEST = 4096


class Listener:
    """Calls ``take(data)`` for what one read of the device gives, and ``lost()`` when it is gone.

    ``open_fd`` opens the device and raises OSError while there is none; its first failure is the
    caller's, later ones mean that the device is still away.
    """

    def __init__(
        self,
        name: str,
        open_fd: Callable[[], int],
        take: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> None:
        self._open, self._take, self._lost = open_fd, take, lost
        self._fd = open_fd()
        self._closed = False
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    @property
    def fd(self) -> int:
        """Descriptor of the device; -1 while it is away."""
        return self._fd

    def close(self) -> None:
        """End the thread and close the device; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        os.write(self._wake, b"x")
        self._thread.join()
        for fd in (self._fd, self._woken, self._wake):
            if fd >= 0:
                os.close(fd)

    def _listen(self) -> None:
        while not self._closed:
            if self._fd < 0:
                select.select([self._woken], [], [], _AGAIN_S)
                if not self._closed:
                    with contextlib.suppress(OSError):
                        self._fd = self._open()
                continue
            if self._fd not in select.select([self._fd, self._woken], [], [])[0]:
                continue
            if not self._read():
                os.close(self._fd)
                self._fd = -1
                self._lost()

    def _read(self) -> bool:
        """False when the device is gone, or tells what cannot be understood."""
        try:
            data = os.read(self._fd, _LARGEST)
            if data:
                self._take(data)
        except OSError:
            return False
        except Exception:
            # Whatever it is: what was told last must not go on for ever.
            log.exception("%s: a report could not be read", self._thread.name)
            return False
        return bool(data)


def open_file(path: str) -> int:
    """A descriptor of a device file, for reading; OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
