"""The lab of a bare arm as a process: served, hung, killed, and driven by the vendors' SDKs."""

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from hardware.drivers.dynamixel import DynamixelConfig
from hardware.drivers.feetech import FeetechConfig
from hardware.emulators.launch import LabProcess
from hardware.robot import RobotMode
from robolearn.errors import RobotConnectionError, RobotError

CONFIGS = Path(__file__).parents[2] / "configs" / "hardware"
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
KINDS = {"so101": FeetechConfig, "koch": DynamixelConfig}


@contextlib.contextmanager
def served(name, folder):
    """The lab of a shipped config, with its port in a folder of the test; its robot."""
    text = (CONFIGS / f"lab_{name}.yaml").read_text()
    text = text.replace(f"runs/lab/{name}", str(folder / "bus"))
    text = text.replace("calibration/", f"{CONFIGS}/calibration/")
    config = folder / "lab.yaml"
    config.write_text(text)
    robot = KINDS[name](
        port=str(folder / "bus"),
        calibration=CONFIGS / "calibration" / f"lab_{name}.yaml",
        joints=JOINTS,
        gripper="gripper",
        reply_slack_s=0.03,
        silence_s=1.0,
        watchdog_s=0.5,
    ).build()
    with LabProcess(config) as lab:
        try:
            yield lab, robot
        finally:
            robot.close()


def test_the_so101_carries_its_weight_and_follows(tmp_path):
    with served("so101", tmp_path) as (lab, robot), lab.where.connect() as door:
        robot.connect()
        start = robot.state().joint_position
        target = start + np.array([0.3, 0.2, -0.2, 0.1, 0.2])
        for k in range(60):
            robot.servo(start + (target - start) * min(1.0, k / 40))
            time.sleep(0.01)
        assert robot.stop()
        time.sleep(0.3)
        truth = door.truth().q
        assert np.abs(truth[:5] - target).max() < 0.05
        assert np.abs(robot.state().joint_position - truth[:5]).max() < 0.01
        log = door.log()
        assert log.setpoint_q.shape[1] == 6
        assert log.count >= 20
        with pytest.raises(RobotError, match="no fault 'protective_stop'"):
            door.fault("protective_stop")


def test_a_hung_and_a_killed_bus_end_in_typed_errors(tmp_path):
    with served("koch", tmp_path) as (lab, robot):
        robot.connect()
        os.kill(lab.pid, signal.SIGSTOP)
        lost(robot)
        os.kill(lab.pid, signal.SIGCONT)
        robot.connect()
        assert robot.state().mode is RobotMode.RUNNING
        os.kill(lab.pid, signal.SIGKILL)
        lost(robot)
        with pytest.raises(RobotConnectionError, match="there is no serial port"):
            robot.connect()


def lost(robot):
    start = time.monotonic()
    while robot.state().mode is RobotMode.RUNNING:
        with contextlib.suppress(RobotError):
            robot.keep_alive()
        assert time.monotonic() - start < 2.0
        time.sleep(0.005)
    assert robot.state().mode is RobotMode.DISCONNECTED
    start = time.monotonic()
    robot.stop()
    assert time.monotonic() - start < 1.0
