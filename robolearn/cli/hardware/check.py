"""``robolearn hardware VERB`` checks a device by the contract's tests, with consent at each motion,
guides the arm by hand, and recovers the device after a stop.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.hardware.guide import GuideArgs, guide
from robolearn.cli.hardware.recover import RecoverArgs, recover
from robolearn.cli.shared.consent import ask, wait_for_enter
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import run_verb

if TYPE_CHECKING:
    from robolearn.machine.doctor import Check


@dataclass(frozen=True)
class Args:
    """Check a robot cell: driver, device, gripper, cameras, supervisor."""

    # A file of configs/hardware/.
    config: Path
    # Also the checks in which the arm is powered, moves a little and is stopped.
    motion: bool = True
    # How far the arm moves to either side [m, or rad in joint space].
    amplitude: float = 0.01
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Do not ask, neither before the motors come on nor before a motion (for a virtual lab).
    yes: bool = False
    # Print one JSON document.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run a verb."""
    return run_verb("hardware", "Work on a robot cell.", VERBS, argv)


def _check(argv: list[str]) -> int:
    args = parse(Args, argv, "hardware check", Args.__doc__ or "")
    from robolearn.operations.cell.check import check_cell
    from robolearn.operations.cell.operator import CellOperator

    def show(check: Check) -> None:
        say(f"{check.status:<4}  {check.name:<26}  {check.found}", quiet=args.json)
        if check.advice:
            say(f"      {'':<26}  -> {check.advice}", quiet=args.json)

    operator = CellOperator(partial(ask, yes=args.yes), None if args.yes else wait_for_enter)
    done = check_cell(
        args.config,
        operator,
        motion=args.motion,
        amplitude=args.amplitude,
        start_lab=args.start_lab,
        on_check=show,
    )
    if args.json:
        checks = [dataclasses.asdict(c) for c in done.checks]
        print_json({"ok": not done.failed, "checks": checks})
    say(f"{len(done.checks)} checks, {len(done.failed)} failure(s)", quiet=args.json)
    return 2 if done.failed else 0


VERBS = {
    "check": (Args, _check),
    "guide": (GuideArgs, guide),
    "recover": (RecoverArgs, recover),
}
