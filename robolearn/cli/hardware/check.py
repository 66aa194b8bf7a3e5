"""``robolearn hardware``: ``check`` (the contract tests on a device, with consent at each motion),
``guide`` (the arm in your hand), ``recover`` (the device back after a stop).
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.hardware.guide import GuideArgs, guide
from robolearn.cli.hardware.recover import RecoverArgs, recover
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hardware.cell.config import CellConfig
    from hardware.devices.gripper_config import GripperCellConfig
    from hardware.devices.robot import Robot
    from hardware.emulators.lab.launch import LabProcess
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
    from hardware.cell.load import load_cell

    cell = load_cell(args.config)
    found: list[Check] = []
    with ExitStack() as stack:
        lab = None
        if args.start_lab:
            from hardware.emulators.lab.launch import LabProcess

            lab = stack.enter_context(LabProcess(args.config, address=cell.address or "127.0.0.1"))
        for check in _checks(args, cell, lab, found):
            found.append(check)
            say(f"{check.status:<4}  {check.name:<26}  {check.found}", quiet=args.json)
            if check.advice:
                say(f"      {'':<26}  -> {check.advice}", quiet=args.json)
    failed = [c.name for c in found if c.status == "FAIL"]
    if args.json:
        print_json({"ok": not failed, "checks": [dataclasses.asdict(c) for c in found]})
    say(f"{len(found)} checks, {len(failed)} failure(s)", quiet=args.json)
    return 2 if failed else 0


def _checks(
    args: Args, cell: CellConfig, lab: LabProcess | None, found: list[Check]
) -> Iterator[Check]:
    """One after the other, so that the operator has seen each before the next question.

    ``found`` are those that the caller has had so far.
    """
    from hardware.commissioning.check import Expected, check_camera, check_holding, check_standing
    from robolearn.cli.shared.consent import ask

    yield from (check_camera(camera) for camera in cell.cameras)
    robot = cell.robot_builder()()
    expected = Expected(
        cell.follower().joints,
        *(() if cell.joints is None else (cell.joints.limits.low, cell.joints.limits.high)),
        max_age_s=cell.supervisor.state_stale_s,
    )
    try:
        ask("the arm is connected: its motors may come on and hold it", yes=args.yes)
        yield from check_standing(robot, expected)
        if args.motion and not _failed(found):
            ask("the arm is told to stay where it is, and is stopped", yes=args.yes)
            yield from check_holding(robot, expected)
        if cell.gripper is not None and not _failed(found):
            yield from _gripper(args, cell.gripper, robot)
    finally:
        robot.close()
    if args.motion and not _failed(found):
        ask(f"the arm moves by {args.amplitude:g} to either side", yes=args.yes)
        yield from _supervised(args, cell, lab)


def _gripper(args: Args, config: GripperCellConfig, arm: Robot) -> Iterator[Check]:
    from hardware.commissioning.check_gripper import check_gripper
    from robolearn.cli.shared.consent import ask

    if args.motion:
        ask("the gripper opens and closes; is it empty, are hands away", yes=args.yes)
    config = config.activating(allowed=args.motion)
    if not config.driver_config().mounted:
        yield from check_gripper(config.build(), config, motion=args.motion)
        return
    # A servo of the arm's bus: the arm holds meanwhile.
    arm.connect()
    gripper = config.build(arm)
    yield from check_gripper(gripper, config, motion=args.motion, alive=arm.keep_alive)


def _supervised(args: Args, cell: CellConfig, lab: LabProcess | None) -> list[Check]:
    """A small motion under the supervisor, then an emergency stop that must latch."""
    import numpy as np

    from hardware.commissioning.latency_motions import swing
    from hardware.commissioning.no_task import NoScore, clear_table, middle
    from hardware.env.real_env import RealEnv
    from robolearn.cli.shared.consent import wait_for_enter
    from robolearn.errors import RobolearnError, SafetyStopError
    from robolearn.machine.doctor import Check

    found: list[Check] = []
    try:
        place = clear_table(cell, lab, None if args.yes else wait_for_enter)
        env = RealEnv(cell, place=place, scorer=NoScore())
    except RobolearnError as error:
        return [Check("supervisor", "FAIL", str(error), "see docs/safety.md")]
    try:
        moved = swing(env, middle(cell), seconds=3.0, amplitude=args.amplitude)
        asked, seen = float(np.ptp(moved.sent)), float(np.ptp(moved.measured))
        told = f"asked for {asked:.4f}, measured {seen:.4f} (peak to peak)"
        if 0.7 * asked <= seen <= 1.3 * asked:
            found.append(Check("follows a small motion", "OK", told))
        else:
            advice = "check gains, units and the joints' signs"
            found.append(Check("follows a small motion", "FAIL", told, advice))
        env.home()
        env.estop()
        try:
            env.observe()
        except SafetyStopError as error:
            told = f"the next step is refused ({type(error).__name__})"
            found.append(Check("emergency stop latches", "OK", told))
        else:
            advice = "see docs/safety.md; do not use this cell"
            found.append(Check("emergency stop latches", "FAIL", "it did not latch", advice))
    except RobolearnError as error:
        found.append(Check("supervised motion", "FAIL", str(error), "see docs/safety.md"))
    finally:
        env.close()
    return found


def _failed(found: list[Check]) -> bool:
    return any(c.status == "FAIL" for c in found)


VERBS = {
    "check": (Args, _check),
    "guide": (GuideArgs, guide),
    "recover": (RecoverArgs, recover),
}
