"""Drives Franka arms (Panda, FR3) by ``franky``, which runs libfranka's 1 kHz loop in C++.

Not tested against a device or an emulator: the control interface needs a real-time kernel and an
answer every millisecond, which no emulator in Python can give. The tests use a fake module that
has the names and signatures of franky 2.0.0.

Set-points go out as asynchronous joint motions that replace each other; franky plans between them
within the arm's limits, scaled by ``dynamics``. The control box stops the arm when the loop's
packets stop (libfranka: ``communication_constraints_violation``).
"""

from __future__ import annotations

import importlib
import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.devices.robot import RobotMode, RobotState
from hardware.drivers.polling.arm import ArmLoop, PolledArm
from hardware.drivers.polling.vendor_thread import VendorThread
from robolearn.arms.models import PANDA
from robolearn.errors import (
    ConfigError,
    MissingDependencyError,
    RobotConnectionError,
    RobotError,
)
from robolearn.timing.clocks import ClockAnchor

log = logging.getLogger(__name__)

JOINTS = 7
REST_RAD_S = 0.01
_MODES = {
    "Idle": RobotMode.RUNNING,
    "Move": RobotMode.RUNNING,
    "Guiding": RobotMode.IDLE,
    "Reflex": RobotMode.PROTECTIVE_STOP,
    "UserStopped": RobotMode.EMERGENCY_STOP,
    "AutomaticErrorRecovery": RobotMode.IDLE,
}


@dataclass(frozen=True, slots=True)
class FrankaConfig:
    """A Franka arm with the Franka Control Interface activated."""

    # Host name or IP of the control box.
    address: str
    # Set-points and states per second [Hz].
    rate_hz: float = 100.0
    # Speed, acceleration and jerk as shares of the arm's own limits.
    dynamics: float = 0.2
    # Refuse to run without a real-time kernel.
    real_time: bool = True
    # External torque at which the arm stops itself [N m].
    torque_threshold_nm: float = 20.0
    # External force at which the arm stops itself [N].
    force_threshold_n: float = 30.0
    # When the owner says nothing for so long, the arm is stopped [s].
    silence_s: float = 0.1
    # So many exchanges in a row without an answer are a fault.
    max_lost: int = 3
    # Bound for connecting [s].
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not (0.0 < self.dynamics <= 1.0 and 1.0 <= self.rate_hz <= 200.0):
            raise ConfigError(
                "Franka: dynamics in (0, 1] and rate_hz in [1, 200] are needed, got"
                f" {self.dynamics} and {self.rate_hz}"
            )

    def build(self) -> FrankaRobot:
        """Make the robot (in the process that will own it)."""
        return FrankaRobot(self)


class FrankaRobot(PolledArm):
    """Seven joints; every call into franky happens on one thread."""

    def __init__(self, config: FrankaConfig) -> None:
        super().__init__(f"Franka at {config.address}", JOINTS, config.rate_hz)
        self.config = config
        # The arm's published joint limits; one set serves Panda and FR3 (FR3's are narrower, and
        # its own checks apply).
        self._low, self._high = PANDA.bounds

    @property
    def has_watchdog(self) -> bool:
        """True: the control box stops the arm when packets stop."""
        return True

    def open(self) -> FrankaLoop:
        """Connect, set the thresholds of contact, wait for the first state."""
        c = self.config
        franky = _import_franky()
        worker = VendorThread(self.name)
        try:
            robot = worker.call(lambda: _open(franky, c), c.connect_timeout_s, "connecting")
        finally:
            worker.close()
        loop = FrankaLoop(franky, robot, c)
        loop.exchange()
        return loop


class FrankaLoop(ArmLoop):
    """One exchange: the newest joint motion out, state and errors in."""

    def __init__(self, franky: Any, robot: Any, config: FrankaConfig) -> None:
        super().__init__(
            f"Franka at {config.address}",
            JOINTS,
            rate_hz=config.rate_hz,
            silence_s=config.silence_s,
            max_lost=config.max_lost,
        )
        self._franky = franky
        self._robot: Any = robot
        self._clock = ClockAnchor(self.name)

    def exchange(self) -> None:
        """Send the newest set-point, read and publish the state."""
        goal = self.take_goal()
        if goal is not None:
            motion = self._franky.JointMotion(goal.tolist(), return_when_finished=False)
            self._robot.move(motion, asynchronous=True)
        # Before the state: what has gone wrong by now is in its mode.
        failed = bool(self._robot.has_errors)
        state = self._robot.state
        stamp = float(state.time.to_sec())
        changed_ns = self.state.changed_ns
        if stamp != self.state.device_t_s:
            changed_ns = time.monotonic_ns()
            self._clock.monotonic_ns(stamp, changed_ns)
        mode = _MODES.get(str(state.robot_mode.name), RobotMode.FAULT)
        self.cycles += 1
        self.state = RobotState(
            device_t_s=stamp,
            changed_ns=changed_ns,
            joint_position=np.array(state.q, dtype=np.float64),
            joint_velocity=np.array(state.dq, dtype=np.float64),
            mode=RobotMode.RUNNING,
            tool_force_n=float(np.linalg.norm(np.array(state.O_F_ext_hat_K)[:3])),
        )
        if mode is not RobotMode.RUNNING or failed:
            self._stop_mode = RobotMode.FAULT if mode is RobotMode.RUNNING else mode
            raise RobotError(
                f"{self.name} reports {state.robot_mode.name} ({state.current_errors}); clear the"
                " cause in Desk, then connect again"
            )

    def hold(self) -> bool:
        """Stop; True when the joints are at rest."""
        self.take_goal()
        self._robot.stop()
        return bool(np.abs(np.array(self._robot.state.dq)).max() < REST_RAD_S)

    def hold_who_listens(self) -> None:
        """A stop without looking at what comes back."""
        self._robot.stop()

    def disconnect(self) -> None:
        """Drop the vendor's object: it disconnects when it is destroyed."""
        self._robot = None


def _open(franky: Any, config: FrankaConfig) -> Any:
    real_time = franky.RealtimeConfig.Enforce if config.real_time else franky.RealtimeConfig.Ignore
    try:
        robot = franky.Robot(
            config.address,
            relative_dynamics_factor=config.dynamics,
            default_torque_threshold=config.torque_threshold_nm,
            default_force_threshold=config.force_threshold_n,
            realtime_config=real_time,
        )
    except Exception as error:
        raise RobotConnectionError(
            f"Franka at {config.address}: {error}. Is the Franka Control Interface activated in"
            " Desk, and the kernel a real-time one?"
        ) from error
    if robot.has_errors:
        raise RobotConnectionError(
            f"Franka at {config.address} reports {robot.state.current_errors}; clear it in Desk,"
            " then connect again"
        )
    return robot


def _import_franky() -> Any:
    try:
        return importlib.import_module("franky")
    except ImportError as error:
        raise MissingDependencyError(
            f"the Franka driver needs the package franky-control ({error}); install it with"
            " 'pip install robolearn[franka]' in this environment"
        ) from error
