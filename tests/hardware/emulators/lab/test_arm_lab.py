"""The lab of a bare arm as a process: served, hung, killed, and driven by the vendors' SDKs."""

import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION
from hardware.devices.robot import RobotMode
from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
from hardware.drivers.serial_bus.feetech import FeetechConfig
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv
from robolearn.config import load_yaml
from robolearn.errors import RobotConnectionError, RobotError
from robolearn.runtime import run_episode
from robolearn.types import Condition
from tests.hardware.joint_wave import NoTask, Wave
from tests.hardware.lab import address
from tests.hardware.real_cell import PATIENT
from tests.mocks import Listener
from tests.robot_contract import wait_for_fault
from tests.waiting import paced, pass_time, wait_until

CONFIGS = Path(__file__).parents[4] / "configs" / "hardware"
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
        for k in paced(100, 60):
            robot.servo(start + (target - start) * min(1.0, k / 40))
        assert robot.stop()
        pass_time(0.3, "its weight pulls it down")
        truth = door.truth().q
        assert np.abs(truth[:5] - target).max() < 0.05
        assert np.abs(robot.state().joint_position - truth[:5]).max() < 0.01
        log = door.log()
        assert log.setpoint_q.shape[1] == 6
        assert log.count >= 20
        with pytest.raises(RobotError, match="no fault 'protective_stop'"):
            door.fault("protective_stop")
        with pytest.raises(RobotError, match="no time stamps"):
            door.fault("clock_jump", seconds=5.0)


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
    wait_for_fault(robot)
    assert robot.state().mode is RobotMode.DISCONNECTED
    start = time.monotonic()
    robot.stop()
    assert time.monotonic() - start < 1.0


START = (0.1, -0.9, 0.9, 0.6, 0.0)


def test_an_episode_with_the_so101_through_the_supervisor(tmp_path):
    cell = load_cell(CONFIGS / "lab_so101.yaml")
    cell = dataclasses.replace(
        cell,
        driver={**cell.driver, "port": str(tmp_path / "bus"), "silence_s": 1.0},
        supervisor=dataclasses.replace(
            PATIENT, goto_speed=1.4, goto_acceleration=6.0, state_late_s=0.3, state_stale_s=0.8
        ),
    )
    with served("so101", tmp_path) as (lab, _), lab.where.connect() as door:
        env = RealEnv(cell, place=lambda _: "nothing to place", scorer=NoTask())
        try:
            condition = Condition("c", 1, {JOINT_POSITION: START})
            result = run_episode(env, Wave(START), None, [Listener()], condition, max_steps=15)
            achieved = result.reset.achieved[JOINT_POSITION]
            assert np.abs(np.array(achieved) - START).max() < 0.05
            assert door.truth().q[0] > 0.15
            assert env.interventions == []
        finally:
            env.close()


def test_every_lab_with_a_robot_section_is_a_complete_cell():
    for path in CONFIGS.glob("*.yaml"):
        if "robot" not in load_yaml(path):
            continue
        cell = load_cell(path)
        cell.follower()
        cell.motion()
        assert cell.driver_config().build().joints > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the SDK's port 502 is open to root only")
def test_the_xarm_is_driven_in_its_physics(tmp_path):
    cell = load_cell(CONFIGS / "lab_xarm.yaml")
    with LabProcess(CONFIGS / "lab_xarm.yaml", address=address(63)) as lab:
        driver = {**cell.driver, "address": lab.where.address, "silence_s": 1.0}
        robot = dataclasses.replace(cell, driver=driver).robot_builder()()
        claw = {**cell.gripper.driver, "address": lab.where.address}
        gripper = dataclasses.replace(cell.gripper, driver=claw).build()
        try:
            gripper.connect()
            gripper.move(0.03)
            robot.connect()
            start = robot.state().joint_position
            for k in paced(100, 40):
                robot.servo(start + 0.01 * min(k, 30))
            with lab.where.connect() as door:
                wait_until(
                    lambda: robot.keep_alive() or np.abs(door.truth().q - start - 0.3).max() < 0.03
                )
                wait_until(lambda: robot.keep_alive() or gripper.state().width_m < 0.06)
                door.fault("error", code=31.0)
                wait_for_fault(robot)
            assert robot.state().mode is RobotMode.PROTECTIVE_STOP
            assert gripper.state().changed_ns > 0
        finally:
            gripper.close()
            robot.close()
