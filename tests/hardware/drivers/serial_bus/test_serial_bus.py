"""Arms of serial servos: robot contract and faults, the vendors' SDKs against emulated servos."""

import errno
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from hardware.devices.robot import RobotMode
from hardware.drivers.polling.loop import LostPacketError
from hardware.drivers.serial_bus import robot as serial_bus
from hardware.drivers.serial_bus.calibration import (
    ServoHoming,
    load_calibration,
    require_same_arm,
    save_calibration,
)
from robolearn.errors import (
    ConfigError,
    DataError,
    MissingDependencyError,
    RobotConnectionError,
    RobotError,
)
from tests.hardware.buses import DIRECTIONS, JOINTS, OFFSETS, START, BusArm
from tests.robot_contract import RobotContract, wait_for_fault
from tests.waiting import paced, pass_time, wait_for_error, wait_until


class OnABus(RobotContract):
    __test__ = False
    kind = ""

    @pytest.fixture(autouse=True)
    def _arm(self, tmp_path):
        with BusArm(self.kind, tmp_path) as self.arm:
            yield

    def make(self):
        return self.arm.make()

    def break_it(self, robot):
        self.arm.do(lambda: self.arm.bus.set_error(3, 36))
        return "servo 3 (elbow) reports overheating, overload"

    def mend(self, robot):
        self.arm.do(lambda: self.arm.bus.set_error(3, 0))


class TestFeetech(OnABus):
    __test__ = True
    kind = "feetech"


class TestDynamixel(OnABus):
    __test__ = True
    kind = "dynamixel"


@pytest.fixture(params=["feetech", "dynamixel"])
def arm(request, tmp_path):
    with BusArm(request.param, tmp_path) as made:
        yield made


