"""``robolearn servos`` over an emulated bus: scan, calibration by hand, release."""

import json
import os

import pytest

from hardware.drivers.serial_bus.calibration import load_calibration
from robolearn.cli.hardware import servos
from robolearn.cli.shared import consent
from robolearn.errors import ConfigError
from tests.hardware.buses import JOINTS, START, BusArm


@pytest.fixture(params=["feetech", "dynamixel"])
def arm(request, tmp_path):
    with BusArm(request.param, tmp_path) as made:
        made.kind = request.param
        yield made


def test_a_scan_finds_the_servos(arm, capsys):
    arguments = ["scan", "--port", str(arm.port), "--kind", arm.kind, "--last", "8"]
    assert servos.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["servos"]
    assert [s["id"] for s in found] == [1, 2, 3, 4, 5, 6]
    assert not any(s["torque"] for s in found)
    arm.do(lambda: setattr(arm.line, "mute", True))
    assert servos.main(arguments) == 0
    assert "check its supply" in capsys.readouterr().out


def test_calibrating_writes_servos_and_file(arm, tmp_path, monkeypatch, capsys):
    """While the command watches, a person moves all joints to one side and to the other."""
    moves = ["", -0.5, 0.6, 0.0]

    def entered(_):
        # Enter for the middle, then for the end.
        if not moves or moves[0] == "":
            moves[:] = moves[1:]
            return "\n"
        away = moves.pop(0)
        arm.do(lambda: arm.plant.set_joints(START + away))
        arm.whole_tick()
        return None

    monkeypatch.setattr(servos, "entered", entered)
    out = tmp_path / "mine.yaml"
    arguments = ["calibrate", "--port", str(arm.port), "--kind", arm.kind, "--yes"]
    assert servos.main([*arguments, "--out", str(out), "--joints", *JOINTS]) == 0
    made = load_calibration(out)
    assert [s.name for s in made.servos] == list(JOINTS)
    assert all(s.high - s.low > 600 for s in made.servos)
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert first == "1. Move every joint to the middle of its range, then press Enter."
    assert second == "2. Move every joint slowly from end to end, then press Enter."
    assert last == f"written: {out}"


def test_releasing_asks_first(arm, monkeypatch):
    robot = arm.make()
    robot.connect()
    robot.close()
    arguments = ["release", "--port", str(arm.port), "--kind", arm.kind]
    with pytest.raises(ConfigError, match="pass --yes"):
        servos.main(arguments)
    assert not any(e.kind == "torque_off" for e in arm.bus.log.events)
    assert servos.main([*arguments, "--yes"]) == 0
    assert sum(e.kind == "torque_off" for e in arm.bus.log.events) == 6


def test_the_end_of_the_input_is_no_enter(arm, tmp_path, monkeypatch):
    theirs, ours = os.pipe()
    os.write(ours, b"\n")
    os.close(ours)
    out = tmp_path / "mine.yaml"
    arguments = ["calibrate", "--port", str(arm.port), "--kind", arm.kind, "--yes"]
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(consent.sys, "stdin", stdin)
        # The Enter is for the middle; the input ends while joints are moved.
        with pytest.raises(ConfigError, match="input ended"):
            servos.main([*arguments, "--out", str(out), "--joints", *JOINTS])
        assert consent.entered(1.0) == ""
    assert not out.exists()
