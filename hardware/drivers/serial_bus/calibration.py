"""Calibrates an arm of serial servos: which servo is which joint, zero, direction, range.

The file belongs to one arm. What a person's hands decided when the arm was put together (the
homing offset and the limits) is also in the servos' own memory, so a file of another arm is
noticed when the arm is connected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from hardware.drivers.serial_bus.sdk import SdkLine
from hardware.wire.servo_registers import COUNTS_PER_TURN, MIDDLE, TURN_RAD
from robolearn.config import from_dict, load_yaml
from robolearn.errors import ConfigError, RobotError
from robolearn.files import write_atomic


@dataclass(frozen=True, slots=True)
class ServoCalibration:
    """One servo. Angle of the joint [rad] = direction x (counts - zero) / 4096 x 2 pi."""

    # Joint that it moves.
    name: str
    # On the bus.
    id: int
    # Lowest position [counts].
    low: int
    # Highest position [counts].
    high: int
    # As in the servo's memory [counts].
    homing_offset: int = 0
    # Counts at joint angle 0.
    zero: int = MIDDLE
    # -1 when counts fall as the angle rises.
    direction: int = 1

    def __post_init__(self) -> None:
        if self.direction not in (-1, 1) or not self.low < self.high:
            raise ConfigError(
                f"servo {self.id} ({self.name}): direction 1 or -1 and low < high are needed, got"
                f" {self.direction}, {self.low}, {self.high}"
            )

    def angle(self, counts: int) -> float:
        """Joint angle [rad]."""
        return self.direction * (counts - self.zero) * TURN_RAD / COUNTS_PER_TURN

    def counts(self, angle: float) -> int:
        """Position [counts] of a joint angle [rad]."""
        return self.zero + round(self.direction * angle * COUNTS_PER_TURN / TURN_RAD)

    def range_rad(self) -> tuple[float, float]:
        """Lowest and highest joint angle [rad]."""
        a, b = self.angle(self.low), self.angle(self.high)
        return min(a, b), max(a, b)


@dataclass(frozen=True, slots=True)
class ArmCalibration:
    """One arm. ``serial``: the USB adapter's serial number ("" when it has none)."""

    arm: str
    servos: tuple[ServoCalibration, ...]
    serial: str = ""

    def __post_init__(self) -> None:
        ids, names = [s.id for s in self.servos], [s.name for s in self.servos]
        if not ids or len(set(ids)) != len(ids) or len(set(names)) != len(names):
            raise ConfigError(
                f"calibration of {self.arm}: ids and names must differ: {ids} {names}"
            )

    def named(self, name: str) -> ServoCalibration:
        """The servo of a joint; raises ConfigError when there is none."""
        for servo in self.servos:
            if servo.name == name:
                return servo
        raise ConfigError(
            f"calibration of {self.arm} has no servo '{name}'; it has:"
            f" {[s.name for s in self.servos]}"
        )


def load_calibration(path: Path) -> ArmCalibration:
    """A calibration file."""
    if not path.exists():
        raise ConfigError(f"there is no calibration {path}; 'robolearn servos calibrate' makes one")
    return from_dict(ArmCalibration, load_yaml(path), where=str(path))


