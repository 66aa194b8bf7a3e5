"""The xArm's own gripper: contract and faults, the vendor's SDK against the emulated controller."""

import os
import struct

import pytest

from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.robot import RobotMode
from hardware.drivers.xarm.gripper import XArmGripperConfig
from hardware.emulators.xarm.gripper import (
    ENABLE,
    GOAL,
    SPEED,
    XArmGripperEmulator,
    XArmGripperEmulatorConfig,
)
from robolearn.errors import ConfigError, RobotConnectionError, RobotError
from sim.plants.fingers import SceneFingers
from sim.plants.scene import ScenePlant, ScenePlantConfig
from tests.hardware.devices.test_gripper import OBJECT_M, GripperContract, refusal
from tests.hardware.lab import address
from tests.hardware.xarms import XArm
from tests.waiting import pass_time, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the SDK's port 502 is open to root only")


@pytest.fixture
def arm():
    with XArm(66) as made:
        yield made


class TestXArmGripper(GripperContract):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _arm(self, arm):
        self.make = arm.make_gripper


def test_connecting_moves_neither_the_fingers_nor_the_arm(arm):
    arm.gripper.fingers.width_m = 0.03
    gripper = arm.make_gripper()
    gripper.connect()
    pass_time(0.1, "nothing may move")
    assert gripper.state().width_m == pytest.approx(0.03, abs=2e-4)
    assert arm.gripper.requests == []
    assert not arm.controller.enabled


def test_a_squeeze_is_kept_through_a_stop_and_a_reconnect_and_a_motion_is_not(arm):
    arm.gripper.fingers.object_m = OBJECT_M
    gripper = arm.make_gripper()
    gripper.connect()
    gripper.move(0.0)
    wait_until(lambda: gripper.state().holding)
    assert gripper.state().width_m == pytest.approx(OBJECT_M, abs=1e-3)
    assert gripper.stop()
    gripper.connect()
    assert gripper.stop()
    assert arm.gripper.requests == [0]
    assert gripper.state().holding
    gripper.move(0.085, speed=0.02)
    assert arm.gripper.fingers.width_m < 0.06
    wait_until(lambda: gripper.state().moving)
    assert gripper.stop()
    wait_until(lambda: not gripper.state().moving)
    assert OBJECT_M - 1e-3 < gripper.state().width_m < 0.08
    assert arm.gripper.speed == 100


def test_arm_and_gripper_have_a_connection_each_and_a_plug_that_falls_out_stops_both(arm):
    robot, gripper = arm.make(), arm.make_gripper()
    robot.connect()
    gripper.connect()
    gripper.move(0.02)
    wait_until(lambda: robot.keep_alive() or abs(gripper.state().width_m - 0.02) < 1e-3)
    assert robot.state().mode is RobotMode.RUNNING
    arm.do(lambda: setattr(arm.gripper, "unplugged", True))
    wait_until(lambda: robot.state().mode is RobotMode.FAULT)
    with pytest.raises(RobotError, match="reports error 19"):
        robot.keep_alive()
    with pytest.raises(RobotConnectionError, match="is it plugged in"):
        wait_until(lambda: gripper.state() and False)


def test_an_error_of_the_arm_is_not_the_grippers(arm):
    gripper = arm.make_gripper()
    gripper.connect()
    arm.do(lambda: arm.controller.fail(31))
    gripper.move(0.05)
    wait_until(lambda: abs(gripper.state().width_m - 0.05) < 1e-3)


FAULTS = {
    "hang": (lambda a: setattr(a.controller, "mute", True), "no answer to"),
    "garbage": (lambda a: setattr(a.controller, "garbage_replies", 10_000), "gripper of the xArm"),
    "links dropped": (lambda a: a.controller.drop_links(), "gripper of the xArm"),
    "error of the gripper": (lambda a: a.gripper.fail(11), "reports error 11; free the fingers"),
    "unplugged": (lambda a: setattr(a.gripper, "unplugged", True), "is it plugged in"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_one_typed_error_until_a_reconnect(arm, fault):
    cause, words = FAULTS[fault]
    gripper = arm.make_gripper()
    gripper.connect()
    arm.do(lambda: cause(arm))
    assert words in refusal(gripper)

    def heal():
        arm.controller.mute, arm.controller.garbage_replies, arm.controller.error = False, 0, 0
        arm.gripper.unplugged, arm.gripper.error = False, 0

    arm.do(heal)
    with pytest.raises(RobotError):
        gripper.move(0.05)
    gripper.stop()
    gripper.connect()
    gripper.move(0.05)
    wait_until(lambda: abs(gripper.state().width_m - 0.05) < 1e-3)


def test_old_firmware_an_error_and_nobody_there_are_refused():
    with XArm(67, firmware=(3, 4, 2)) as arm:
        with pytest.raises(RobotError, match=r"firmware 3\.4\.2.*update it to 3\.4\.3"):
            arm.make_gripper().connect()
        arm.gripper.config = type(arm.gripper.config)((3, 10, 0))
        arm.gripper.fail(14)
        with pytest.raises(RobotError, match="reports error 14"):
            arm.make_gripper().connect()
        assert not arm.gripper.enabled
    with pytest.raises(RobotConnectionError, match=r":502 .*control box is on"):
        XArmGripperConfig(address(68)).build().connect()


def test_a_cells_config_names_it_and_values_that_make_no_sense_are_refused():
    driver = {"kind": "xarm", "address": "192.168.1.203"}
    assert GripperCellConfig(driver, 0.085).build().stroke_m == 0.085
    with pytest.raises(ConfigError, match=r"the fingers open to 0\.085 m"):
        GripperCellConfig(driver, 0.2).build()
    for bad in ({"open_pulses": 0}, {"stroke_m": 0.0}, {"rate_hz": 500.0}, {"answer_s": 0.0}):
        with pytest.raises(ConfigError, match="xArm gripper"):
            XArmGripperConfig("127.0.0.1", **bad)


def test_it_pulls_the_fingers_of_a_scene():
    plant = ScenePlant(ScenePlantConfig("xarm7_table"))
    emulator = XArmGripperEmulator(XArmGripperEmulatorConfig(), SceneFingers(plant))
    for register, value in ((ENABLE, 1), (SPEED, 5000)):
        assert emulator.answer(write(register, value, 1)) is not None
    assert emulator.answer(write(GOAL, 400, 2)) == bytes([8, 16]) + write(GOAL, 400, 2)[2:6]
    for k in range(1, 200):
        emulator.step(k * 10_000_000)
        plant.step(0.01)
    assert SceneFingers(plant).stroke_m * 400 / 850 == pytest.approx(
        emulator.fingers.width_m, abs=2e-3
    )
    assert emulator.answer(bytes([8, 3, 0, 0, 0, 1]))[-1] == 0
    assert emulator.answer(bytes([8, 7, 0, 0, 0, 1])) == bytes([8, 0x87, 1])
    plant.close()


def write(register, value, count):
    head = struct.pack(">BBHHB", 8, 16, register, count, 2 * count)
    return head + value.to_bytes(2 * count, "big")
