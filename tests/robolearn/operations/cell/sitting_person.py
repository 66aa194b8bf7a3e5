"""A person's session on an arm as a process of its own in a terminal, and who sits there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import random
import re
import signal
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from hardware.teleop.devices.gamepad import ABS, EVENT, KEY, SOUTH, START, SYN, TL, X, Y
from tests.hardware.teleop.pages import FakePage, page
from tests.waiting import wait_until


class Keyboard:
    """Types into the session's terminal; a key is a step."""

    name = "keyboard"

    def __init__(self, session: Session) -> None:
        self._session = session

    def start(self) -> None:
        self._session.type(b" ")

    def keep(self) -> None:
        self._session.type(b"\r")

    def move(self, rng: random.Random) -> None:
        self._session.type(rng.choice([b"w", b"a", b"s", b"d"]))

    def close(self) -> None:
        """Nothing is held."""


class Pad:
    """A gamepad whose events come through a named pipe."""

    name = "gamepad"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.plug()

    def plug(self) -> None:
        os.mkfifo(self._path)
        # Open at both ends, so that nobody waits for the other one.
        self._fd = os.open(self._path, os.O_RDWR)

    def unplug(self) -> None:
        self._path.unlink()
        os.close(self._fd)

    def start(self) -> None:
        self._event(KEY, START, 1)
        self._event(KEY, START, 0)
        self._event(KEY, TL, 1)

    def keep(self) -> None:
        self._event(KEY, SOUTH, 1)
        self._event(KEY, SOUTH, 0)

    def move(self, rng: random.Random) -> None:
        for axis in (X, Y):
            self._event(ABS, axis, rng.randint(-20000, 20000))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.unplug()

    def _event(self, kind: int, code: int, value: int) -> None:
        os.write(self._fd, EVENT.pack(0, 0, kind, code, value) + EVENT.pack(0, 0, SYN, 0, 0))


class Page:
    """The page of a browser, spoken to as its scripts do."""

    name = "browser"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stack = contextlib.ExitStack()
        self._page: FakePage | None = None

    def open(self) -> None:
        url = wait_until(lambda: self._session.heard(r"open this page: (\S+)"), 60.0)
        self._page = self._stack.enter_context(page(_Address(url[1])))

    def leave(self) -> None:
        self._page = None
        self._stack.close()

    def start(self) -> None:
        self.page.say("key", key="start")

    def keep(self) -> None:
        self.page.say("key", key="keep")

    def move(self, rng: random.Random) -> None:
        self.page.twist(*(rng.uniform(-1.0, 1.0) for _ in range(3)))

    @property
    def page(self) -> FakePage:
        if self._page is None:
            self.open()
        assert self._page is not None
        return self._page

    def close(self) -> None:
        self.leave()


@dataclass(frozen=True)
class _Address:
    """Where a page is, as its device tells it."""

    url: str


Person = Keyboard | Pad | Page


class Session:
    """One ``robolearn collect --robot`` in a terminal of its own."""

    def __init__(self, root: Path, agent: str) -> None:
        self._root = root
        self.master, slave = pty.openpty()
        self.text, self._lock = "", threading.Lock()
        command = ["collect", "--config", f"{agent}.yaml", "--out", "disk/store", "--agent", agent]
        command += ["--episodes", "3", "--plain", "--yes"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.robolearn.operations.cell.piped_pad", *command],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509  (it calls nothing but ioctl)
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def heard(self, pattern: str, since: int = 0) -> re.Match[str] | None:
        """The last line that matches, behind so many characters."""
        with self._lock:
            found = list(re.finditer(pattern, self.text[since:], re.MULTILINE))
        return found[-1] if found else None

    def await_line(self, pattern: str, since: int = 0, timeout_s: float = 60.0) -> None:
        """Until it was said; AssertionError with what was said instead."""

        def said() -> bool:
            if self.heard(pattern, since):
                return True
            if self.process.poll() is not None:
                raise SessionEndedError(self.text[-800:])
            return False

        try:
            wait_until(said, timeout_s)
        except AssertionError:
            raise AssertionError(f"no '{pattern}' in {self.text[since:][-800:]!r}") from None

    @property
    def saved(self) -> list[str]:
        """Ids that were said to be saved or recovered."""
        with self._lock:
            return re.findall(r"(?:saved episode|recovered as) (\w+)", self.text)

    def family(self) -> list[int]:
        """The process and all that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own.pid, *(p.pid for p in own.children(recursive=True))]
        return []

    def hang_up(self) -> None:
        """The terminal's window is closed."""
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        for pid in self.family()[::-1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10.0)
        if self.master >= 0:
            self.hang_up()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            clean = re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", data.decode("utf-8", "replace"))
            with self._lock:
                self.text += clean.replace("\r", "\n")


class SessionEndedError(Exception):
    """A session ended by itself; what it said last."""


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
