"""Finds, calibrates and releases arms of serial servos."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hardware.drivers.serial_bus.calibration import ArmCalibration, ServoHoming, save_calibration
from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
from hardware.drivers.serial_bus.feetech import FeetechConfig
from hardware.drivers.serial_bus.sdk import SdkLine, port_serial
from robolearn.errors import ConfigError, RobotConnectionError
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.cell.servo_port import SO101_JOINTS, ServoPort

_RELEASED = "the motors are switched off now, and the arm falls unless you hold it"
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class ServoFound:
    """A servo that answers: its model, where it is [counts], whether it holds torque, and the fault
    that it reports ("" for none).
    """

    id: int
    model: str
    position: int
    torque: bool
    fault: str


def scan_servos(port: ServoPort, last: int = 12) -> tuple[ServoFound, ...]:
    """The servos that answer, of the ids 1 to ``last``. RobotConnectionError for a port that cannot
    be opened.
    """
    with closing(_line(port, ())) as line:
        found = [_ask(line, servo) for servo in range(1, last + 1)]
    return tuple(servo for servo in found if servo is not None)


def calibrate_servos(
    port: ServoPort,
    out: Path,
    operator: CellOperator,
    *,
    name: str = "my_arm",
    joints: tuple[str, ...] = SO101_JOINTS,
    on_ranges: Callable[[], None] | None = None,
) -> ArmCalibration:
    """Set the zero and the ranges of an arm by hand; writes the servos' memory and the file
    ``out``.

    ``joints``: names in order of the servos' ids 1, 2, 3, ...; ``on_ranges``: told when every joint
    is to be moved slowly from end to end, which is watched until the operator is done.

    Errors: :class:`ConfigError` when the operator does not agree; :class:`RobotError` for a joint
    that was not moved.
    """
    if operator.place is None or operator.done is None:
        raise ConfigError("an arm is calibrated by hand: give the operator's 'place' and 'done'")
    with closing(_line(port, tuple(range(1, len(joints) + 1)))) as line:
        operator.consent(_RELEASED)
        _switch_off(line)
        homing = ServoHoming(line, joints)
        operator.place("Move every joint to the middle of its range")
        homing.center()
        if on_ranges is not None:
            on_ranges()
        while not operator.done(_LOOK_EVERY_S):
            homing.watch()
        calibration = homing.finish(name, port_serial(port.port))
        save_calibration(calibration, out)
    return calibration


def release_servos(port: ServoPort, ids: tuple[int, ...], operator: CellOperator) -> None:
    """Switch the motors off: a person must hold the arm. ConfigError when nobody agrees to that."""
    with closing(_line(port, ids)) as line:
        operator.consent(_RELEASED)
        _switch_off(line)


def _line(port: ServoPort, ids: tuple[int, ...]) -> SdkLine:
    config_class = FeetechConfig if port.kind == "feetech" else DynamixelConfig
    # What a scan needs to know of an arm: nothing but its line.
    config = config_class(
        port=port.port, calibration=Path(), joints=("any",), baud=port.baud, reply_slack_s=0.02
    )
    return config.line(list(ids))


def _ask(line: SdkLine, servo: int) -> ServoFound | None:
    table = line.table
    try:
        # Twice: an answer may be lost, and a servo that a scan leaves out is looked for by hand.
        model = line.read(servo, table.model_number, attempts=2)
    except RobotConnectionError:
        return None
    health = line.health(servo)
    return ServoFound(
        servo,
        table.models.get(model, f"unknown model {model}"),
        line.read(servo, table.present_position),
        health.torque_on,
        health.fault,
    )


def _switch_off(line: SdkLine) -> None:
    for servo in line.ids:
        line.write(servo, line.table.torque_enable, 0)
