"""Lets one writer into a store: an advisory lock on the store's folder itself.

``flock`` belongs to the open file description: the kernel drops it when the process dies, so a
killed writer's lock needs no clean-up, and nothing is written into the store.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from robolearn.errors import StoreError, StoreLockedError


class StoreLock:
    """Held from construction to :meth:`release`; a live second writer gets an error at once."""

    def __init__(self, store: Path, name: str = "") -> None:
        self._fd: int | None = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            inode = os.fstat(self._fd).st_ino
            os.close(self._fd)
            self._fd = None
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreError(
                    f"{store}: this file system cannot lock folders ({error.strerror});"
                    " put the store on a local disk"
                ) from error
            raise StoreLockedError(
                f"{name or store} is being written by {_holder(inode)};"
                " wait for it to end or stop it"
            ) from error

    def release(self) -> None:
        """Give the lock back; safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _holder(inode: int) -> str:
    """Who holds the lock, as far as the kernel tells (Linux ``/proc/locks``)."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    for line in lines:
        fields = line.split()
        if "FLOCK" in fields and len(fields) >= 6 and fields[5].endswith(f":{inode}"):
            return f"process {fields[4]}"
    return "another process"
