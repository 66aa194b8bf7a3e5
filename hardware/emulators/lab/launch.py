"""Starts a virtual lab as a process of its own and waits until it serves."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from hardware.emulators.lab.admin import LabClient
from robolearn.errors import RobotConnectionError
from robolearn.machine.threads import ONE_THREAD

# Ten seconds on a machine that is free; minutes where others want its processors, too. One that
# cannot start says so at once [s].
_READY_S = 240.0


@dataclass(frozen=True, slots=True)
class LabAddress:
    """Where a lab serves, as printed in its line ``ready``; ``cameras``: ports by name,
    ``world``: its physics, ``films``: the cameras that show one instead of what happens.
    """

    address: str
    admin_port: int
    tracker_port: int
    token: str
    cameras: Mapping[str, int] = field(default_factory=dict[str, int])
    world: str = ""
    films: Sequence[str] = ()

    def connect(self) -> LabClient:
        """A client of the side door."""
        return LabClient(self.address, self.admin_port, self.token)


class LabProcess:
    """``robolearn lab`` as a child process; ends with :meth:`stop` or with this process.

    The lab has a process group of its own: a Ctrl-C in the terminal does not freeze the world
    before the arm in it was stopped.
    """

    def __init__(
        self,
        config: Path,
        *,
        address: str = "127.0.0.1",
        seed: int = 0,
        timeout_s: float = _READY_S,
        arguments: Sequence[str] = (),
    ) -> None:
        command = [sys.executable, "-m", "robolearn.cli.main", "lab", "--config", str(config)]
        command += ["--address", address, "--seed", str(seed), "--follow-stdin", *arguments]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by stop)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=os.environ | ONE_THREAD,
        )
        try:
            self.where = self._wait_ready(timeout_s)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Process id, for SIGSTOP and SIGKILL in fault tests."""
        return self._process.pid

    def __enter__(self) -> LabProcess:  # noqa: PYI034  (checked by beartype in tests)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        code = self._process.poll()
        ended = code is not None and code not in (0, -signal.SIGKILL, -signal.SIGTERM)
        problem = f"the lab ended by itself (exit code {code}): {self._said()}" if ended else ""
        self.stop()
        if problem and error is None:
            raise RobotConnectionError(problem)

    def stop(self) -> int:
        """SIGTERM, then SIGKILL after 5 s; returns the exit code. Safe to call twice."""
        process = self._process
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None and not pipe.closed:
                pipe.close()
        return int(process.returncode)

    def _wait_ready(self, timeout_s: float) -> LabAddress:
        stdout = self._process.stdout
        if stdout is None:
            raise RobotConnectionError("the lab process has no standard output")
        deadline = time.monotonic() + timeout_s
        text = b""
        while time.monotonic() < deadline:
            readable, _, _ = select.select([stdout], [], [], 0.2)
            if readable:
                chunk = os.read(stdout.fileno(), 4096)
                text += chunk
                for line in text.split(b"\n")[:-1]:
                    if line.startswith(b"ready "):
                        return LabAddress(**json.loads(line[6:]))
                if not chunk:
                    self._process.wait()
            if self._process.poll() is not None:
                break
        else:
            raise RobotConnectionError(
                f"the lab was not ready within {timeout_s:g} s; is this machine busy with something"
                " else?"
            )
        raise RobotConnectionError(
            f"the lab did not start (exit code {self._process.returncode}): {self._said()}"
        )

    def _said(self) -> str:
        """Its last words: of a bug, what it was stands one line above."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        bug = len(lines) > 1 and lines[-1].startswith("This is a bug")
        return " ".join(lines[-2 if bug else -1 :]) or "no message"
