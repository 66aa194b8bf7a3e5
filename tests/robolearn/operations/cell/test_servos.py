"""Serial servos are found, calibrated and released by functions, over an emulated bus."""

from __future__ import annotations

import pytest

from hardware.drivers.serial_bus.calibration import load_calibration
from robolearn.errors import ConfigError, RobotError
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.cell.servo_port import ServoPort
from robolearn.operations.cell.servos import calibrate_servos, release_servos, scan_servos
from tests.hardware.buses import JOINTS, START, BusArm


@pytest.fixture(params=["feetech", "dynamixel"])
def arm(request, tmp_path):
    with BusArm(request.param, tmp_path) as made:
        made.where = ServoPort(str(made.port), request.param)
        yield made


def test_a_scan_finds_the_servos(arm):
    found = scan_servos(arm.where, last=8)
    assert [s.id for s in found] == [1, 2, 3, 4, 5, 6]
    assert not any(s.torque or s.fault for s in found)
    arm.do(lambda: setattr(arm.line, "mute", True))
    assert scan_servos(arm.where, last=2) == ()


def test_calibrating_writes_servos_and_file(arm, tmp_path, capsys):
    """While the function watches, a person moves all joints to one side and to the other."""
    moves, told = [-0.5, 0.6, 0.0], []

    def done(wait_s):
        if not moves:
            return True
        away = moves.pop(0)
        arm.do(lambda: arm.plant.set_joints(START + away))
        arm.whole_tick()
        return False

    out = tmp_path / "mine.yaml"
    operator = CellOperator(told.append, told.append, done)
    made = calibrate_servos(
        arm.where, out, operator, joints=JOINTS, on_ranges=lambda: told.append("ranges")
    )
    assert made == load_calibration(out)
    assert made.arm == "my_arm"
    assert [s.name for s in made.servos] == list(JOINTS)
    assert all(s.high - s.low > 600 for s in made.servos)
    assert "falls unless you hold it" in told[0]
    assert told[1:] == ["Move every joint to the middle of its range", "ranges"]
    assert capsys.readouterr() == ("", "")


def test_joints_that_nobody_moved_are_refused_and_hands_are_needed(arm, tmp_path):
    out = tmp_path / "mine.yaml"
    with pytest.raises(RobotError, match="was moved by"):
        calibrate_servos(
            arm.where, out, CellOperator(print, print, lambda wait_s: True), joints=JOINTS
        )
    with pytest.raises(ConfigError, match="by hand: give the operator's 'place' and 'done'"):
        calibrate_servos(arm.where, out, CellOperator(print, print))
    assert not out.exists()


def test_releasing_asks_first(arm):
    def refuse(what: str) -> None:
        raise ConfigError(f"{what}: nobody agreed")

    with pytest.raises(ConfigError, match="nobody agreed"):
        release_servos(arm.where, (1, 2), CellOperator(refuse))
    assert not any(e.kind == "torque_off" for e in arm.bus.log.events)
    robot = arm.make()
    robot.connect()
    robot.close()
    release_servos(arm.where, (1, 2, 3, 4, 5, 6), CellOperator(print))
    assert sum(e.kind == "torque_off" for e in arm.bus.log.events) == 6
