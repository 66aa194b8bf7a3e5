"""A UR brought back from its dashboard: the unmodified client and the emulated controller."""

import pytest

from hardware.drivers.ur.dashboard import URRecovery
from hardware.drivers.ur.robot import URConfig
from robolearn.cli.main import main
from robolearn.errors import RobotConnectionError, RobotError
from tests.hardware.lab import CONFIG, address, kinematic_lab
from tests.waiting import pass_time

HERE = 77


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with kinematic_lab(tmp_path_factory.mktemp("recover"), HERE, tracker_port=30177) as lab:
        yield lab


@pytest.fixture
def config(tmp_path):
    """The lab's cell at this lab's address."""
    path = tmp_path / "cell.yaml"
    text = CONFIG.read_text()
    assert "address: 127.0.0.1" in text
    path.write_text(text.replace("address: 127.0.0.1", f"address: {address(HERE)}"))
    return path


def test_a_protective_stop_is_unlocked_and_the_arm_runs_again(lab, config, capsys):
    robot = URConfig(address(HERE), watchdog_hz=2.0).build()
    with lab.where.connect() as door:
        door.fault("protective_stop")
        with pytest.raises(RobotConnectionError, match="PROTECTIVE_STOP"):
            robot.connect()
        pass_time(0.3, "the controller keeps it locked for 0.2 s")
        assert main(["hardware", "recover", "--config", str(config), "--yes"]) == 0
    told = capsys.readouterr()
    assert "safety PROTECTIVE_STOP" in told.out + told.err
    assert "ready" in told.out + told.err
    robot.connect()
    robot.close()


def test_a_stop_that_is_too_young_is_refused_in_the_controllers_words(lab):
    recovery = URRecovery(address(HERE))
    with lab.where.connect() as door:
        door.fault("protective_stop")
        assert "unlocked" in recovery.next_step()
        with pytest.raises(RobotError, match="unlock"):
            recovery.take()
        door.fault("unlock")
    recovery.close()


def test_power_and_brakes_are_two_steps(lab):
    recovery = URRecovery(address(HERE))
    recovery._client.powerOff()  # by somebody at the pendant
    assert "powered on" in recovery.next_step()
    recovery.take()
    assert "brakes" in recovery.next_step()
    recovery.take()
    assert recovery.next_step() == ""
    assert recovery.told() == "power RUNNING, safety NORMAL, program stopped"
    recovery.close()
    recovery.close()


def test_an_emergency_stop_is_ended_by_hand(lab, config, capsys):
    with lab.where.connect() as door:
        door.fault("emergency_stop")
        assert main(["hardware", "recover", "--config", str(config), "--yes"]) == 2
        door.fault("unlock")
    assert "Release the emergency stop button" in capsys.readouterr().err


def test_without_consent_nothing_is_done(lab, config, capsys):
    with lab.where.connect() as door:
        door.fault("protective_stop")
        assert main(["hardware", "recover", "--config", str(config)]) == 2
        recovery = URRecovery(address(HERE))
        assert "PROTECTIVE_STOP" in recovery.told()
        recovery.close()
        door.fault("unlock")
    assert "no terminal to ask" in capsys.readouterr().err


def test_who_cannot_be_recovered_from_here_says_so(capsys):
    so101 = CONFIG.with_name("lab_so101.yaml")
    assert main(["hardware", "recover", "--config", str(so101), "--yes"]) == 2
    assert "at the device itself" in capsys.readouterr().err


def test_nobody_there_is_told():
    with pytest.raises(RobotConnectionError, match="29999"):
        URRecovery("127.9.9.9")
