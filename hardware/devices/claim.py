"""Lets one program at a time own a device of this computer.

    /run/lock/robolearn/ur-at-192.168.1.10.lock   (/tmp/robolearn-locks where that is closed)

The lock is the kernel's (``flock``): it ends with its owner, however that ended, and counts for
every user, whoever made the file. What is written in the file only says who the owner is. A lock
is no fence around the device: another computer is the controller's business.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import re
import socket
import sys
from pathlib import Path

from robolearn.errors import RobotConnectionError

# Folders of the lock files, by preference: of this boot, of all users.
PLACES = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  (shared by all users on purpose)
_LONGEST = 200


class DeviceClaim:
    """A device by its name, ``<kind> at <address>`` or the path of a port."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._fd = -1

    @property
    def path(self) -> Path:
        """The lock file; names of one device (a host's name and its address, a link to a port and
        the port) share it.
        """
        key = re.sub(r"[^A-Za-z0-9.]+", "-", _resolved(self.name)).strip("-").lower()
        return lock_folder() / f"{key[-_LONGEST:]}.lock"

    def take(self) -> None:
        """Own the device from now on; RobotConnectionError names the program that owns it already.

        Taking what is owned already changes nothing.
        """
        if self._fd >= 0:
            return
        path = self.path
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 400, 0).decode("utf-8", "replace").strip() or "another program"
            os.close(fd)
            raise RobotConnectionError(
                f"{self.name} is in use by {owner}; a device has one owner at a time. End that"
                f" program, or wait for it (lock: {path})"
            ) from error
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{_owner()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Leave the device to others; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                # Closing is not enough: a child that was forked meanwhile has this descriptor, too.
                fcntl.flock(fd, fcntl.LOCK_UN)
            # The file stays: a name that goes while somebody opens it would be two locks.
            os.close(fd)


def lock_folder() -> Path:
    """Where the lock files of this computer are; made for all users when it is not there yet."""
    parent = next((p for p in PLACES if os.access(p, os.W_OK | os.X_OK)), PLACES[-1])
    folder = parent / ("robolearn" if parent == PLACES[0] else "robolearn-locks")
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)
    return folder


def _open(path: Path) -> int:
    """For reading and writing by everybody: who made the file does not matter.

    Only a new file is opened with O_CREAT, which the kernel refuses for other users' files in a
    folder that all may write (``fs.protected_regular``).
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(3):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                # Whatever the umask says.
                os.fchmod(fd, 0o666)
                return fd
        except OSError as error:
            raise RobotConnectionError(
                f"the lock file {path} cannot be opened ({error.strerror}); a device is not used"
                " without it. Remove the file if nobody uses the device"
            ) from error
    raise RobotConnectionError(f"the lock file {path} comes and goes; look at who removes it")


def _resolved(name: str) -> str:
    if name.startswith("/"):
        return str(Path(name).resolve())
    kind, found, place = name.rpartition(" at ")
    host, colon, port = place.partition(":")
    with contextlib.suppress(OSError, UnicodeError):
        host = socket.gethostbyname(host)
    return f"{kind}{found}{host}{colon}{port}"


def _owner() -> str:
    with contextlib.suppress(KeyError, OSError):
        return f"process {os.getpid()} of {getpass.getuser()} ({Path(sys.argv[0]).name})"
    return f"process {os.getpid()}"