FAULTS = {
    # What happens, and the mode that the driver reports.
    "hang": (lambda arm: setattr(arm.line, "mute", True), RobotMode.DISCONNECTED, "servo"),
    "unplugged": (lambda arm: arm.line.unplug(), RobotMode.DISCONNECTED, "plug it in"),
    "a servo is cut off": (
        lambda arm: arm.bus.set_absent(4),
        RobotMode.DISCONNECTED,
        "servo 4",
    ),
    "damaged answers": (
        lambda arm: setattr(arm.bus, "corrupt_replies", 10_000),
        RobotMode.DISCONNECTED,
        "servo",
    ),
    "slow host": (lambda arm: arm.loop.slow(0.5, 1.5), RobotMode.DISCONNECTED, "servo"),
    "overload": (lambda arm: arm.bus.set_error(3, 32), RobotMode.FAULT, "overload"),
    "a servo restarts": (
        lambda arm: arm.bus.set_absent(2, False),
        RobotMode.FAULT,
        "no torque",
    ),
}
CURES = {
    "hang": lambda arm: setattr(arm.line, "mute", False),
    "unplugged": lambda arm: arm.line.plug(),
    "a servo is cut off": lambda arm: arm.bus.set_absent(4, False),
    "damaged answers": lambda arm: setattr(arm.bus, "corrupt_replies", 0),
    "slow host": lambda arm: arm.loop.slow(0.0, 0.0),
    "overload": lambda arm: arm.bus.set_error(3, 0),
    "a servo restarts": lambda arm: None,
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_one_typed_error_a_stop_and_needs_a_reconnect(arm, fault):
    cause, mode, words = FAULTS[fault]
    robot = arm.make()
    robot.connect()
    robot.servo(robot.state().joint_position)
    arm.do(lambda: cause(arm))
    wait_for_fault(robot)
    assert robot.state().mode is mode
    age_ns = robot.state().changed_ns
    for _ in range(2):
        with pytest.raises(RobotError, match=words):
            robot.servo(robot.state().joint_position)
    with pytest.raises(RobotError, match=words):
        robot.keep_alive()
    start = time.monotonic()
    robot.stop()
    assert time.monotonic() - start < 1.0
    arm.do(lambda: CURES[fault](arm))
    pass_time(0.05, "a fault that went away is no recovery")
    assert robot.state().mode is mode
    assert robot.state().changed_ns == age_ns
    robot.connect()
    assert robot.state().mode is RobotMode.RUNNING
    robot.servo(robot.state().joint_position)


def test_the_joints_that_listen_are_held_when_one_is_cut_off(arm):
    arm.bus._table = replace(arm.bus._table, max_speed_rad_s=1.0)
    robot = arm.make(max_lost=2)
    robot.connect()
    goal = robot.state().joint_position + 1.6
    robot.servo(goal)
    wait_until(lambda: np.abs(arm.plant.joint_positions()[:5] - START[:5]).max() > 0.01)
    arm.do(lambda: arm.bus.set_absent(6))
    wait_for_fault(robot)
    wait_until(lambda: not arm.bus.log.moving)
    stop = arm.bus.log.setpoints()[1][-1][:5]
    assert np.all(stop < goal - 0.1), "stopped on the way"
    assert np.abs(arm.plant.joint_positions()[:5] - stop).max() < 0.01


def test_bytes_without_end_are_cut_off(arm):
    robot = arm.make()
    robot.connect()
    noise = np.random.default_rng(0).bytes(4000)
    start = time.monotonic()
    while robot.state().mode is RobotMode.RUNNING:
        arm.do(lambda: arm.line.garbage(noise))
        assert time.monotonic() - start < 3.0
    with pytest.raises(RobotError):
        robot.servo(robot.state().joint_position)


def test_a_single_lost_answer_is_no_fault(arm):
    robot = arm.make()
    robot.connect()
    arm.do(lambda: setattr(arm.bus, "corrupt_replies", 1))
    for _ in paced(100, 20):
        robot.keep_alive()
    assert robot.state().mode is RobotMode.RUNNING


def test_a_silent_owner_leaves_the_arm_held(arm):
    robot = arm.make(silence_s=0.05)
    robot.connect()
    wait_until(lambda: robot.state().mode is not RobotMode.RUNNING)
    with pytest.raises(RobotError, match="said nothing"):
        robot.keep_alive()


def test_dynamixels_hold_when_the_line_falls_silent(tmp_path):
    with BusArm("dynamixel", tmp_path) as arm:
        robot = arm.make(watchdog_s=0.1)
        assert robot.has_watchdog
        robot.connect()
        robot._cycle._leaving = True  # as if the process had died
        wait_until(lambda: any(e.kind == "watchdog" for e in arm.bus.log.events))
        robot.connect()
        assert robot.state().mode is RobotMode.RUNNING


def test_feetech_says_that_it_has_no_watchdog(tmp_path):
    with BusArm("feetech", tmp_path) as arm:
        assert not arm.make().has_watchdog


def test_closing_keeps_the_torque_and_releasing_asks(arm):
    robot = arm.make()
    robot.connect()
    arm.plant.joint_torques = lambda: np.full(6, 0.4)
    arm.whole_tick()
    with pytest.raises(RobotError, match=r"carries 40 %.*would drop"):
        robot.release_torque()
    assert robot.state().mode is RobotMode.RUNNING
    robot.release_torque(confirmed=True)
    assert sum(e.kind == "torque_off" for e in arm.bus.log.events) == 6
    wait_for_error(robot.keep_alive, RobotError, "no torque")
    robot.connect()
    robot.close()
    assert sum(e.kind == "torque_off" for e in arm.bus.log.events) == 6


def test_a_set_point_outside_the_calibrated_range_is_refused(arm):
    robot = arm.make()
    robot.connect()
    low, high = robot.limits()
    for bad in (low - 0.05, high + 0.05):
        with pytest.raises(DataError, match="outside the calibrated range"):
            robot.servo(bad)
    assert len(arm.bus.log.setpoints()[0]) == 1, "the goals of the connection"


def test_the_arm_does_not_move_when_it_is_connected(arm):
    # An old goal from before is in the servos' memory.
    for servo in arm.bus._servos.values():
        servo.put(arm.bus._table.goal_position, 1000)
    robot = arm.make()
    robot.connect()
    pass_time(0.1, "nothing may move")
    assert np.abs(arm.plant.joint_positions() - START).max() < 0.003


def test_the_gripper_moves_within_its_range(arm):
    robot = arm.make()
    robot.connect()
    robot.set_gripper(1.0)
    wait_until(lambda: robot.keep_alive() or robot.gripper_state()[1] >= 0.99)
    with pytest.raises(DataError, match="gripper goal"):
        robot.set_gripper(1.2)
    assert np.abs(arm.plant.joint_positions() - START)[:5].max() < 0.003


def changed(calibration, **changes):
    first = replace(calibration.servos[0], **changes)
    return replace(calibration, servos=(first, *calibration.servos[1:]))


@pytest.mark.parametrize("change", [{"homing_offset": 13}, {"low": 600}, {"high": 3000}])
def test_the_calibration_of_another_arm_is_refused(arm, change):
    save_calibration(changed(arm.calibration, **change), arm.config.calibration)
    with pytest.raises(ConfigError, match="calibration of another arm: servo 1"):
        arm.make().connect()
    assert not any(e.kind == "torque_on" for e in arm.bus.log.events)


def test_another_adapter_is_another_arm(arm, monkeypatch):
    save_calibration(replace(arm.calibration, serial="A1"), arm.config.calibration)
    monkeypatch.setattr(serial_bus, "port_serial", lambda _: "B2")
    with pytest.raises(ConfigError, match=r"another arm.*A1.*B2"):
        arm.make().connect()


def test_a_port_that_is_not_there_lists_those_that_are(arm):
    with pytest.raises(RobotConnectionError, match="no serial port /dev/nothing"):
        arm.make(port="/dev/nothing").connect()


def test_a_port_in_use_says_who_to_ask(arm):
    arm.make().connect()
    with pytest.raises(RobotConnectionError, match="in use by"):
        arm.make().connect()


def test_a_forbidden_port_names_the_remedy(arm, monkeypatch):
    import serial

    def refused(**_):
        raise serial.SerialException(errno.EACCES, "Permission denied")

    monkeypatch.setattr(serial, "Serial", refused)
    with pytest.raises(RobotConnectionError, match=r"usermod -aG dialout.*udev"):
        arm.make().connect()


def test_the_wrong_speed_is_silence(arm):
    with pytest.raises(RobotConnectionError, match="servo 1"):
        arm.make(baud=115200).connect()
    with pytest.raises(RobotConnectionError, match="no speed of 31250 baud"):
        arm.make(baud=31250).connect()


def test_a_missing_library_names_its_extra(arm, monkeypatch):
    monkeypatch.setitem(sys.modules, "scservo_sdk", None)
    monkeypatch.setitem(sys.modules, "dynamixel_sdk", None)
    with pytest.raises(MissingDependencyError, match=r"robolearn\[(feetech|dynamixel)\]"):
        arm.make().connect()


def test_values_that_make_no_sense_are_refused(arm):
    for bad in (
        {"torque_share": 0.0},
        {"rate_hz": 0.0},
        {"joints": ("a", "a")},
        {"silence_s": 0.0},
    ):
        with pytest.raises(ConfigError):
            replace(arm.config, **bad)


def test_calibrating_by_hand(arm, tmp_path):
    line = arm.config.line(list(arm.bus.ids))
    homing = ServoHoming(line, JOINTS)
    homing.center()
    arm.whole_tick()
    assert {v[1] for v in homing.watch().values()} == {2048}
    with pytest.raises(RobotError, match="only; move every joint"):
        homing.finish("mine")
    for away in (-0.5, 0.7):
        arm.do(lambda away=away: arm.plant.set_joints(START + away))
        arm.whole_tick()
        homing.watch()
    made = homing.finish("mine", "S1")
    save_calibration(made, tmp_path / "mine.yaml")
    assert load_calibration(tmp_path / "mine.yaml") == made
    require_same_arm(made, line, "S1")
    assert line.read_all(line.table.return_delay) == [0] * 6
    for servo, way in zip(made.servos, DIRECTIONS, strict=True):
        ends = sorted(2048 + way * np.array([-0.5, 0.7]) * 4096 / 2 / np.pi)
        assert abs(servo.low - ends[0]) <= 1
        assert abs(servo.high - ends[1]) <= 1
    line.write(1, line.table.torque_enable, 1)
    with pytest.raises(RobotError, match="holds torque"):
        ServoHoming(line, JOINTS)
    line.close()


def test_a_late_answer_to_another_request_is_not_taken_for_this_one(arm):
    line = arm.config.line(list(arm.bus.ids))
    receive, late = arm.bus.receive, [arm.bus.dialect.status(1, 0, bytes(range(6)))]

    def confused(data):
        answers = [*late, *receive(data)]
        late.clear()
        return answers

    arm.line._receive = confused
    with pytest.raises(LostPacketError, match="another length"):
        line.read_all(line.table.homing_offset)
    assert line.read_all(line.table.homing_offset) == list(OFFSETS)
    late.append(arm.bus.dialect.status(1, 0, bytes(range(6))))
    assert line.read(1, line.table.homing_offset) == OFFSETS[0], "asked again"
    line.close()


def test_a_stop_that_fails_does_not_keep_the_arm_from_others(arm, monkeypatch):
    robot, other = arm.make(), arm.make()
    robot.connect()

    def fails():
        raise OSError("the port went away")

    monkeypatch.setattr(robot, "stop", fails)
    with pytest.raises(OSError, match="went away"):
        robot.close()
    other.connect()
