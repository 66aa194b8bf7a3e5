"""Grippers: one contract over the Robotiq socket and over a servo on the arm's bus; faults."""

import threading
import time

import pytest

from hardware.drivers.robotiq import RobotiqConfig
from hardware.drivers.serial_bus_gripper import ServoGripper
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.robotiq import RobotiqEmulator
from hardware.gripper import Gripper, require_fresh
from robolearn.errors import (
    ConfigError,
    DataError,
    RobotConnectionError,
    RobotError,
    StaleSignalError,
)
from tests.hardware.buses import BusArm


def until(condition, timeout_s=3.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


class GripperContract:
    """Every gripper. Subclasses provide :meth:`make`, not connected yet, and :meth:`alive`."""

    __test__ = False

    def make(self) -> Gripper:
        raise AssertionError("a subclass makes the gripper")

    def alive(self) -> None:
        """What the owner does in every tick."""

    def reached(self, gripper, width):
        self.alive()
        return abs(gripper.state().width_m - width) < 0.002 and not gripper.state().moving

    def test_it_goes_to_widths_and_stays_after_a_stop(self):
        gripper = self.make()
        assert isinstance(gripper, Gripper)
        gripper.connect()
        for width in (gripper.stroke_m, 0.4 * gripper.stroke_m):
            gripper.move(width)
            until(lambda width=width: self.reached(gripper, width))
            assert not gripper.state().holding
        assert gripper.stop()
        require_fresh(gripper.state(), time.monotonic_ns(), 1.0)
        with pytest.raises(StaleSignalError, match="no answer for"):
            require_fresh(gripper.state(), time.monotonic_ns() + 2_000_000_000, 1.0)

    def test_what_it_cannot_do_is_refused(self):
        gripper = self.make()
        gripper.connect()
        wrong = ({"width_m": -0.001}, {"width_m": 2 * gripper.stroke_m}, {"width_m": float("nan")})
        for bad in (*wrong, {"width_m": 0.0, "speed": 0.0}, {"width_m": 0.0, "force": 2.0}):
            with pytest.raises(DataError, match="gripper: expected a width"):
                gripper.move(**bad)

    def test_nothing_works_before_connect_and_closing_twice_does(self):
        gripper = self.make()
        with pytest.raises(RobotConnectionError):
            gripper.state()
        gripper.close()
        gripper.close()


class TestServoGripper(GripperContract):
    __test__ = True

    @pytest.fixture(autouse=True, params=[True, False])
    def _arm(self, request, tmp_path):
        with BusArm("feetech", tmp_path) as self.arm:
            self.robot = self.arm.make()
            self.closed_at_low = request.param
            yield

    def make(self):
        arm, robot = self.arm, self.robot

        class Connects(ServoGripper):
            def connect(self):
                robot.connect()
                super().connect()

        assert arm.config.gripper
        return Connects(robot, 0.06, closed_at_low=self.closed_at_low)

    def alive(self):
        self.robot.keep_alive()


class Served:
    """An emulated gripper and the thread that serves it."""

    def __init__(self):
        self.emulator, self.loop = RobotiqEmulator(), EmulatorLoop(0.005)
        self.port = self.emulator.serve(self.loop, "127.0.0.1", 0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=lambda: self.loop.run(self._stopped.is_set), daemon=True
        )
        self._thread.start()
        self.grippers = []

    def make(self, **changes):
        changes = {"activate": True, **changes}
        config = RobotiqConfig("127.0.0.1", self.port, answer_s=0.2, rate_hz=50.0, **changes)
        self.grippers.append(config.build())
        return self.grippers[-1]

    def close(self):
        for gripper in self.grippers:
            gripper.close()
        self._stopped.set()
        self._thread.join(5.0)
        self.loop.close()


@pytest.fixture
def served():
    made = Served()
    yield made
    made.close()


class TestRobotiq(GripperContract):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _served(self, served):
        self.make = served.make


def test_it_says_when_it_holds_something(served):
    served.emulator.object_at = 120.0
    gripper = served.make()
    gripper.connect()
    gripper.move(0.0, force=0.3)
    until(lambda: gripper.state().holding)
    assert gripper.state().width_m == pytest.approx(0.085 * (228 - 120) / 225, abs=1e-3)
    assert served.emulator.values["FOR"] == round(0.3 * 255)


FAULTS = {
    "hang": (lambda e: setattr(e, "mute", True), "no answer"),
    "fault of the gripper": (lambda e: setattr(e, "fault", 12), "fault 12"),
    "garbage": (lambda e: setattr(e, "garbage_replies", 1000), "POS 12x"),
    "link dropped": (lambda e: e.drop_links(), "gripper at"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_one_typed_error_until_a_reconnect(served, fault):
    cause, words = FAULTS[fault]
    gripper = served.make()
    gripper.connect()
    cause(served.emulator)
    error = ""

    def told():
        nonlocal error
        try:
            gripper.move(0.05)
        except RobotError as raised:
            error = str(raised)
        return error

    until(told)
    assert words in error
    served.emulator.mute, served.emulator.fault, served.emulator.garbage_replies = False, 0, 0
    with pytest.raises(RobotError):
        gripper.move(0.05)
    gripper.stop()
    gripper.connect()
    gripper.move(0.05)


def test_a_gripper_that_does_not_become_ready_is_refused(served, monkeypatch):
    monkeypatch.setattr("hardware.drivers.robotiq.ACTIVATE_S", 0.1)
    monkeypatch.setattr(RobotiqEmulator, "answer", refuse_to_activate)
    with pytest.raises(RobotError, match="does not become ready"):
        served.make().connect()


def refuse_to_activate(_self, line):
    return "STA 1" if line == "GET STA" else "FLT 0" if line == "GET FLT" else "ack"


def test_nobody_there_and_values_that_make_no_sense():
    with pytest.raises(RobotConnectionError, match="URCap is installed"):
        RobotiqConfig("127.0.0.1", 1).build().connect()
    with pytest.raises(ConfigError, match="open_counts"):
        RobotiqConfig("127.0.0.1", open_counts=200, closed_counts=100)
