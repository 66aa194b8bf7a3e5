"""An arm of three joints that lives in this process: the smallest complete driver."""

import time
from dataclasses import dataclass

import numpy as np

from hardware.devices.robot import RobotMode, RobotState
from robolearn.errors import DataError, RobotConnectionError


@dataclass(frozen=True, slots=True)
class ToyConfig:
    """What the YAML may say about the driver; every key has a unit."""

    rate_hz: float = 100.0
    """Rate at which the device wants set-points [Hz]."""
    watchdog_s: float = 0.2
    """Silence after which the device stops itself [s]."""

    def build(self):
        """Make the robot; called in the supervisor's process."""
        return ToyArm(self)


class ToyArm:
    """The contract is ``hardware/devices/robot.py: Robot``; every method returns within a bound."""

    joints = 3
    has_watchdog = True
    freedrive = None  # no hand may guide it (hardware/devices/robot.py: Freedrive)
    halt = None  # no set-point can be on its way: the arm lives in this process

    def __init__(self, config):
        self._config = config
        self._mode = RobotMode.DISCONNECTED
        self._q = np.array([0.0, 0.5, -0.5])
        self._born_ns = self._heard_ns = time.monotonic_ns()
        self._device_t_s, self._changed_ns = -1.0, 0

    @property
    def rate_hz(self):
        return self._config.rate_hz

    def connect(self):
        """Open the port, arm the watchdog, wait for the first state. Here: nothing to open."""
        self._heard_ns = time.monotonic_ns()
        self._mode = RobotMode.RUNNING

    def state(self):
        """The newest state. ``changed_ns`` moves only when the device's own clock did."""
        if self._mode is RobotMode.DISCONNECTED:
            raise RobotConnectionError("toy arm: not connected; call connect() first")
        device_t_s = self._device_ns() * 1e-9
        if device_t_s != self._device_t_s:
            self._device_t_s, self._changed_ns = device_t_s, time.monotonic_ns()
        if self._mode is RobotMode.RUNNING and self._silent():
            self._mode = RobotMode.SILENCED
        return RobotState(
            self._device_t_s, self._changed_ns, self._q.copy(), np.zeros(3), self._mode
        )

    def fault_text(self):
        """Why it does not run, in the device's own words; "" while all is well."""
        words = {RobotMode.IDLE: "toy arm: stopped", RobotMode.SILENCED: "toy arm: heard nothing"}
        return words.get(self._mode, "")

    def servo(self, q):
        """The next set-point [rad]; checked before anything is sent."""
        if q.shape != self._q.shape or not np.isfinite(q).all():
            raise DataError(f"toy arm: expected {self._q.shape} finite angles, got {q}")
        self.keep_alive()
        if self._mode is RobotMode.RUNNING:
            self._q = q.copy()

    def keep_alive(self):
        """Tell the device's watchdog that this program lives, without moving."""
        self._heard_ns = time.monotonic_ns()

    def stop(self):
        """Stop; True when the device confirmed it within 0.5 s."""
        self._mode = RobotMode.IDLE
        return True

    def close(self):
        """Stop and release the device; safe to call twice."""
        if self._mode is not RobotMode.DISCONNECTED:
            self.stop()
            self._mode = RobotMode.DISCONNECTED

    def _device_ns(self):
        return time.monotonic_ns()

    def _silent(self):
        return time.monotonic_ns() - self._heard_ns > self._config.watchdog_s * 1e9
