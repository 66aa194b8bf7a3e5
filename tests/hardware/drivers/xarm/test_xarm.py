"""xArm: the robot contract and the faults, the vendor's SDK against an emulated controller."""

import os
import socket
import sys
import time

import numpy as np
import pytest

from hardware.devices.robot import RobotMode
from hardware.drivers.xarm.robot import XArmConfig
from robolearn.errors import (
    ConfigError,
    DataError,
    MissingDependencyError,
    RobotConnectionError,
    RobotError,
)
from tests.hardware.lab import address
from tests.hardware.xarms import START, XArm
from tests.robot_contract import RobotContract, wait_for_fault
from tests.waiting import pass_time, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the SDK's port 502 is open to root only")


@pytest.fixture
def arm():
    with XArm() as made:
        yield made


class TestXArm(RobotContract):
    @pytest.fixture(autouse=True)
    def _arm(self):
        with XArm(61) as self.arm:
            yield

    def make(self):
        return self.arm.make()

    def break_it(self, robot):
        self.arm.do(lambda: self.arm.controller.fail(31))
        return "error 31 (Collision Caused Abnormal Current)"

    def mend(self, robot):
        self.arm.do(lambda: cure(self.arm))


FAULTS = {
    "hang": (
        lambda arm: setattr(arm.controller, "mute", True),
        RobotMode.DISCONNECTED,
        "no answer",
    ),
    "links dropped": (lambda arm: arm.controller.drop_links(), RobotMode.DISCONNECTED, "xArm"),
    "garbage": (
        lambda arm: setattr(arm.controller, "garbage_replies", 10_000),
        RobotMode.DISCONNECTED,
        "xArm",
    ),
    "slow host": (lambda arm: arm.loop.slow(0.5, 1.5), RobotMode.DISCONNECTED, "xArm"),
    "collision": (lambda arm: arm.controller.fail(31), RobotMode.PROTECTIVE_STOP, "error 31"),
    "emergency stop": (lambda arm: arm.controller.fail(2), RobotMode.EMERGENCY_STOP, "error 2"),
    "another error": (lambda arm: arm.controller.fail(24), RobotMode.FAULT, "error 24"),
    "paused by somebody": (lambda arm: arm.controller._set_state(3), RobotMode.IDLE, "state 3"),
}


def cure(arm):
    arm.controller.mute, arm.controller.garbage_replies, arm.controller.error = False, 0, 0
    arm.loop.slow(0.0, 0.0)


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_one_typed_error_a_stop_and_needs_a_reconnect(arm, fault):
    cause, mode, words = FAULTS[fault]
    robot = arm.make(answer_s=0.1)
    robot.connect()
    goal = robot.state().joint_position + 0.05
    robot.servo(goal)
    arm.do(lambda: cause(arm))
    wait_for_fault(robot, timeout_s=3.0)
    stuck = robot.state()
    if fault != "garbage":  # noise may also look like an answer with a code
        assert stuck.mode is mode
    for _ in range(2):
        with pytest.raises(RobotError, match=words):
            robot.servo(goal)
    start = time.monotonic()
    robot.stop()
    assert time.monotonic() - start < 1.5
    arm.do(lambda: cure(arm))
    pass_time(0.05, "a fault that went away is no recovery")
    assert robot.state().mode is stuck.mode
    assert robot.state().changed_ns == stuck.changed_ns
    robot.connect()
    assert robot.state().mode is RobotMode.RUNNING


def test_an_error_must_be_cleared_by_a_person_before_connecting(arm):
    arm.do(lambda: arm.controller.fail(31))
    with pytest.raises(RobotConnectionError, match=r"error 31 \(Collision .*\); clear it"):
        arm.make().connect()
    assert not arm.controller.enabled


def test_a_stop_is_the_controllers_own_and_the_next_set_point_goes_on(arm):
    robot = arm.make()
    robot.connect()
    robot.servo(robot.state().joint_position + 0.02)
    assert robot.stop()
    assert arm.controller.state == 4
    assert robot.state().mode is RobotMode.RUNNING
    target = robot.state().joint_position + 0.01
    robot.servo(target)
    wait_until(
        lambda: robot.keep_alive() or np.abs(robot.state().joint_position - target).max() <= 1e-3
    )


def test_a_jump_stops_the_arm_at_the_controller(arm):
    robot = arm.make()
    robot.connect()
    robot.servo(robot.state().joint_position + 0.4)
    wait_until(lambda: robot.state().mode is not RobotMode.RUNNING)
    assert robot.state().mode is RobotMode.FAULT


def test_a_set_point_outside_the_arms_range_is_refused(arm):
    robot = arm.make()
    robot.connect()
    q = robot.state().joint_position
    q[1] = 2.9
    with pytest.raises(DataError, match=r"joint 2, 2\.900 rad, is outside"):
        robot.servo(q)
    assert arm.controller.log.count == 0


def test_the_clients_side_effects_are_undone(arm, capsys):
    assert socket.getdefaulttimeout() is None
    arm.make().connect()
    assert socket.getdefaulttimeout() is None
    assert capsys.readouterr().out == ""


def test_another_arm_is_refused(arm):
    with pytest.raises(ConfigError, match="has 7 joints, the config says 6"):
        arm.make(joints=6).connect()
    with pytest.raises(ConfigError, match="another arm: its serial number is XI130100"):
        arm.make(serial="XI999999").connect()


def test_nobody_there_and_no_library(arm, monkeypatch):
    with pytest.raises(RobotConnectionError, match=r":502 .*control box is on"):
        arm.make(address=address(62)).connect()
    monkeypatch.setitem(sys.modules, "xarm.wrapper", None)
    with pytest.raises(MissingDependencyError, match=r"robolearn\[xarm\]"):
        arm.make().connect()


def test_values_that_make_no_sense_are_refused():
    for bad in ({"joints": 4}, {"rate_hz": 1000.0}, {"answer_s": 0.0}):
        with pytest.raises(ConfigError, match="xArm"):
            XArmConfig("127.0.0.1", **bad)


def test_the_vendors_client_reads_the_report_stream(arm, capsys):
    from xarm.wrapper import XArmAPI

    arm.make().connect()
    api = XArmAPI(arm.address, is_radian=True, forbid_uds=True)
    socket.setdefaulttimeout(None)
    wait_until(lambda: np.allclose(api.angles, START, atol=1e-5) and api.mode == 1)
    assert api.state == 2
    assert not api.has_error
    api.disconnect()
    pass_time(0.05, "the vendor's threads print")
    capsys.readouterr()
