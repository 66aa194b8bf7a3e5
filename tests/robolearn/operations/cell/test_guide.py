"""A hand guides an arm by a function: until it is done, or the time is over."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.supervisor.link import Cause
from robolearn.errors import ConfigError, RobotError
from robolearn.operations.cell.guide import GuideListener, guide_arm
from robolearn.operations.cell.operator import CellOperator
from tests.hardware.commissioning.test_check import CELL

FAKE = CELL.replace(
    'kind: "tests.hardware.toy_arm:ToyConfig"', "kind: fake, joint_position: [0.0, 0.5, -0.5]"
)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "cell.yaml"
    path.write_text(FAKE)
    return path


def test_the_arm_gives_way_until_the_operator_is_done(config, capsys):
    told, looks = [], []

    def done(wait_s: float) -> bool:
        looks.append(wait_s)
        return len(looks) == 3

    listener = GuideListener(
        on_free=lambda: told.append("free"),
        on_place=lambda place: told.append(place.joint_position.tolist()),
        on_hold=lambda: told.append("holds"),
    )
    operator = CellOperator(told.append, done=done)
    guided = guide_arm(config, operator, listener=listener)
    assert told[0] == "the arm gives way to your hand; hold it"
    assert told[1:] == ["free", [0.0, 0.5, -0.5], "holds"]
    assert len(looks) == 3
    np.testing.assert_allclose(guided.place.joint_position, [0.0, 0.5, -0.5])
    assert guided.place.flange_m is None
    assert guided.place.leeway.joint_rad == pytest.approx(1.5)
    causes = [event.cause for event in guided.interventions]
    assert causes == [Cause.FREEDRIVE, Cause.FREEDRIVE_ENDED]
    assert capsys.readouterr() == ("", "")


def test_the_time_ends_it_where_nobody_says_so(config):
    guided = guide_arm(config, CellOperator(print), seconds=0.2)
    assert [e.cause for e in guided.interventions] == [Cause.FREEDRIVE, Cause.FREEDRIVE_ENDED]


def test_what_cannot_be_guided_is_refused(config, tmp_path):
    def refuse(what: str) -> None:
        raise ConfigError(f"{what}: nobody agreed")

    with pytest.raises(ConfigError, match="give seconds, or the operator's 'done'"):
        guide_arm(config, CellOperator(print))
    with pytest.raises(ConfigError, match="seconds must be 0 or more, got -1"):
        guide_arm(config, CellOperator(print), seconds=-1.0)
    with pytest.raises(ConfigError, match="nobody agreed"):
        guide_arm(config, CellOperator(refuse), seconds=0.1)
    toy = tmp_path / "toy.yaml"
    toy.write_text(CELL)
    with pytest.raises(RobotError, match="freedrive"):
        guide_arm(toy, CellOperator(print), seconds=0.1)
