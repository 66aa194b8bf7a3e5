"""Who lets an arm go on after a stop: the program in a lab, whoever stands there elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.emulators.lab.admin import LabClient, LabLog
from hardware.supervisor.link import Cause, Mode, Status
from robolearn.errors import RobotConnectionError, RobotError
from robolearn.operations.cell import release
from robolearn.operations.cell.placing import LabPlacement
from robolearn.operations.cell.release import why_not_cleared, why_stopped_for_good
from robolearn.operations.deploy.operator import Unattended
from robolearn.types import Condition
from tests.hardware.lab import CONFIG

LOCKED = RobotError("reports PROTECTIVE_STOP")


@dataclass
class Arm:
    """Refuses to go on as often as it was told to."""

    refusals: list[RobotError] = field(default_factory=list[RobotError])
    cause: Cause = Cause.ROBOT_FAULT
    cleared: int = 0

    def status(self) -> Status:
        return Status(0, Mode.STOPPED, self.cause, 0, False, 0, 0, 0, False)

    def clear_stop(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.cleared += 1


class Asked(Unattended):
    """Somebody who does what is said."""

    places = True

    def __init__(self) -> None:
        super().__init__(agreed=True)
        self.texts = list[str]()

    def place(self, text: str) -> None:
        self.texts.append(text)


def cell(*, lab: bool) -> CellConfig:
    return dataclasses.replace(load_cell(CONFIG), lab=lab)


def test_a_lab_is_cleared_by_the_program_but_no_stop_that_somebody_asked_for() -> None:
    arm, nobody = Arm(), Unattended(agreed=True)
    assert why_stopped_for_good(arm, cell(lab=True), nobody, "look") == ""
    assert arm.cleared == 1
    asked = Arm(cause=Cause.ESTOP)
    assert "nobody is there" in why_stopped_for_good(asked, cell(lab=True), nobody, "look")
    assert asked.cleared == 0


@pytest.mark.parametrize(("refusals", "times"), [([], 1), ([LOCKED], 2), ([LOCKED] * 3, 3)])
def test_a_person_is_asked_until_the_robot_itself_is_released(
    refusals: Sequence[RobotError], times: int
) -> None:
    arm, person = Arm([*refusals]), Asked()
    refused = why_stopped_for_good(arm, cell(lab=False), person, "look at it")
    assert bool(refused) == (len(refusals) == 3)
    assert arm.cleared == (not refused)
    assert len(person.texts) == times
    assert all(text.startswith("look at it") for text in person.texts)
    assert all("robolearn hardware recover" in text for text in person.texts[1:])


class Panel:
    """Refuses the first time, as a controller does whose stop is too young."""

    def __init__(self, arm: Arm) -> None:
        self.arm, self.takes, self.closed = arm, 0, False

    def next_step(self) -> str:
        return "unlocked" if self.arm.refusals else ""

    def take(self) -> None:
        self.takes += 1
        if self.takes == 1:
            raise RobotError("wait for five seconds")
        self.arm.refusals.clear()

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("cause", [Cause.ROBOT_FAULT, Cause.ESTOP])
def test_somebody_who_asks_for_it_has_a_labs_robot_released_too(
    monkeypatch: pytest.MonkeyPatch, cause: Cause
) -> None:
    monkeypatch.setattr(release, "AGAIN_S", 0.001)
    arm = Arm([LOCKED, LOCKED], cause)
    panel = Panel(arm)
    monkeypatch.setattr(CellConfig, "recovery", lambda _: panel)
    assert why_not_cleared(arm, cell(lab=True)) == ""
    assert (arm.cleared, panel.takes, panel.closed) == (1, 2, True)
    # Of a real arm nobody but its own panel, or a command of its own, releases anything.
    arm = Arm([LOCKED])
    assert why_not_cleared(arm, cell(lab=False)) == (
        "reports PROTECTIVE_STOP; release the robot at its own panel, or by 'robolearn hardware"
        " recover'"
    )
    assert (arm.cleared, panel.takes) == (0, 2)


def test_a_robot_that_is_gone_is_no_refusal() -> None:
    arm = Arm([RobotConnectionError("the robot is gone")])
    with pytest.raises(RobotConnectionError):
        why_stopped_for_good(arm, cell(lab=True), Unattended(agreed=True), "look")


class Door(LabClient):
    """A lab's side door that only remembers where things were put."""

    def __init__(self) -> None:
        self.put = list[tuple[str, tuple[float, ...]]]()
        # Looks at the arm that find it moving.
        self.moves, self.looks = 0, 0

    def log(self, since_ns: int = 0, limit: int = 20_000) -> LabLog:
        del since_ns, limit
        self.looks += 1
        return LabLog(0, self.looks <= self.moves, np.zeros(0, np.int64), np.zeros((0, 6)), ())

    def place(self, name: str, pose: Sequence[float]) -> None:
        self.put.append((name, tuple(pose)))


def test_what_an_arm_presses_on_is_put_back_where_it_lay_by_turns() -> None:
    door = Door()
    hand = LabPlacement(door, {"block/pose": "block"})
    # Nothing was put anywhere yet.
    hand.make_way()
    assert door.put == []
    for x in (0.1, 0.2):
        hand(Condition(f"at {x}", 0, {"block/pose": (x, 0.2, 0.0)}))
    del door.put[:]
    for _ in range(3):
        hand.make_way()
    assert [pose[0] for _, pose in door.put] == [0.2, 0.1, 0.2]
    # The arm springs to where it was sent: it has come to rest before its stop is cleared.
    door.looks, door.moves = 0, 7
    hand.make_way()
    assert door.looks > 7
