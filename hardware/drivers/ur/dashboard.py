"""Brings a UR back after a stop: the controller's dashboard server, one consented step at a time.

Words are those of the vendor's "Dashboard Server e-Series" guide. The client is ``ur_rtde``'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hardware.drivers.polling.vendor_thread import VendorThread
from robolearn.errors import MissingDependencyError, RobotConnectionError, RobotError

_CALL_S, _CONNECT_MS = 3.0, 2000
_LOCKED = ("PROTECTIVE_STOP", "RECOVERY")


class URRecovery:
    """See :class:`hardware.devices.robot.Recovery`.

    ``patience_s``: how long a step may take until the controller is where it should be [s].
    Errors: RobotConnectionError without a dashboard server at ``address``.
    """

    def __init__(self, address: str, patience_s: float = 15.0) -> None:
        self.address, self._patience_s = address, patience_s
        self._worker = VendorThread(f"UR dashboard at {address}")
        self._client: Any = None
        try:
            self._client = self._call(lambda: _connected(address), "connecting")
        except BaseException:
            self._worker.close()
            raise

    def told(self) -> str:
        """Power, safety and program, in the controller's words."""
        return f"power {self._power()}, safety {self._safety()}, program {self._program()}"

    def next_step(self) -> str:
        """What would be done, "" when nothing is left; RobotError for what only a person at the
        pendant can do.
        """
        safety = self._safety()
        if safety in _LOCKED:
            return "the protective stop is unlocked (its cause found, nobody in the cell)"
        if safety not in ("NORMAL", "REDUCED"):
            raise RobotError(
                f"UR at {self.address}: safety {safety}. Release the emergency stop button, or"
                " clear the fault at the teach pendant; then run this again"
            )
        power = self._power()
        if power == "POWER_OFF":
            return "the arm is powered on (brakes stay closed)"
        return "" if power == "RUNNING" else "the brakes are released (the arm may sag a little)"

    def take(self) -> None:
        """Do what :meth:`next_step` told, and wait until it is done; RobotError with the
        controller's answer when it refuses (a protective stop is locked for 5 s).
        """
        safety, power = self._safety(), self._power()
        if safety in _LOCKED:
            self._call(self._client.closeSafetyPopup, "closing the popup")
            self._call(self._client.unlockProtectiveStop, "unlocking")
            self._wait(lambda: self._safety() not in _LOCKED, "the protective stop goes")
        elif power == "POWER_OFF":
            self._call(self._client.powerOn, "power on")
            self._wait(lambda: self._power() not in ("POWER_OFF", "BOOTING"), "the power comes")
        elif power != "RUNNING":
            self._call(self._client.brakeRelease, "releasing the brakes")
            self._wait(lambda: self._power() == "RUNNING", "the arm runs")

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            self._worker.submit(client.disconnect)
        self._worker.close()

    def _power(self) -> str:
        return _word(self._call(self._client.robotmode, "robotmode"))

    def _safety(self) -> str:
        return _word(self._call(self._client.safetymode, "safetymode"))

    def _program(self) -> str:
        return "running" if self._call(self._client.running, "running") else "stopped"

    def _call(self, function: Callable[[], Any], what: str) -> Any:
        try:
            return self._worker.call(function, _CALL_S, what)
        except RuntimeError as error:
            if isinstance(error, RobotError):
                raise
            raise RobotError(f"UR at {self.address}, {what}: {error}") from error

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._patience_s
        while not done():
            if time.monotonic() > deadline:
                raise RobotError(
                    f"UR at {self.address}: {what} not within {self._patience_s:g} s"
                    f" ({self.told()}); look at the teach pendant"
                )
            time.sleep(0.05)


def _word(answer: str) -> str:
    """The last word: "Robotmode: RUNNING" and "RUNNING" alike."""
    return answer.rpartition(":")[2].strip().upper()


def _connected(address: str) -> Any:
    try:
        from dashboard_client import DashboardClient
    except ImportError as error:
        raise MissingDependencyError(
            f"the UR's dashboard needs the package ur_rtde ({error}); install it with"
            " 'pip install ur_rtde' in this environment"
        ) from error
    client = DashboardClient(address)
    try:
        client.connect(_CONNECT_MS)
    except RuntimeError as error:
        raise RobotConnectionError(
            f"no dashboard server answers at {address}:29999 ({error}); check the address, the"
            " cable and that the controller is on"
        ) from error
    return client
