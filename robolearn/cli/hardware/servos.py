"""``robolearn servos``: find, calibrate and release arms of serial servos."""

from __future__ import annotations

import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from robolearn.cli.shared.consent import ask
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError, RobotConnectionError

if TYPE_CHECKING:
    from hardware.drivers.serial_bus.sdk import SdkLine

Kind = Literal["feetech", "dynamixel"]
SO101_JOINTS = (
    "shoulder_pan",
    "shoulder_lift",
    "elbow_flex",
    "wrist_flex",
    "wrist_roll",
    "gripper",
)
_RELEASED = "the motors are switched off now, and the arm falls unless you hold it"


@dataclass(frozen=True)
class Scan:
    """Which servos answer at a port."""

    # Serial port, such as /dev/ttyACM0.
    port: str
    # Family of the servos.
    kind: Kind = "feetech"
    # Speed of the line.
    baud: int = 1_000_000
    # Highest id to ask for.
    last: int = 12
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Calibrate:
    """Set the zero and the ranges of an arm by hand; writes the servos' memory and a file."""

    # Serial port, such as /dev/ttyACM0.
    port: str
    # The calibration file to write.
    out: Path
    # Family of the servos.
    kind: Kind = "feetech"
    # Name of the arm.
    name: str = "my_arm"
    # Joint names in order of the servos' ids, 1, 2, 3, ...
    joints: tuple[str, ...] = SO101_JOINTS
    # Speed of the line.
    baud: int = 1_000_000
    # Do not ask before the motors are switched off.
    yes: bool = False


@dataclass(frozen=True)
class Release:
    """Switch the motors off; a person must hold the arm."""

    # Serial port, such as /dev/ttyACM0.
    port: str
    # Family of the servos.
    kind: Kind = "feetech"
    # The servos.
    ids: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    # Speed of the line.
    baud: int = 1_000_000
    # Do not ask.
    yes: bool = False


def main(argv: list[str]) -> int:
    """Run a verb."""
    return run_verb("servos", "Arms of serial servos: find, calibrate, release.", VERBS, argv)


def _scan(argv: list[str]) -> int:
    args = parse(Scan, argv, "servos scan", Scan.__doc__ or "")
    line = _line(args.kind, args.port, args.baud, ())
    found: list[dict[str, object]] = []
    try:
        for servo in range(1, args.last + 1):
            row = _asked(line, servo)
            if row is not None:
                found.append(row)
    finally:
        line.close()
    if args.json:
        print_json({"port": args.port, "servos": found})
        return 0
    for row in found:
        torque = "holds torque" if row["torque"] else "no torque"
        say(
            f"servo {row['id']}: {row['model']}, position {row['position']}, {torque}{row['fault']}"
        )
    if not found:
        say(f"no servo answers at {args.port}: check its supply, --kind and --baud")
    return 0


def _calibrate(argv: list[str]) -> int:
    from hardware.drivers.serial_bus.calibration import ServoHoming, save_calibration
    from hardware.drivers.serial_bus.sdk import port_serial

    args = parse(Calibrate, argv, "servos calibrate", Calibrate.__doc__ or "")
    ids = tuple(range(1, len(args.joints) + 1))
    line = _line(args.kind, args.port, args.baud, ids)
    try:
        ask(_RELEASED, yes=args.yes)
        _switch_off(line)
        homing = ServoHoming(line, args.joints)
        _wait("1. Move every joint to the middle of its range, then press Enter.")
        homing.center()
        say("2. Move every joint slowly from end to end, then press Enter.")
        while not _pressed(0.02):
            homing.watch()
        calibration = homing.finish(args.name, port_serial(args.port))
        save_calibration(calibration, args.out)
    finally:
        line.close()
    for servo in calibration.servos:
        low, high = servo.range_rad()
        say(f"  {servo.name}: {low:.2f} to {high:.2f} rad")
    say(f"written: {args.out}")
    return 0


def _release(argv: list[str]) -> int:
    args = parse(Release, argv, "servos release", Release.__doc__ or "")
    line = _line(args.kind, args.port, args.baud, args.ids)
    try:
        ask(_RELEASED, yes=args.yes)
        _switch_off(line)
    finally:
        line.close()
    say("released")
    return 0


def _line(kind: Kind, port: str, baud: int, ids: tuple[int, ...]) -> SdkLine:
    from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
    from hardware.drivers.serial_bus.feetech import FeetechConfig

    config_class = FeetechConfig if kind == "feetech" else DynamixelConfig
    # What a scan needs to know of an arm: nothing but its line.
    config = config_class(
        port=port, calibration=Path(), joints=("any",), baud=baud, reply_slack_s=0.02
    )
    return config.line(list(ids))


def _asked(line: SdkLine, servo: int) -> dict[str, object] | None:
    table = line.table
    try:
        model = line.read(servo, table.model_number, attempts=1)
    except RobotConnectionError:
        return None
    health = line.health(servo)
    return {
        "id": servo,
        "model": table.models.get(model, f"unknown model {model}"),
        "position": line.read(servo, table.present_position),
        "torque": health.torque_on,
        "fault": f", reports {health.fault}" if health.fault else "",
    }


def _switch_off(line: SdkLine) -> None:
    for servo in line.ids:
        line.write(servo, line.table.torque_enable, 0)


def _wait(text: str) -> None:
    say(text)
    while not _pressed(0.5):
        time.sleep(0.0)


def _pressed(timeout_s: float) -> bool:
    if not select.select([sys.stdin], [], [], timeout_s)[0]:
        return False
    if not sys.stdin.readline():
        raise ConfigError("the input ended before the calibration did; nothing was saved")
    return True


VERBS = {
    "scan": (Scan, _scan),
    "calibrate": (Calibrate, _calibrate),
    "release": (Release, _release),
}
