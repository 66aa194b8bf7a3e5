"""Checks a robot cell: cameras, driver, device, gripper, and the supervisor in motion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.commissioning.check import Expected, check_camera, check_holding, check_standing
from hardware.commissioning.check_gripper import check_gripper
from hardware.commissioning.latency_motions import swing
from hardware.commissioning.no_task import NoScore, clear_table, middle
from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.robot import Robot
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv
from robolearn.arms.models import ARMS
from robolearn.arms.tool_drive import joint_limits
from robolearn.errors import RobolearnError, SafetyStopError
from robolearn.machine.doctor import Check
from robolearn.operations.cell.lab import cell_lab
from robolearn.operations.cell.operator import CellOperator


@dataclass(frozen=True, slots=True)
class CellChecked:
    """What was checked, in this order; those that need motion end at the first failure."""

    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """Those that must be mended before the cell is used."""
        return tuple(c for c in self.checks if c.status == "FAIL")


def check_cell(
    config: Path,
    operator: CellOperator,
    *,
    motion: bool = True,
    amplitude: float = 0.01,
    start_lab: bool = False,
    on_check: Callable[[Check], None] | None = None,
) -> CellChecked:
    """Check the cell of a file of ``configs/hardware/``.

    ``motion``: also what powers the arm, moves it a little and stops it, by ``amplitude`` to either
    side [m, or rad in joint space]; ``start_lab``: start the virtual lab of the config meanwhile;
    ``on_check``: told every check before the operator is asked anything more.

    Errors: :class:`ConfigError` when the operator does not agree; a device that cannot be used is
    a failed check.
    """
    cell = load_cell(config)
    found: list[Check] = []
    with cell_lab(config, cell, start=start_lab) as lab:
        checks = _CellCheck(cell, operator, found, motion, amplitude)
        for check in checks.run(lab):
            found.append(check)
            if on_check is not None:
                on_check(check)
    return CellChecked(tuple(found))


@dataclass(frozen=True, slots=True)
class _CellCheck:
    """One after the other, so that the operator has seen each before the next question."""

    cell: CellConfig
    operator: CellOperator
    # Those that the caller has had so far.
    found: list[Check]
    motion: bool
    amplitude: float

    @property
    def _failed(self) -> bool:
        return any(c.status == "FAIL" for c in self.found)

    def run(self, lab: LabProcess | None) -> Iterator[Check]:
        """All of them."""
        cell, consent = self.cell, self.operator.consent
        yield from (check_camera(camera) for camera in cell.cameras)
        with closing(cell.robot_builder()()) as robot:
            expected = Expected(
                cell.follower().joints,
                *_joint_range(cell),
                max_age_s=cell.supervisor.state_stale_s,
            )
            consent("the arm is connected: its motors may come on and hold it")
            yield from check_standing(robot, expected)
            if self.motion and not self._failed:
                consent("the arm is told to stay where it is, and is stopped")
                yield from check_holding(robot, expected)
            if cell.gripper is not None and not self._failed:
                yield from self._gripper(cell.gripper, robot)
        if self.motion and not self._failed:
            consent(f"the arm moves by {self.amplitude:g} to either side")
            yield from self._supervised(lab)

    def _gripper(self, gripper: GripperCellConfig, arm: Robot) -> Iterator[Check]:
        if self.motion:
            self.operator.consent("the gripper opens and closes; is it empty, are hands away")
        config = gripper.activating(allowed=self.motion)
        if not config.driver_config().mounted:
            yield from check_gripper(config.build(), config, motion=self.motion)
            return
        # A servo of the arm's bus: the arm holds meanwhile.
        arm.connect()
        mounted = config.build(arm)
        yield from check_gripper(mounted, config, motion=self.motion, alive=arm.keep_alive)

    def _supervised(self, lab: LabProcess | None) -> list[Check]:
        """A small motion under the supervisor, then an emergency stop that must latch."""
        try:
            place = clear_table(self.cell, lab, self.operator.place)
            env = RealEnv(self.cell, place=place, scorer=NoScore())
        except RobolearnError as error:
            return [Check("supervisor", "FAIL", str(error), "see docs/safety.md")]
        found: list[Check] = []
        try:
            found.append(self._follows(env))
            env.home()
            env.estop()
            found.append(_latches(env))
        except RobolearnError as error:
            found.append(Check("supervised motion", "FAIL", str(error), "see docs/safety.md"))
        finally:
            env.close()
        return found

    def _follows(self, env: RealEnv) -> Check:
        moved = swing(env, middle(self.cell), seconds=3.0, amplitude=self.amplitude)
        asked, seen = float(np.ptp(moved.sent)), float(np.ptp(moved.measured))
        detail = f"asked for {asked:.4f}, measured {seen:.4f} (peak to peak)"
        if 0.7 * asked <= seen <= 1.3 * asked:
            return Check("follows a small motion", "OK", detail)
        advice = "check gains, units and the joints' signs"
        return Check("follows a small motion", "FAIL", detail, advice)


def _joint_range(cell: CellConfig) -> tuple[tuple[float, ...], ...]:
    """Lowest and highest positions [rad], where the cell says them."""
    if cell.joints is not None:
        return cell.joints.limits.low, cell.joints.limits.high
    if cell.tool is not None:
        limits = joint_limits(cell.tool.kinematics(ARMS[cell.arm]), cell.tool.limits)
        return limits.low, limits.high
    return ()


def _latches(env: RealEnv) -> Check:
    try:
        env.observe()
    except SafetyStopError as error:
        detail = f"the next step is refused ({type(error).__name__})"
        return Check("emergency stop latches", "OK", detail)
    advice = "see docs/safety.md; do not use this cell"
    return Check("emergency stop latches", "FAIL", "it did not latch", advice)
