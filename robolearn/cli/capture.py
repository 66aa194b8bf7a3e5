"""``robolearn capture`` takes a capture of a cell, guided, or checks one that somebody took."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.consent import ask, wait_for_enter
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError
from robolearn.operations.capture.options import CaptureOptions, HandOptions

if TYPE_CHECKING:
    from robolearn.operations.capture.inspect import Inspected
    from robolearn.operations.capture.take import CellCaptured


@dataclass(frozen=True, slots=True)
class Args:
    """Take pictures of a board, the table and its objects with a cell's cameras, and the arm's
    poses, for 'calibrate cameras' and 'reconstruct'; or check a capture (--check).
    """

    # A file of configs/hardware/: its arm moves from pose to pose.
    robot: Path | None = None
    # Folder of the capture; one that was cut off goes on where it ended.
    out: Path | None = None
    # Check this capture folder and say what is wrong with it; nothing moves.
    check: Path | None = None
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # A stage without the arm: a camera that is carried around, or an object on a turntable.
    hand: Annotated[HandOptions, tyro.conf.arg(name="")] = field(default_factory=HandOptions)
    # Do not ask before the arm moves, nor for hands that lay boards and objects.
    yes: bool = False
    # The board, which cameras ride on the arm, and how much is taken.
    options: Annotated[CaptureOptions, tyro.conf.arg(name="")] = field(
        default_factory=CaptureOptions
    )
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "capture", Args.__doc__ or "")
    if args.check is not None:
        if args.robot is not None or args.out is not None:
            raise ConfigError("--check looks at a folder; leave --robot and --out out")
        return _check(args.check, json=args.json)
    if args.robot is None or args.out is None:
        raise ConfigError(
            "give --robot CELL --out FOLDER to take a capture, or --check FOLDER to look at one"
        )
    if args.hand.by_hand:
        return _by_hand(args, args.robot, args.out)
    return _take(args, args.robot, args.out)


def _by_hand(args: Args, robot: Path, out: Path) -> int:
    from robolearn.operations.capture.by_hand import capture_by_hand
    from robolearn.operations.cell.operator import CellOperator

    done = capture_by_hand(
        robot,
        out,
        CellOperator(partial(ask, yes=args.yes), None if args.yes else wait_for_enter),
        args.options,
        args.hand,
        start_lab=args.start_lab,
        on_note=lambda text: say(text, quiet=args.json),
    )
    if args.json:
        print_json(
            {
                "capture": str(done.folder),
                "pictures": {done.set_name: done.pictures},
                "repeat": [done.advice] if done.advice else [],
            }
        )
        return 0
    say(f"{done.set_name}: {done.pictures} picture(s)")
    if done.advice:
        say(f"repeat: {done.advice}")
    say(f"capture: {done.folder}")
    say(f"next: robolearn capture --check {done.folder}")
    return 0


def _take(args: Args, robot: Path, out: Path) -> int:
    from robolearn.operations.capture.take import capture_cell
    from robolearn.operations.cell.operator import CellOperator

    yes = args.yes
    done = capture_cell(
        robot,
        out,
        CellOperator(partial(ask, yes=yes), None if yes else wait_for_enter),
        args.options,
        start_lab=args.start_lab,
        on_note=lambda text: say(text, quiet=args.json),
    )
    if args.json:
        print_json(_document(done))
        return 0
    for name, count in done.pictures.items():
        say(f"{name}: {count} picture(s)")
    if done.calibrated is not None:
        from robolearn.cli.calibrate.cameras import show_rig

        show_rig(done.calibrated)
    if done.problem:
        say(f"not calibrated: {done.problem}")
    for text in done.advice:
        say(f"repeat: {text}")
    say(f"capture: {done.folder}")
    say(f"next: robolearn capture --check {done.folder}")
    return 0


def _document(done: CellCaptured) -> dict[str, Any]:
    from robolearn.cli.calibrate.cameras import rig_document

    found = None if done.calibrated is None else rig_document(done.calibrated)
    return {
        "capture": str(done.folder),
        "pictures": done.pictures,
        "repeat": list(done.advice),
        "calibrated": found,
        "problem": done.problem,
    }


def _check(folder: Path, *, json: bool) -> int:
    from robolearn.operations.capture.inspect import inspect_capture

    found = inspect_capture(folder)
    if json:
        print_json(
            {
                "capture": str(folder),
                "usable": found.usable,
                "pictures": found.pictures,
                "errors": list(found.errors),
                "warnings": list(found.warnings),
                "told": list(found.told),
            }
        )
    else:
        _show(folder, found)
    return 2 if found.errors else 0


def _show(folder: Path, found: Inspected) -> None:
    say(f"{folder}: {found.usable} of {found.pictures} pictures can be used")
    for text in found.told:
        say(text)
    for text in found.warnings:
        say(f"warning: {text}")
    for text in found.errors:
        say(f"error: {text}")
    if not found.errors and not found.warnings:
        say("nothing is wrong with it")
