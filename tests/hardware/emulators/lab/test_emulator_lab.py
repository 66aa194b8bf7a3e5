"""The virtual lab as a command: physics behind the wire, and what is said when it cannot start."""

import os
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from hardware.emulators.lab.launch import LabProcess
from hardware.emulators.tracker import decode_packet
from robolearn.cli.main import main
from robolearn.errors import ConfigError, RobotConnectionError
from robolearn.operations.lab.workcell import load_lab
from tests.hardware.lab import CONFIG, address, kinematic_lab
from tests.hardware.real_cell import alive
from tests.waiting import wait_until


@pytest.mark.parametrize("world", ["pybullet", "mujoco"])
def test_physics_pictures_and_tracker_of_the_real_config(world):
    lab = LabProcess(CONFIG, address=address(11), seed=3, arguments=("--world", world))
    with lab, lab.where.connect() as door:
        assert lab.where.world == world
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind((lab.where.address, lab.where.tracker_port))
            listener.settimeout(2.0)
            door.place("block", (0.3, 0.2, 1.0))
            placed_ns = time.monotonic_ns()
            packets = []
            while len(packets) < 12:
                packet = decode_packet(listener.recv(2048))
                if packet.t_ns > placed_ns:
                    packets.append(packet)
        np.testing.assert_allclose(door.truth().poses["block"], (0.3, 0.2, 1.0), atol=1e-4)
        np.testing.assert_allclose([p.pose for p in packets], [(0.3, 0.2, 1.0)] * 12, atol=0.01)
        assert {p.name for p in packets} == {"block"}
        assert np.all(np.diff([p.seq for p in packets]) >= 1)
        before = door.call("stats")
        picture = door.picture("top", 96, 96)
        assert picture.shape == (96, 96, 3)
        assert len(np.unique(picture)) > 10
        # The arm's world goes on while a picture is drawn.
        assert door.call("stats")["time_s"] > before["time_s"]
        assert lab.stop() == 0


def test_the_lab_ends_with_the_process_that_started_it(tmp_path):
    lab = kinematic_lab(tmp_path, 12)
    lab._process.stdin.close()
    assert lab._process.wait(5.0) == 0
    with pytest.raises(RobotConnectionError, match="robolearn lab"):
        lab.where.connect()
    lab.stop()


def test_a_lab_that_crashed_is_told_where_it_was_used(tmp_path):
    lab = kinematic_lab(tmp_path, 13)
    os.kill(lab.pid, signal.SIGABRT)
    wait_until(lambda: not alive(lab.pid))
    with pytest.raises(RobotConnectionError, match=r"ended by itself \(exit code -6\)"):
        lab.__exit__(None, None, None)


def test_the_config_in_the_repository_is_valid():
    config = load_lab(CONFIG)
    assert config.world == "pybullet"
    assert config.devices.tracker.rate_hz == 60


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lab: {wrld: pybullet}", "Did you mean 'world'"),
        ("lab: {world: gazebo}", "gazebo"),
        ("robot: {}", "no section 'lab'"),
        ("lba: {}", "Did you mean 'lab'"),
        ("lab: {physics: {spread: 2}}", "spread"),
        ("lab: {drivetrain: {command_delay_s: 2}}", "command_delay_s must be in [0, 0.5]"),
        ("lab: {physics: {home: [0, 0]}}", "6 joint angles"),
        ("lab: {world: mujoco, scene: {table_friction: 0.3}}", "table_friction"),
        ("lab: {devices: {tracker: {rate_hz: fast}}}", "expected a number"),
    ],
)
def test_a_wrong_config_is_one_line_and_exit_code_2(tmp_path, capsys, text, message):
    path = Path(tmp_path) / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_lab(path)
    assert main(["lab", "--config", str(path)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "ready" not in captured.out


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("so101_table", "'arm: so101' serves that one"),
        ("pusht_reference", "has no arm"),
        ("ur5e_table", "looks at Push-T's table, but this workcell has ['cube']"),
    ],
)
def test_a_scene_that_the_lab_cannot_serve_is_refused(tmp_path, capsys, scene, message):
    path = Path(tmp_path) / "lab.yaml"
    path.write_text(f"lab: {{world: mujoco, scene: {{scene: {scene}}}, cameras: [{{}}]}}")
    assert main(["lab", "--config", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_an_address_of_another_machine_is_refused(tmp_path):
    config = Path(tmp_path) / "lab.yaml"
    config.write_text("lab: {world: kinematic}")
    with pytest.raises(RobotConnectionError, match="not an address of this machine"):
        LabProcess(config, address="192.0.2.1", arguments=["--expose"])
