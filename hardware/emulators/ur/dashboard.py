"""Serves the dashboard of an emulated UR controller (port 29999): one line in, one line out.

Words and order follow the vendor's "Dashboard Server e-Series" guide; ``robotmode`` goes from
POWER_OFF over IDLE (powered, brakes on) to RUNNING.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from hardware.emulators.ur.state import RobotStatus

_PLAIN: Mapping[str, str] = {
    "get robot model": "UR5",
    "close safety popup": "closing safety popup",
    "close popup": "closing popup",
    "quit": "Disconnected",
}


class Dashboard:
    """Answers commands; ``stop(why)`` ends the program, ``unlock()`` a protective stop."""

    def __init__(
        self,
        status: RobotStatus,
        constants: Mapping[str, str],
        brake_release_s: float,
        *,
        stop: Callable[[str], None],
        unlock: Callable[[], bool],
        start: Callable[[], None],
    ) -> None:
        self._status, self._constants = status, {**_PLAIN, **constants}
        self._stop, self._unlock, self._start = stop, unlock, start
        self._loaded = ""
        self._brake_release_s = brake_release_s
        self._running_ns = 0

    def tick(self, now_ns: int) -> None:
        """Brakes take a moment to open."""
        if self._running_ns and now_ns >= self._running_ns:
            self._running_ns = 0
            self._status.powered = self._status.released = True

    def answer(self, line: str) -> str:
        """To one command."""
        command = line.lower()
        actions: dict[str, Callable[[], str]] = {
            "stop": self._stopped,
            "unlock protective stop": self._unlocked,
            "power off": self._power_off,
            "power on": self._power_on,
            "brake release": self._brake_release,
            "play": self._play,
            "pause": self._pause,
            "restart safety": self._restart_safety,
        }
        if command in actions:
            return actions[command]()
        if command.startswith("load "):
            return self._load(line[5:].strip())
        return self._told().get(command, f"could not understand: '{line[:80]}'")

    def _told(self) -> dict[str, str]:
        status = self._status
        state = "PLAYING" if status.program else "STOPPED"
        if status.program and status.paused:
            state = "PAUSED"
        program = self._loaded or "rtde_control.urp"
        return {
            **self._constants,
            "robotmode": f"Robotmode: {status.power_word}",
            "safetystatus": f"Safetystatus: {status.safety_word}",
            "safetymode": f"Safetymode: {status.safety_word}",
            "programstate": f"{state} {program}",
            "get loaded program": (
                f"Loaded program: /programs/{program}" if self._loaded else "No program loaded"
            ),
            "issaved": f"true {program}",
            "running": f"Program running: {str(state == 'PLAYING').lower()}",
        }

    def _stopped(self) -> str:
        self._stop("dashboard")
        return "Stopped"

    def _load(self, name: str) -> str:
        """Every name of a program is there; what it plays is the script that was uploaded last."""
        if not name.endswith((".urp", ".urpx")) or self._status.program:
            return f"File not found: {name[:80]}" if name else "No program given"
        self._loaded = name.rpartition("/")[2][:80]
        return f"Loading program: /programs/{self._loaded}"

    def _play(self) -> str:
        status = self._status
        ready = status.released and not status.protective and not status.emergency
        if not (self._loaded or status.paused) or not ready:
            return "Failed to execute: play"
        if status.paused:
            status.paused = False
        elif not status.program:
            self._start()
        return "Starting program"

    def _pause(self) -> str:
        if not self._status.program or self._status.paused:
            return "Failed to execute: pause"
        self._status.paused = True
        return "Pausing program"

    def _restart_safety(self) -> str:
        """After a fault or violation of the safety system: the arm is without power then."""
        self._stop("restart safety")
        self._status.protective = self._status.emergency = False
        self._status.powered = self._status.released = False
        self._running_ns = 0
        return "Restarting safety"

    def _unlocked(self) -> str:
        if self._unlock():
            return "Protective stop releasing"
        return "Cannot unlock protective stop until 5s after occurrence"

    def _power_off(self) -> str:
        self._stop("power off")
        self._status.powered = self._status.released = False
        self._running_ns = 0
        return "Powering off"

    def _power_on(self) -> str:
        self._status.powered = self._status.powered or not self._status.emergency
        return "Powering on"

    def _brake_release(self) -> str:
        if not self._status.emergency:
            self._running_ns = time.monotonic_ns() + round(self._brake_release_s * 1e9)
        return "Brake releasing"
