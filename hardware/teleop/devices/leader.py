"""Drives by a leader arm of serial servos: its joints are those of the arm that follows.

    angle of the follower = sign x angle of the leader + offset
    or, with the follower's ranges: the same share of its range

The leader is calibrated as any arm of servos (``robolearn servos calibrate``), and is moved by
hand: its torque is off. What keeps the follower from jumping to it is the mapping's: a gate, then a
ramp.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from hardware.devices.claim import DeviceClaim
from hardware.drivers.polling.loop import PORT_ERRORS, LostPacketError
from hardware.drivers.serial_bus.calibration import (
    load_calibration,
    require_same_arm,
)
from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
from hardware.drivers.serial_bus.feetech import FeetechConfig
from hardware.drivers.serial_bus.sdk import ATTEMPTS, SdkLine, port_serial
from hardware.teleop.device import (
    DeviceReading,
    JointAngles,
    Key,
    Keys,
    Surroundings,
    View,
)
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, RobotError

T = TypeVar("T")

_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """A leader arm and how it is paired with the arm that follows."""

    # Serial port, such as /dev/ttyACM1 (a by-id name survives replugging).
    port: str
    # Calibration of the leader.
    calibration: Path
    # Names of the leader's joints, in the order of the follower's.
    joints: tuple[str, ...]
    # Name of the servo that is the trigger; "" for none.
    gripper: str = ""
    family: Literal["feetech", "dynamixel"] = "feetech"
    # 1 or -1 for every joint; empty: 1.
    signs: tuple[float, ...] = ()
    # Added to every joint [rad]; empty: 0.
    offsets_rad: tuple[float, ...] = ()
    # Ranges of the follower's joints [rad], which the leader's are stretched to; empty: they are
    # not.
    low_rad: tuple[float, ...] = ()
    high_rad: tuple[float, ...] = ()
    # The trigger's low end opens the gripper.
    gripper_inverted: bool = False
    # Looks at the leader per second [Hz].
    rate_hz: float = 100.0
    # Patience with a late answer [s].
    reply_slack_s: float = 0.004

    def __post_init__(self) -> None:
        n = len(self.joints)
        for name in ("signs", "offsets_rad", "low_rad", "high_rad"):
            if len(getattr(self, name)) not in (0, n):
                raise ConfigError(f"leader: {name} has {n} numbers, one per joint, or none")
        if len(self.low_rad) != len(self.high_rad):
            raise ConfigError("leader: low_rad and high_rad go together")
        if self.low_rad and (self.signs or self.offsets_rad):
            pairing = "a range (low_rad, high_rad) or signs and offsets_rad"
            raise ConfigError(f"leader: pair the joints by {pairing}, not by both")
        if not {abs(s) for s in self.signs} <= {1.0} or not 0.0 < self.rate_hz < math.inf:
            raise ConfigError("leader: signs are 1 or -1, and rate_hz is positive")
        if not all(map(math.isfinite, (*self.offsets_rad, *self.low_rad, *self.high_rad))):
            raise ConfigError("leader: offsets_rad, low_rad and high_rad are angles")

    @property
    def keys(self) -> Keys:
        """It has no buttons."""
        return "needed"

    def build(self, around: Surroundings) -> LeaderArm:
        """Open the port; it has one owner at a time, and the calibration is checked to be its."""
        del around
        claim = DeviceClaim(self.port)
        claim.take()
        try:
            return LeaderArm(self, claim.release)
        except BaseException:
            claim.release()
            raise

    def open(self, ids: list[int]) -> SdkLine:
        """The line to the servos."""
        family = FeetechConfig if self.family == "feetech" else DynamixelConfig
        return family(
            port=self.port,
            calibration=self.calibration,
            joints=self.joints,
            gripper=self.gripper,
            reply_slack_s=self.reply_slack_s,
        ).line(ids)


@dataclass(slots=True)
class _State:
    q: Joints = field(default_factory=lambda: np.zeros(0))
    opening: float | None = None
    t_ns: int = 0
    present: bool = False


class LeaderArm:
    """Reads the leader on a thread of its own until :meth:`close`."""

    name = "leader"
    lease_s = 0.2

    def __init__(self, config: LeaderConfig, closed: Callable[[], None] = lambda: None) -> None:
        self._config, self._closed = config, closed
        calibration = load_calibration(config.calibration)
        names = (*config.joints, *((config.gripper,) if config.gripper else ()))
        self._servos = [calibration.named(name) for name in names]
        self._calibration = calibration
        self._state, self._gripping = _State(), False
        self._line: SdkLine | None = _patiently(self._open)
        line = self._line
        _patiently(lambda: self._look(line))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="leader-arm", daemon=True)
        self._thread.start()

    def begin(self, opening: float | None) -> None:
        """The trigger is absolute; the mapping lets it take hold."""
        self._gripping = opening is not None

    def poll(self) -> DeviceReading:
        """The newest angles."""
        state = self._state
        opening = state.opening if self._gripping else None
        return DeviceReading(state.t_ns, state.present, True, JointAngles(state.q), opening)

    def pressed(self) -> tuple[Key, ...]:
        """An arm has no keys."""
        return ()

    def show(self, view: View) -> None:
        """An arm shows nothing."""

    def close(self) -> None:
        """Close the port; safe to call twice."""
        self._ended.set()
        self._thread.join()
        self._leave()
        self._closed()

    def _open(self) -> SdkLine:
        line = self._config.open([s.id for s in self._servos])
        try:
            require_same_arm(self._calibration, line, port_serial(self._config.port))
            for servo in self._servos:
                if line.read(servo.id, line.table.torque_enable):
                    raise RobotError(
                        f"servo {servo.id} ({servo.name}) of the leader holds torque; support the"
                        " arm and release it: 'robolearn servos release'"
                    )
        except BaseException:
            with contextlib.suppress(*PORT_ERRORS):
                line.close()
            raise
        return line

    def _watch(self) -> None:
        while not self._ended.wait(_AGAIN_S if self._line is None else 1.0 / self._config.rate_hz):
            try:
                if self._line is None:
                    self._line = self._open()
                self._look(self._line)
            except PORT_ERRORS:
                # A lost packet is a look less; a port that is gone is opened again.
                state = self._state
                if time.monotonic_ns() - state.t_ns > self.lease_s * 1e9:
                    self._state = _State(state.q, state.opening, state.t_ns, present=False)
                    self._leave()
            except (ConfigError, RobotError):
                # Another arm at the same port, or one with torque: not to be followed.
                self._leave()

    def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(*PORT_ERRORS):
                line.close()

    def _look(self, line: SdkLine) -> None:
        counts = [r.position for r in line.readings()]
        n, config = len(self._config.joints), self._config
        angles = [s.angle(c) for s, c in zip(self._servos[:n], counts[:n], strict=True)]
        opening = None
        if config.gripper:
            servo = self._servos[-1]
            opening = (counts[-1] - servo.low) / (servo.high - servo.low)
            opening = min(1.0, max(0.0, 1.0 - opening if config.gripper_inverted else opening))
        self._state = _State(self._paired(np.array(angles)), opening, time.monotonic_ns(), True)

    def _paired(self, angles: Joints) -> Joints:
        config, n = self._config, len(self._config.joints)
        if not config.low_rad:
            signs = np.array(config.signs or (1.0,) * n)
            return signs * angles + np.array(config.offsets_rad or (0.0,) * n)
        own = np.array([s.range_rad() for s in self._servos[:n]])
        share = (angles - own[:, 0]) / (own[:, 1] - own[:, 0])
        low, high = np.array(config.low_rad), np.array(config.high_rad)
        return low + share * (high - low)


def _patiently(step: Callable[[], T]) -> T:
    """A step of connecting, repeated when a packet was lost."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(LostPacketError):
            return step()
    return step()
