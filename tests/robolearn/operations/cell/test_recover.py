"""A device is brought back by a function, step by step (a UR's own steps: its driver's tests)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from robolearn.errors import ConfigError, RobotError
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.cell.recover import RecoverListener, recover_cell
from tests.hardware.commissioning.test_check import CELL
from tests.hardware.toy_arm import ToyConfig

HERE = "tests.robolearn.operations.cell.test_recover"


@dataclass(frozen=True, slots=True)
class StoppedConfig(ToyConfig):
    """A toy whose device needs ``steps`` steps after a stop."""

    steps: int = 2

    def recovery(self):
        return Stopped(self.steps)


class Stopped:
    closed = 0

    def __init__(self, steps):
        self._left = steps

    def told(self):
        return f"{self._left} step(s) from running"

    def next_step(self):
        return f"step {self._left}" if self._left else ""

    def take(self):
        self._left -= 1

    def close(self):
        Stopped.closed += 1


def cell(tmp_path, steps):
    path = tmp_path / "cell.yaml"
    path.write_text(
        CELL.replace(
            'kind: "tests.hardware.toy_arm:ToyConfig"',
            f'kind: "{HERE}:StoppedConfig", steps: {steps}',
        )
    )
    return path


def test_every_step_is_agreed_to_and_told(tmp_path, capsys):
    told = []
    listener = RecoverListener(
        on_state=lambda name, state: told.append((name, state)),
        on_step=lambda step: told.append(f"done: {step}"),
    )
    found = recover_cell(cell(tmp_path, 2), CellOperator(told.append), listener)
    assert told == [
        ("toy", "2 step(s) from running"),
        *("step 2", "done: step 2", ("toy", "1 step(s) from running")),
        *("step 1", "done: step 1", ("toy", "0 step(s) from running")),
    ]
    assert (found.cell, found.steps) == ("toy", ("step 2", "step 1"))
    assert found.state == "0 step(s) from running"
    assert capsys.readouterr() == ("", "")


def test_who_does_not_agree_takes_no_step(tmp_path):
    closed, told = Stopped.closed, []

    def refuse(step: str) -> None:
        raise ConfigError(f"{step}: nobody agreed")

    with pytest.raises(ConfigError, match="step 2: nobody agreed"):
        recover_cell(cell(tmp_path, 2), CellOperator(refuse), RecoverListener(on_step=told.append))
    assert told == []
    assert Stopped.closed == closed + 1


def test_a_device_that_is_never_ready_is_given_up(tmp_path):
    assert len(recover_cell(cell(tmp_path, 6), CellOperator(print)).steps) == 6
    with pytest.raises(RobotError, match=r"not ready after 6 steps .*look at its own panel"):
        recover_cell(cell(tmp_path, 7), CellOperator(print))


def test_who_cannot_be_recovered_from_here_says_so(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(CELL)
    with pytest.raises(ConfigError, match="at the device itself"):
        recover_cell(path, CellOperator(print))
