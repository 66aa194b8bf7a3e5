"""The dashboard server of an emulated UR controller (port 29999): one line in, one line out.

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
    ) -> None:
        self._status, self._constants = status, {**_PLAIN, **constants}
        self._stop, self._unlock = stop, unlock
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
        }
        if command in actions:
            return actions[command]()
        return self._told().get(command, f"could not understand: '{line[:80]}'")

    def _told(self) -> dict[str, str]:
        status = self._status
        state = "PLAYING" if status.program and not status.paused else "STOPPED"
        return {
            **self._constants,
            "robotmode": f"Robotmode: {status.power_word}",
            "safetystatus": f"Safetystatus: {status.safety_word}",
            "safetymode": f"Safetymode: {status.safety_word}",
            "programstate": f"{state} rtde_control.urp",
            "running": f"Program running: {str(state == 'PLAYING').lower()}",
        }

    def _stopped(self) -> str:
        self._stop("dashboard")
        return "Stopped"

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
