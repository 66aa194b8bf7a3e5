"""``hardware check`` on a driver that keeps the contract, and on drivers that break it; the driver
is the toy of docs/new_robot.md, registered by one line of a config.
"""

import dataclasses
import re
import time
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.commissioning import check
from hardware.commissioning.check import Expected, check_camera, check_holding, check_standing
from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig
from hardware.devices.robot import Robot
from robolearn.cli.main import main
from robolearn.errors import ConfigError, RobotConnectionError
from robolearn.machine import doctor
from tests.hardware.toy_arm import ToyArm, ToyConfig
from tests.waiting import pass_time

EXPECTED = Expected(3, max_age_s=0.5, hold_s=0.1, silence_s=0.4)
GUIDE = (Path(__file__).parents[3] / "docs" / "new_robot.md").read_text()
CELL = """
robot:
  name: toy
  driver: {kind: "tests.hardware.toy_arm:ToyConfig"}
  arm: ""
  collision: null
  supervisor: {late_s: 0.4, heartbeat_s: 0.4, frozen_s: 2.0, state_late_s: 0.2, state_stale_s: 0.5}
  joints:
    home: [0.0, 0.5, -0.5]
    limits: {low: [-2.0, -2.0, -2.0], high: [2.0, 2.0, 2.0], speed: [2.0, 2.0, 2.0],
             acceleration: [20.0, 20.0, 20.0]}
    max_tool_speed: null
"""


def results(robot):
    found = [*check_standing(robot, EXPECTED), *check_holding(robot, EXPECTED)]
    return {c.name: c for c in found}


def test_a_driver_that_keeps_the_contract_passes():
    arm = ToyArm(ToyConfig())
    assert isinstance(arm, Robot)
    found = results(arm)
    assert {c.status for c in found.values()} == {"OK"}, found
    assert len(found) >= 10


class Frozen(ToyArm):
    def _device_ns(self):
        return self._born_ns


class Backwards(ToyArm):
    def _device_ns(self):
        return self._born_ns - (time.monotonic_ns() - self._born_ns)


class Trusting(ToyArm):
    def servo(self, q):
        if q.shape == self._q.shape and np.isfinite(q).all():
            super().servo(q)


class Drifting(ToyArm):
    def servo(self, q):
        super().servo(q + 0.01)


class Degrees(ToyArm):
    def state(self):
        return dataclasses.replace(super().state(), joint_position=np.degrees(self._q + 1.0))


class Deaf(ToyArm):
    def stop(self):
        return False


class Fatherless(ToyArm):
    def _silent(self):
        return False


class Slow(ToyArm):
    def state(self):
        pass_time(0.025, "a slow device")
        return super().state()


class Vendor(ToyArm):
    def connect(self):
        raise KeyError("vendor")


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        (Frozen, "device clock", "0 changes"),
        (Backwards, "device clock", "backwards"),
        (Trusting, "bad commands are refused", "accepts NaN"),
        (Drifting, "holds its place", "own position"),
        (Degrees, "joint angles", "angles [57"),
        (Deaf, "stop is confirmed", "False"),
        (Fatherless, "watchdog fires", "still RUNNING"),
        (Slow, "calls return at once", "state() takes"),
        (Vendor, "connect", "KeyError"),
    ],
)
def test_a_driver_that_breaks_the_contract_is_told_what_and_how(kind, name, told, monkeypatch):
    clock = check._clock
    monkeypatch.setattr(check, "_clock", lambda robot, expected: clock(robot, expected, 0.1))
    found = results(kind(ToyConfig()))[name]
    assert found.status == "FAIL"
    assert told in found.found
    assert found.advice


def test_what_cannot_be_connected_is_asked_nothing_more():
    found = [c.name for c in check_standing(Vendor(ToyConfig()), EXPECTED)]
    assert found == ["before connect", "connect"]


def test_an_arm_without_a_watchdog_is_a_warning():
    class Without(ToyArm):
        has_watchdog = False

    found = results(Without(ToyConfig()))
    assert found["watchdog"].status == "WARN"
    assert "emergency stop" in found["watchdog"].advice
    assert "watchdog fires" not in found


