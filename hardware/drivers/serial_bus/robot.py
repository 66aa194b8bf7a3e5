"""Drives an arm of serial servos on one bus: the :class:`~hardware.devices.robot.Robot` over any
``SdkLine``.

One thread owns the bus and works in cycles: send the newest goals, read every servo, ask one servo
for its health. A bus has no clock of its own; the sign of life is a complete, undamaged answer of
every servo. A fault is latched: the driver holds the joints that still listen at their measured
positions, ends its cycles (so that a watchdog in the servos fires too), and answers every further
command with the same error until :meth:`BusRobot.connect` is called again.

The torque is never switched off but by :meth:`BusRobot.release_torque`: an arm of servos without
brakes falls.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from hardware.devices.robot import RobotMode, RobotState
from hardware.drivers.polling.arm import Polled
from hardware.drivers.polling.loop import PORT_ERRORS, LostPacketError, PollLoop
from hardware.drivers.serial_bus.calibration import (
    ServoCalibration,
    load_calibration,
    require_same_arm,
)
from hardware.drivers.serial_bus.sdk import (
    ATTEMPTS,
    Reading,
    SdkLine,
    port_serial,
)
from hardware.wire.servo_registers import COUNTS_PER_TURN, TURN_RAD, named_bits
from robolearn.arms.shapes import Joints
from robolearn.errors import (
    ConfigError,
    DataError,
    RobotConnectionError,
    RobotError,
    SilencedError,
)

T = TypeVar("T")

# A joint that is slower than this and nearer to its goal than that keeps its goal in a stop:
# holding the measured position instead would let the arm sag a little with every stop.
REST_RAD_S, NEAR_RAD = 0.05, 0.1
# An arm that leans on its end stop measures a little beyond the range; the servo clips goals.
_SLACK_RAD = 0.02


@dataclass(frozen=True, slots=True)
class BusConfig:
    """What every arm of serial servos needs."""

    # Serial port, such as /dev/ttyACM0 (a by-id name survives replugging).
    port: str
    # Calibration of this arm.
    calibration: Path
    # Names of the arm's joints in order, as in the calibration.
    joints: tuple[str, ...]
    # Name of the servo that moves the jaws; "" for none.
    gripper: str = ""
    # Speed of the line.
    baud: int = 1_000_000
    # Cycles per second: goals out, positions in [Hz].
    rate_hz: float = 100.0
    # Limit of the servos' torque, as a share of their largest.
    torque_share: float = 1.0
    # A joint that carries more than this share of its torque would drop when released.
    rest_load: float = 0.08
    # Patience with a late answer [s]; 34 ms in the vendors' libraries.
    reply_slack_s: float = 0.004
    # So many requests in a row without an answer are a fault.
    max_lost: int = 3
    # When the owner says nothing for so long, the arm is held and the driver gives up [s].
    silence_s: float = 0.1
    # Silence of the line after which servos with a watchdog hold still [s].
    watchdog_s: float = 0.1

    def __post_init__(self) -> None:
        if not 0.05 <= self.torque_share <= 1.0:
            raise ConfigError(f"torque_share must be in [0.05, 1], got {self.torque_share}")
        if not (1.0 <= self.rate_hz <= 1000.0 and self.max_lost >= 1):
            raise ConfigError(
                f"rate_hz in [1, 1000] and max_lost >= 1 are needed, got {self.rate_hz} and"
                f" {self.max_lost}"
            )
        if not self.joints or len(set(self.joints)) != len(self.joints):
            raise ConfigError(f"joints must be different names, got {self.joints}")
        if min(self.silence_s, self.watchdog_s, self.reply_slack_s) <= 0.0:
            raise ConfigError("silence_s, watchdog_s and reply_slack_s must be positive")


@dataclass(frozen=True, slots=True)
class _Snapshot:
    t_ns: int
    readings: tuple[Reading, ...]
    mode: RobotMode


class BusRobot(Polled["BusCycle"]):
    """An arm of serial servos; ``make_line(config, ids)`` opens the vendor's line."""

    def __init__(
        self, config: BusConfig, make_line: Callable[[list[int]], SdkLine], has_watchdog: bool
    ) -> None:
        super().__init__(config.port)
        self.config = config
        self._make_line, self._has_watchdog = make_line, has_watchdog
        self._low = self._high = np.zeros(0)

    @property
    def joints(self) -> int:
        """Joints of the arm, without the gripper."""
        return len(self.config.joints)

    @property
    def rate_hz(self) -> float:
        """Cycles per second [Hz]."""
        return self.config.rate_hz

    @property
    def has_watchdog(self) -> bool:
        """Dynamixels have one (bus watchdog). Feetech servos go to the last goal and stay."""
        return self._has_watchdog

    @property
    def freedrive(self) -> None:
        """None: servos without torque do not carry their weight, the arm would fall."""
        return

    def open(self) -> BusCycle:
        """Open the port, check every servo and the calibration, hold the arm where it is.

        Raises ConfigError for a calibration that is not this arm's, RobotConnectionError for a
        port or servo that does not answer, RobotError for a servo that reports a fault.
        """
        config = self.config
        calibration = load_calibration(config.calibration)
        servos = [calibration.named(name) for name in config.joints]
        if config.gripper:
            servos.append(calibration.named(config.gripper))
        line = self._make_line([s.id for s in servos])
        serial, watchdog = port_serial(config.port), self._has_watchdog
        try:
            _patiently(lambda: require_same_arm(calibration, line, serial))
            _patiently(lambda: _require_sound(line, servos))
            _patiently(lambda: _hold_and_power(line, config, watchdog))
            cycle = _patiently(lambda: BusCycle(line, config, servos))
            _patiently(cycle.exchange)
        except PORT_ERRORS as error:
            with contextlib.suppress(*PORT_ERRORS):
                line.close()
            if isinstance(error, RobotConnectionError):
                raise
            raise RobotConnectionError(f"{config.port}: {error}; is it plugged in?") from error
        except BaseException:
            with contextlib.suppress(*PORT_ERRORS):
                line.close()
            raise
        ranges = np.array([s.range_rad() for s in servos[: self.joints]])
        self._low, self._high = ranges[:, 0], ranges[:, 1]
        return cycle

    def limits(self) -> tuple[Joints, Joints]:
        """Lowest and highest joint angles of the calibration, each ``[joints]`` [rad]."""
        self._connected()
        return self._low.copy(), self._high.copy()

    def state(self) -> RobotState:
        """Newest state; ``device_t_s`` is the time of the last complete answer."""
        cycle = self._connected()
        snapshot = cycle.snapshot
        pairs = [*zip(cycle.servos, snapshot.readings, strict=True)][: self.joints]
        table = cycle.line.table
        q = [s.angle(r.position) for s, r in pairs]
        qd = [s.direction * r.velocity * table.rad_s_per_count for s, r in pairs]
        return RobotState(
            device_t_s=snapshot.t_ns * 1e-9,
            changed_ns=snapshot.t_ns,
            joint_position=np.array(q),
            joint_velocity=np.array(qd),
            mode=snapshot.mode,
            load=max(abs(r.load) for _, r in pairs) / table.full_load,
        )

    def servo(self, q: Joints) -> None:
        """Leave the next set-point for the next cycle ``[joints]`` [rad]."""
        if q.shape != (self.joints,) or not np.all(np.isfinite(q)):
            raise DataError(f"{self.config.port}: expected {self.joints} finite angles, got {q}")
        cycle = self._sound()
        outside = np.flatnonzero((q < self._low - _SLACK_RAD) | (q > self._high + _SLACK_RAD))
        if outside.size:
            i = int(outside[0])
            raise DataError(
                f"joint {self.config.joints[i]}: set-point {q[i]:.3f} rad is outside the calibrated"
                f" range [{self._low[i]:.3f}, {self._high[i]:.3f}]"
            )
        cycle.set_goals({i: cycle.servos[i].counts(float(v)) for i, v in enumerate(q)})

    def gripper_state(self) -> tuple[int, float, float]:
        """Time of the answer [ns], opening and load of the gripper's servo as shares: 0 is its
        ``low``, 1 its ``high`` end, and its full torque.
        """
        cycle = self._connected()
        if not self.config.gripper:
            raise ConfigError(f"{self.config.port}: this arm has no gripper on its bus")
        servo, snapshot = cycle.servos[-1], cycle.snapshot
        reading = snapshot.readings[-1]
        share = (reading.position - servo.low) / (servo.high - servo.low)
        return snapshot.t_ns, share, abs(reading.load) / cycle.line.table.full_load

    def set_gripper(self, share: float) -> None:
        """Goal of the jaws as a share of their range, 0 (``low``) to 1 (``high``)."""
        cycle = self._sound()
        if not self.config.gripper or not 0.0 <= share <= 1.0:
            raise DataError(f"{self.config.port}: gripper goal must be in [0, 1], got {share}")
        servo = cycle.servos[-1]
        goal = round(servo.low + share * (servo.high - servo.low))
        cycle.set_goals({len(cycle.servos) - 1: goal})

    def release_torque(self, *, confirmed: bool = False) -> None:
        """Switch all motors off. ``confirmed``: a person supports the arm.

        Raises RobotError when a joint carries a load and nobody confirmed: the arm would drop.
        """
        cycle = self._connected()
        limit = self.config.rest_load

        def release() -> None:
            table = cycle.line.table
            for servo in cycle.servos:
                share = abs(cycle.line.read(servo.id, table.load)) / table.full_load
                if share > limit and not confirmed:
                    raise RobotError(
                        f"servo {servo.id} ({servo.name}) carries {100 * share:.0f} % of its torque"
                        " and would drop. Support the arm and confirm, or rest it on something"
                    )
            for servo in cycle.servos:
                cycle.line.write(servo.id, table.torque_enable, 0)

        cycle.call(release, 2.0)

    def close(self) -> None:
        """Hold the arm and close the port; the torque stays on. Safe to call twice."""
        self._stop_and_leave()