def save_calibration(calibration: ArmCalibration, path: Path) -> None:
    """Write a calibration file; an existing one is kept beside it as ``.old``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = asdict(calibration)
    raw["servos"] = [dict(s) for s in raw["servos"]]
    if path.exists():
        write_atomic(path.with_name(path.name + ".old"), path.read_bytes())
    write_atomic(path, yaml.safe_dump(raw, sort_keys=False))


def require_same_arm(calibration: ArmCalibration, line: SdkLine, serial: str) -> None:
    """Raise ConfigError when the servos (or the adapter) are not those of the calibration."""
    if calibration.serial and serial and calibration.serial != serial:
        raise ConfigError(
            f"this is the calibration of another arm ('{calibration.arm}', adapter"
            f" {calibration.serial}); the adapter at this port is {serial}"
        )
    table = line.table
    by_id = {s.id: s for s in calibration.servos}
    for what, register, name in (
        ("homing offset", table.homing_offset, "homing_offset"),
        ("lower limit", table.low_limit, "low"),
        ("upper limit", table.high_limit, "high"),
    ):
        expected = [int(getattr(by_id[servo], name)) for servo in line.ids]
        found = line.read_all(register)
        if found != expected:
            # Once more: a late answer to another request looks the same.
            line.settle()
            found = line.read_all(register)
        for servo, value, known in zip(line.ids, found, expected, strict=True):
            if value != known:
                raise ConfigError(
                    f"this is the calibration of another arm: servo {servo} ({by_id[servo].name})"
                    f" has {what} {value}, the calibration of '{calibration.arm}' says {known}."
                    " Choose this arm's file, or calibrate it: 'robolearn servos calibrate'"
                )


class ServoHoming:
    """Calibrates an arm by hand: the torque is off, a person moves it.

    :meth:`center` with the arm in the middle of its ranges, then :meth:`watch` again and again
    while every joint is moved from end to end, then :meth:`finish`.
    """

    def __init__(self, line: SdkLine, names: Sequence[str]) -> None:
        self._line, self._names = line, tuple(names)
        self._low = dict.fromkeys(line.ids, COUNTS_PER_TURN)
        self._high = dict.fromkeys(line.ids, -COUNTS_PER_TURN)
        for servo in line.ids:
            if line.read(servo, line.table.torque_enable):
                raise RobotError(
                    f"servo {servo} holds torque; release the arm first (support it): 'robolearn"
                    " servos release'"
                )

    def center(self) -> None:
        """Write offsets so that the present position is the middle (2048) of every servo."""
        table, line = self._line.table, self._line
        for servo in line.ids:
            self._unlock(servo)
            offset = line.read(servo, table.homing_offset)
            present = line.read(servo, table.present_position)
            wanted = offset + table.offset_sign * (MIDDLE - present)
            line.write(servo, table.homing_offset, wanted)
            self._lock(servo)

    def watch(self) -> dict[int, tuple[int, int, int]]:
        """Look once; returns lowest, present and highest counts by servo id."""
        out: dict[int, tuple[int, int, int]] = {}
        for servo, reading in zip(self._line.ids, self._line.readings(), strict=True):
            self._low[servo] = min(self._low[servo], reading.position)
            self._high[servo] = max(self._high[servo], reading.position)
            out[servo] = (self._low[servo], reading.position, self._high[servo])
        return out

    def finish(self, arm: str, serial: str = "") -> ArmCalibration:
        """Write the ranges into the servos, let them answer at once, return the calibration.

        Raises RobotError for a joint that was not moved.
        """
        table, line = self._line.table, self._line
        for servo, name in zip(line.ids, self._names, strict=True):
            if self._high[servo] - self._low[servo] < 64:
                raise RobotError(
                    f"servo {servo} ({name}) was moved by"
                    f" {max(0, self._high[servo] - self._low[servo])} counts only; move every"
                    " joint from end to end"
                )
        servos: list[ServoCalibration] = []
        for servo, name in zip(line.ids, self._names, strict=True):
            self._unlock(servo)
            line.write(servo, table.low_limit, self._low[servo])
            line.write(servo, table.high_limit, self._high[servo])
            line.write(servo, table.return_delay, 0)
            self._lock(servo)
            offset = line.read(servo, table.homing_offset)
            servos.append(
                ServoCalibration(name, servo, self._low[servo], self._high[servo], offset)
            )
        return ArmCalibration(arm, tuple(servos), serial)

    def _unlock(self, servo: int) -> None:
        if self._line.table.eeprom_lock is not None:
            self._line.write(servo, self._line.table.eeprom_lock, 0)

    def _lock(self, servo: int) -> None:
        if self._line.table.eeprom_lock is not None:
            self._line.write(servo, self._line.table.eeprom_lock, 1)