def test_cameras_are_watched():
    stream = StreamConfig("top", 32, 24, rate_hz=50.0, clock="monotonic", max_age_s=1.0)
    good = check_camera(CameraConfig({"kind": "fake"}, stream), seconds=0.3)
    assert good.status in ("OK", "WARN")
    assert "32 x 24 px" in good.found
    absent = check_camera(CameraConfig({"kind": "opencv", "device": 98}, stream))
    assert absent.status == "FAIL"
    assert "/dev/video98" in absent.found


def test_every_command_of_the_guide_runs_on_the_guides_arm(tmp_path: Path, capsys, monkeypatch):
    """The driver, the config and the commands as they stand in docs/new_robot.md."""
    blocks = {
        kind: re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)
        for kind in ("python", "yaml", "bash")
    }
    (tmp_path / "my_arm.py").write_text(blocks["python"][0])
    (config,) = blocks["yaml"]
    # Patience with a busy test machine.
    config += CELL[CELL.index("  supervisor:") : CELL.index("  joints:")]
    (tmp_path / "my_arm.yaml").write_text(config)
    monkeypatch.setattr(doctor, "run_checks", lambda folder: ())
    # Not from the folder of the driver: it is beside the config.
    commands = [line for block in blocks["bash"] for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        words = command.replace("my_arm.yaml", str(tmp_path / "my_arm.yaml")).split()
        assert words.pop(0) == "robolearn"
        asks = [] if words[0] == "doctor" else ["--yes"]
        assert main([*words, *asks]) == 0, command
    out = capsys.readouterr().out
    assert "my_arm:ToyConfig: stops by itself" in out
    assert "follows a small motion" in out
    assert "emergency stop latches" in out
    assert load_cell(tmp_path / "my_arm.yaml").command_latency_s > 0.0


def test_a_gap_of_this_machine_is_not_called_one_of_the_device(monkeypatch):
    arm = ToyArm(ToyConfig())
    arm.connect()
    sleep = time.sleep
    monkeypatch.setattr(check.time, "sleep", lambda _: sleep(0.1))
    found = check._asked("clock", lambda: check._clock(arm, Expected(3, max_age_s=0.05), 0.3))
    assert found.status == "FAIL"
    assert "it was this machine" in found.advice


@pytest.mark.parametrize("motion", ["--motion", "--no-motion"])
def test_the_motors_stay_off_without_consent(motion, tmp_path: Path, capsys):
    path = tmp_path / "toy.yaml"
    path.write_text(CELL)
    assert main(["hardware", "check", "--config", str(path), motion]) == 2
    out = capsys.readouterr()
    assert "pass --yes" in out.err
    assert "connect" not in out.out


def test_a_question_comes_after_what_was_found(tmp_path: Path, capsys, monkeypatch):
    path = tmp_path / "toy.yaml"
    path.write_text(CELL)
    seen = []

    def answer(what, *, yes):
        assert not yes
        seen.append((what, capsys.readouterr().out))
        if len(seen) == 2:
            raise ConfigError("not confirmed")

    monkeypatch.setattr("robolearn.cli.hardware.check.ask", answer)
    assert main(["hardware", "check", "--config", str(path)]) == 2
    assert "motors" in seen[0][0]
    assert "joint angles" in seen[1][1]
    assert "holds its place" not in capsys.readouterr().out


def test_an_arm_that_runs_away_gets_no_more_setpoints():
    class Mirrored(ToyArm):
        sent = 0
        stopped = 0

        def servo(self, q):
            super().servo(-q)
            self.sent += 1

        def stop(self):
            self.stopped += 1
            return super().stop()

    arm = Mirrored(ToyConfig())
    arm.connect()
    found = list(check_holding(arm, EXPECTED))
    assert [c.status for c in found] == ["OK", "FAIL", "OK"]
    assert "moved by 1.0000 rad" in found[1].found
    assert arm.sent == 1
    assert arm.stopped >= 1


def test_the_toy_of_the_guide_is_the_toy_of_the_tests():
    toy = (Path(__file__).parents[1] / "toy_arm.py").read_text()
    code = GUIDE.split("```python\n", 1)[1].split("```", 1)[0]
    assert code.strip() == toy.strip()


def test_a_state_before_connecting_is_a_typed_error():
    with pytest.raises(RobotConnectionError):
        ToyArm(ToyConfig()).state()
