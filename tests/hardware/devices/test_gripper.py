"""Grippers: one contract over the Robotiq socket and over a servo on the arm's bus; faults."""

import threading
import time

import pytest

from hardware.commissioning.check_gripper import check_gripper
from hardware.commissioning.connections import check_connections
from hardware.devices.gripper import Gripper, require_fresh
from hardware.devices.gripper_config import GripperCellConfig
from hardware.drivers.fakes.gripper import FakeGripper, FakeGripperConfig
from hardware.drivers.robotiq import RobotiqConfig
from hardware.drivers.serial_bus.gripper import ServoGripper, ServoGripperConfig
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.plant import FingerPlant
from hardware.emulators.robotiq import RobotiqEmulator
from robolearn.errors import (
    ConfigError,
    DataError,
    RobotConnectionError,
    RobotError,
    StaleSignalError,
)
from sim.plants.fingers import SceneFingers
from sim.plants.grip import GripPlant, GripPlantConfig
from sim.plants.scene import ScenePlant, ScenePlantConfig
from tests.hardware.buses import BusArm
from tests.hardware.lab import CONFIG
from tests.waiting import wait_for_error, wait_until

# What lies between the fingers in some tests [m].
OBJECT_M = 0.0408


def refusal(gripper: Gripper) -> str:
    """The error that a request is answered with, sooner or later."""
    return str(wait_for_error(lambda: gripper.move(0.05), RobotError))


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
            wait_until(lambda width=width: self.reached(gripper, width))
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


class TestFakeGripper(GripperContract):
    __test__ = True

    def make(self):
        return FakeGripperConfig(speed_m_s=1.0).build()


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
    """An emulated gripper and the thread that serves it; a plant's fingers, or none."""

    def __init__(self, plant=None, fingers=None):
        self.loop = EmulatorLoop(0.01)
        if plant is not None:
            self.loop.add_tick(lambda _, periods: plant.step(0.01 * min(periods, 10)))
        self.emulator = RobotiqEmulator(fingers)
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


class TestSimulatedGripper(GripperContract):
    """The emulated socket moving the fingers of a plant."""

    __test__ = True

    @pytest.fixture(autouse=True, params=["bullet", "mujoco"])
    def _served(self, request):
        plant = GripPlant(GripPlantConfig())
        fingers = plant
        if request.param == "mujoco":
            plant = ScenePlant(ScenePlantConfig("ur5e_table"))
            fingers = SceneFingers(plant)
        assert isinstance(fingers, FingerPlant)
        served = Served(plant, fingers)
        self.make = served.make
        yield
        served.close()
        plant.close()


def test_the_servo_of_an_arm_keeps_gripping_through_a_stop_of_the_arm(tmp_path):
    with BusArm("feetech", tmp_path) as arm:
        robot = arm.make()
        robot.connect()
        gripper = ServoGripperConfig(0.06).build(robot)
        gripper.connect()
        gripper.move(0.06)
        wait_until(lambda: robot.keep_alive() or gripper.state().width_m > 0.055)
        cycle = robot._cycle
        # Something is between the jaws: they are far from their goal and do not move.
        with cycle.lock:
            cycle._goals[-1] = cycle.servos[-1].low
        assert robot.stop()
        assert cycle._goals[-1] == cycle.servos[-1].low


def test_a_squeeze_is_kept_through_a_stop_and_a_motion_is_not(served):
    served.emulator.fingers.object_m = OBJECT_M
    gripper = served.make()
    gripper.connect()
    gripper.move(0.0)
    wait_until(lambda: gripper.state().holding)
    assert gripper.stop()
    assert served.emulator.values["POS"] == 228
    gripper.move(0.085, speed=0.01)
    wait_until(lambda: gripper.state().moving)
    assert gripper.stop()
    assert 3 < served.emulator.values["POS"] < 228


def test_nobody_activates_a_gripper_unasked(served):
    with pytest.raises(RobotError, match=r"not activated.*hardware check"):
        served.make(activate=False).connect()
    assert not served.emulator.activated
    # Whoever activated it: an active one is taken as it is.
    served.emulator.activated = True
    served.make(activate=False).connect()


def checked(gripper, **options):
    config = GripperCellConfig({"kind": "fake"}, 0.08)
    found = list(check_gripper(gripper, config, **options))
    return {c.name: c.status for c in found}


def test_a_good_gripper_passes_the_check_and_without_consent_it_stands(served):
    fake = FakeGripperConfig(speed_m_s=1.0).build()
    assert set(checked(fake, motion=False).values()) == {"OK"}
    assert fake.moves == []
    found = checked(served.make(), motion=True)
    assert set(found.values()) == {"OK"}
    assert "gripper goes to 40 mm" in found


def test_the_check_tells_what_is_wrong():
    class Stuck(FakeGripper):
        def stop(self):
            super().stop()
            return False

        def move(self, width_m, speed=1.0, force=1.0):
            if 0.0 < width_m <= 0.08:
                super().move(width_m, speed, force)

    stuck = Stuck(FakeGripperConfig(speed_m_s=1.0))
    found = checked(stuck, motion=True)
    assert found["gripper refuses bad requests"] == "FAIL"
    assert found["gripper stops"] == "FAIL"
    assert checked(RobotiqConfig("127.0.0.1", 1).build(), motion=True) == {
        "gripper connects": "FAIL"
    }


def test_it_says_when_it_holds_something(served):
    served.emulator.fingers.object_m = OBJECT_M
    gripper = served.make()
    gripper.connect()
    gripper.move(0.0, force=0.3)
    wait_until(lambda: gripper.state().holding)
    assert gripper.state().width_m == pytest.approx(OBJECT_M, abs=1e-3)
    assert served.emulator.values["FOR"] == round(0.3 * 255)


FAULTS = {
    "hang": (lambda e: e.fault("mute", 0), "no answer"),
    "fault of the gripper": (lambda e: e.fault("fault", 12), "fault 12"),
    "garbage": (lambda e: e.fault("garbage", 1000), "POS 12x"),
    "deactivated": (lambda e: e.fault("deactivate", 0), "not activated any more"),
    "link dropped": (lambda e: e.fault("drop_links", 0), "gripper at"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_one_typed_error_until_a_reconnect(served, fault):
    cause, words = FAULTS[fault]
    gripper = served.make()
    gripper.connect()
    cause(served.emulator)
    assert words in refusal(gripper)
    for heals in ("listen", "garbage", "fault"):
        served.emulator.fault(heals, 0)
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


def test_doctor_lists_the_gripper_of_a_cell_without_asking_it(tmp_path):
    found = {c.name: c for c in check_connections(CONFIG.with_name("lab_ur5e_gripper.yaml"))}
    # Its lab is not running: the socket that the URCap opens is not there.
    assert (found["gripper"].status, found["ur port 30004"].status) == ("WARN", "WARN")
    assert "nobody answers at 127.0.0.1:63352" in found["gripper"].found
    assert "robotiq, 127.0.0.1, 0 to 85 mm" in found["gripper"].found
    wrong = tmp_path / "cell.yaml"
    text = CONFIG.with_name("lab_ur5e_gripper.yaml").read_text()
    wrong.write_text(text.replace("kind: robotiq", "kind: robotic"))
    (only,) = check_connections(wrong)
    assert (only.status, "'robotic'" in only.found) == ("FAIL", True)
