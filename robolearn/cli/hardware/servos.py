"""``robolearn servos`` finds, calibrates and releases arms of serial servos."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from robolearn.cli.shared.consent import ask, entered
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError
from robolearn.operations.cell.servo_port import SO101_JOINTS, Kind, ServoPort


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
    from robolearn.operations.cell.servos import scan_servos

    found = scan_servos(ServoPort(args.port, args.kind, args.baud), args.last)
    if args.json:
        print_json({"port": args.port, "servos": [dataclasses.asdict(s) for s in found]})
        return 0
    for servo in found:
        torque = "holds torque" if servo.torque else "no torque"
        fault = f", reports {servo.fault}" if servo.fault else ""
        say(f"servo {servo.id}: {servo.model}, position {servo.position}, {torque}{fault}")
    if not found:
        say(f"no servo answers at {args.port}: check its supply, --kind and --baud")
    return 0


def _calibrate(argv: list[str]) -> int:
    args = parse(Calibrate, argv, "servos calibrate", Calibrate.__doc__ or "")
    from robolearn.operations.cell.operator import CellOperator
    from robolearn.operations.cell.servos import calibrate_servos

    calibration = calibrate_servos(
        ServoPort(args.port, args.kind, args.baud),
        args.out,
        CellOperator(partial(ask, yes=args.yes), _place, _enter),
        name=args.name,
        joints=args.joints,
        on_ranges=lambda: say("2. Move every joint slowly from end to end, then press Enter."),
    )
    for servo in calibration.servos:
        low, high = servo.range_rad()
        say(f"  {servo.name}: {low:.2f} to {high:.2f} rad")
    say(f"written: {args.out}")
    return 0


def _release(argv: list[str]) -> int:
    args = parse(Release, argv, "servos release", Release.__doc__ or "")
    from robolearn.operations.cell.operator import CellOperator
    from robolearn.operations.cell.servos import release_servos

    port = ServoPort(args.port, args.kind, args.baud)
    release_servos(port, args.ids, CellOperator(partial(ask, yes=args.yes)))
    say("released")
    return 0


def _place(text: str) -> None:
    say(f"1. {text}, then press Enter.")
    while not _enter(0.5):
        pass


def _enter(wait_s: float) -> bool:
    line = entered(wait_s)
    if line == "":
        raise ConfigError("the input ended before the calibration did; nothing was saved")
    return line is not None


VERBS = {
    "scan": (Scan, _scan),
    "calibrate": (Calibrate, _calibrate),
    "release": (Release, _release),
}