def _patiently(step: Callable[[], T]) -> T:
    """A step of connecting, repeated when a packet was lost: each may be done twice."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(LostPacketError):
            return step()
    return step()


def _require_sound(line: SdkLine, servos: list[ServoCalibration]) -> None:
    """Every servo is of a known model and reports no fault."""
    table = line.table
    models, readings = line.read_all(table.model_number), line.readings()
    healths = line.health_all()
    for servo, model, reading, health in zip(servos, models, readings, healths, strict=True):
        who = f"servo {servo.id} ({servo.name})"
        if model not in table.models:
            raise RobotConnectionError(
                f"{who} is of model {model}; the {table.family} driver knows {dict(table.models)}"
            )
        if fault := health.fault or named_bits(reading.error, table.errors):
            raise RobotError(
                f"{who} reports {fault}; find the cause, switch its supply off and on, then"
                " connect again"
            )


def _hold_and_power(line: SdkLine, config: BusConfig, has_watchdog: bool) -> None:
    """Goals where the joints are, then torque: an old goal would make the arm jump."""
    table, n = line.table, len(line.ids)
    if has_watchdog and table.watchdog is not None:
        line.write_all(table.watchdog, [0] * n)
    powered = line.read_all(table.torque_enable)
    goals, present = line.read_all(table.goal_position), [r.position for r in line.readings()]
    # A joint that already holds keeps its goal, unless it is far away.
    near = round(NEAR_RAD / TURN_RAD * COUNTS_PER_TURN)
    # ... but for a gripper's, which may hold something.
    kept = [
        g if on and (abs(g - p) < near or i == len(config.joints)) else p
        for i, (g, p, on) in enumerate(zip(goals, present, powered, strict=True))
    ]
    line.write_all(table.goal_position, kept)
    line.write_all(table.torque_limit, [round(config.torque_share * table.full_torque)] * n)
    line.write_all(table.torque_enable, [1] * n)
    if has_watchdog and table.watchdog is not None:
        units = max(1, min(127, round(config.watchdog_s / table.watchdog_unit_s)))
        line.write_all(table.watchdog, [units] * n)


class BusCycle(PollLoop):
    """One exchange: goals out, all positions in, the health of one servo."""

    def __init__(self, line: SdkLine, config: BusConfig, servos: list[ServoCalibration]) -> None:
        super().__init__(
            config.port,
            rate_hz=config.rate_hz,
            silence_s=config.silence_s,
            max_lost=config.max_lost,
        )
        self.line, self.config, self.servos = line, config, servos
        self.snapshot = _Snapshot(0, (), RobotMode.IDLE)
        self._goals = line.read_all(line.table.goal_position)
        self._fresh = False

    def disconnect(self) -> None:
        """Close the port."""
        self.line.close()

    def mark(self, mode: RobotMode) -> None:
        """Publish a mode with the last state."""
        s = self.snapshot
        self.snapshot = _Snapshot(s.t_ns, s.readings, mode)

    def set_goals(self, counts: dict[int, int]) -> None:
        """Replace goals by index of the servo; sent in the next cycle."""
        with self.lock:
            for i, value in counts.items():
                self._goals[i] = value
            self._fresh = True
        self.heard()

    def hold(self) -> bool:
        """Goals at the measured positions; True when the servos repeat them."""
        table = self.line.table
        readings = self.line.readings()
        with self.lock:
            for i, (servo, reading) in enumerate(zip(self.servos, readings, strict=True)):
                speed = abs(reading.velocity) * table.rad_s_per_count
                away = abs(servo.angle(self._goals[i]) - servo.angle(reading.position))
                if i == len(self.config.joints):
                    # A gripper's goal is its grip: at its measured place it would let go.
                    continue
                if speed > REST_RAD_S or away > NEAR_RAD:
                    self._goals[i] = max(servo.low, min(servo.high, reading.position))
            self._fresh = False
            goals = list(self._goals)
        self.line.send_all(table.goal_position, goals)
        return self.line.read_all(table.goal_position) == goals

    def exchange(self) -> None:
        """One cycle. Raises what went wrong on the line."""
        with self.lock:
            goals = list(self._goals) if self._fresh else None
            self._fresh = False
        if goals is not None:
            self.line.send_all(self.line.table.goal_position, goals)
        readings = self.line.readings()
        t_ns = time.monotonic_ns()
        for servo, reading in zip(self.servos, readings, strict=True):
            if reading.error & sum(self.line.table.errors):
                fault = named_bits(reading.error, self.line.table.errors)
                fault = self.line.health(servo.id).fault or fault
                raise RobotError(
                    f"servo {servo.id} ({servo.name}) reports {fault}; the arm is held. Find the"
                    " cause, then connect again"
                )
        self._check_health(self.servos[self.cycles % len(self.servos)])
        self.cycles += 1
        self.snapshot = _Snapshot(t_ns, tuple(readings), RobotMode.RUNNING)

    def _check_health(self, servo: ServoCalibration) -> None:
        health = self.line.health(servo.id)
        if health.watchdog_tripped:
            raise SilencedError(
                f"the watchdog of servo {servo.id} ({servo.name}) fired: the line was silent for"
                f" more than {self.config.watchdog_s:g} s. The arm holds; connect again"
            )
        if health.fault or not health.torque_on:
            raise RobotError(
                f"servo {servo.id} ({servo.name}) {health.fault or 'has no torque any more'}: its"
                " supply or its protection failed, or it was released. Connect again"
            )

    def hold_who_listens(self) -> None:
        """Ask one by one: a sync read ends at the first servo that is silent."""
        register = self.line.table.present_position
        goals: list[int] = []
        silent = 0
        for servo, reading in zip(self.servos, self.snapshot.readings, strict=True):
            goals.append(reading.position)
            if len(goals) > len(self.config.joints):
                with self.lock:
                    goals[-1] = self._goals[-1]
                continue
            # When two are silent the line is dead; the rest is told what was known last.
            if silent < 2:
                try:
                    goals[-1] = self.line.read(servo.id, register, attempts=1)
                except LostPacketError:
                    silent += 1
        self.line.send_all(self.line.table.goal_position, goals)
