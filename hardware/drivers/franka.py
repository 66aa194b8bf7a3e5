"""Franka arms (Panda, FR3) by ``franky``, which runs libfranka's 1 kHz loop in C++.

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
from numpy.typing import NDArray

from hardware.drivers.poll_loop import PollLoop
from hardware.robot import RobotMode, RobotState
from hardware.vendor_thread import VendorThread
from robolearn.arms import PANDA
from robolearn.errors import (
    ConfigError,
    DataError,
    MissingDependencyError,
    RobotConnectionError,
    RobotError,
)

Array = NDArray[np.float64]
log = logging.getLogger(__name__)

JOINTS = 7
STOP_S = 0.5
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

    address: str
    """Host name or IP of the control box."""
    rate_hz: float = 100.0
    """Set-points and states per second [Hz]."""
    dynamics: float = 0.2
    """Speed, acceleration and jerk as shares of the arm's own limits."""
    real_time: bool = True
    """Refuse to run without a real-time kernel."""
    torque_threshold_nm: float = 20.0
    """External torque at which the arm stops itself [N m]."""
    force_threshold_n: float = 30.0
    """External force at which the arm stops itself [N]."""
    silence_s: float = 0.1
    """When the owner says nothing for so long, the arm is stopped [s]."""
    max_lost: int = 3
    """So many exchanges in a row without an answer are a fault."""
    connect_timeout_s: float = 10.0
    """Bound for connecting [s]."""

    def __post_init__(self) -> None:
        if not (0.0 < self.dynamics <= 1.0 and 1.0 <= self.rate_hz <= 200.0):
            raise ConfigError(
                "Franka: dynamics in (0, 1] and rate_hz in [1, 200] are needed, got"
                f" {self.dynamics} and {self.rate_hz}"
            )

    def build(self) -> FrankaRobot:
        """Make the robot (in the process that will own it)."""
        return FrankaRobot(self)


class FrankaRobot:
    """Seven joints; every call into franky happens on one thread."""

    def __init__(self, config: FrankaConfig) -> None:
        self.config = config
        self._loop: FrankaLoop | None = None
        # The arm's published joint limits; one set serves Panda and FR3 (FR3's are narrower, and
        # its own checks apply).
        self._low, self._high = PANDA.bounds

    @property
    def joints(self) -> int:
        """Seven."""
        return JOINTS

    @property
    def rate_hz(self) -> float:
        """Set-points per second [Hz]."""
        return self.config.rate_hz

    @property
    def has_watchdog(self) -> bool:
        """True: the control box stops the arm when packets stop."""
        return True

    def connect(self) -> None:
        """Connect, set the thresholds of contact, wait for the first state."""
        self._leave()
        c = self.config
        franky = _import_franky()
        worker = VendorThread(f"Franka at {c.address}")
        try:
            robot = worker.call(lambda: _open(franky, c), c.connect_timeout_s, "connecting")
        finally:
            worker.close()
        loop = FrankaLoop(franky, robot, c)
        loop.exchange()
        self._loop = loop
        loop.start()

    def state(self) -> RobotState:
        """Newest state."""
        return self._connected().state

    def servo(self, q: Array) -> None:
        """Leave the next set-point for the next exchange ``[7]`` [rad]."""
        if q.shape != (JOINTS,) or not np.all(np.isfinite(q)):
            raise DataError(f"Franka: expected {JOINTS} finite angles, got {q}")
        loop = self._connected()
        loop.raise_fault()
        outside = np.flatnonzero((q < self._low) | (q > self._high))
        if outside.size:
            i = int(outside[0])
            raise DataError(
                f"Franka: set-point of joint {i + 1}, {q[i]:.3f} rad, is outside"
                f" [{self._low[i]:.3f}, {self._high[i]:.3f}]"
            )
        loop.set_goal(q)

    def keep_alive(self) -> None:
        """The owner lives."""
        loop = self._connected()
        loop.raise_fault()
        loop.heard()

    def stop(self) -> bool:
        """Stop on the arm's own ramp; True when it is at rest."""
        loop = self._loop
        if loop is None:
            return False
        if loop.ended:
            return loop.held
        try:
            return loop.call(loop.hold, STOP_S)
        except RobotError as error:
            log.warning("stop not confirmed: %s", error)
            return loop.held

    def close(self) -> None:
        """Stop and disconnect; safe to call twice."""
        if self._loop is not None:
            self.stop()
        self._leave()

    def _connected(self) -> FrankaLoop:
        if self._loop is None:
            raise RobotConnectionError(f"Franka at {self.config.address}: not connected")
        return self._loop

    def _leave(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.leave()


class FrankaLoop(PollLoop):
    """One exchange: the newest joint motion out, state and errors in."""

    def __init__(self, franky: Any, robot: Any, config: FrankaConfig) -> None:
        super().__init__(
            f"Franka at {config.address}",
            rate_hz=config.rate_hz,
            silence_s=config.silence_s,
            max_lost=config.max_lost,
        )
        self._franky = franky
        self._robot: Any = robot
        self._goal: Array | None = None
        self._stop_mode = RobotMode.RUNNING
        zeros = np.zeros(JOINTS)
        self.state = RobotState(-1.0, 0, zeros, zeros, RobotMode.IDLE)

    def set_goal(self, q: Array) -> None:
        """The newest set-point; an unsent older one is replaced."""
        with self.lock:
            self._goal = q.copy()
        self.heard()

    def exchange(self) -> None:
        """Send the newest set-point, read and publish the state."""
        with self.lock:
            goal, self._goal = self._goal, None
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
        with self.lock:
            self._goal = None
        self._robot.stop()
        return bool(np.abs(np.array(self._robot.state.dq)).max() < REST_RAD_S)

    def hold_who_listens(self) -> None:
        """A stop without looking at what comes back."""
        self._robot.stop()

    def mark(self, mode: RobotMode) -> None:
        """Publish a mode with the last state; a cause that the arm named goes first."""
        s = self.state
        shown = mode if self._stop_mode is RobotMode.RUNNING else self._stop_mode
        self.state = RobotState(
            s.device_t_s, s.changed_ns, s.joint_position, s.joint_velocity, shown
        )

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
