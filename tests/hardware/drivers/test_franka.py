"""Franka: the robot contract over a fake module with the names of franky 2.0.0.

No claim about a device: what is tested is this driver's own logic.
"""

import enum
import sys
import time
import types
from dataclasses import dataclass, replace

import numpy as np
import pytest

from hardware.devices import claim as claim_module
from hardware.devices.robot import RobotMode, require_healthy
from hardware.drivers.franka import FrankaConfig
from robolearn.errors import (
    ClockError,
    ConfigError,
    DataError,
    MissingDependencyError,
    RobotConnectionError,
    RobotError,
    StaleSignalError,
)
from tests.robot_contract import RobotContract, wait_for_fault
from tests.waiting import wait_for_error, wait_until

START = [0.0, -0.7, 0.0, -2.2, 0.0, 1.6, 0.8]


class Mode(enum.Enum):
    Idle = 1
    Move = 2
    Reflex = 4
    UserStopped = 5


class RealtimeConfig(enum.Enum):
    Enforce = 0
    Ignore = 1


@dataclass
class Duration:
    s: float

    def to_sec(self):
        return self.s


class JointMotion:
    def __init__(self, target, *, return_when_finished=True):
        self.target = target
        assert not return_when_finished


class Device:
    """What the fake arm does, shared by all connections."""

    def __init__(self):
        self.q, self.mode, self.frozen, self.refuses = list(START), Mode.Idle, None, False
        self.stops, self.moves, self.ahead_s = 0, 0, 0.0


class Franky(types.ModuleType):
    JointMotion, RealtimeConfig = JointMotion, RealtimeConfig

    def __init__(self, device):
        super().__init__("franky")
        self.device = device

    def Robot(self, address, **options):  # noqa: N802
        assert set(options) == {
            "relative_dynamics_factor",
            "default_torque_threshold",
            "default_force_threshold",
            "realtime_config",
        }
        if self.device.refuses:
            raise RuntimeError(f"libfranka: connection to {address} refused")
        return Arm(self.device)


class Arm:
    def __init__(self, device):
        self._device = device

    @property
    def has_errors(self):
        return self._device.mode is Mode.Reflex

    @property
    def state(self):
        d = self._device
        t = (time.monotonic() if d.frozen is None else d.frozen) + d.ahead_s
        return types.SimpleNamespace(
            time=Duration(t),
            q=list(d.q),
            dq=[0.0] * 7,
            robot_mode=d.mode,
            current_errors="[joint_reflex]" if d.mode is Mode.Reflex else "[]",
            O_F_ext_hat_K=[3.0, 0.0, 4.0, 0.0, 0.0, 0.0],
        )

    def move(self, motion, *, asynchronous=False):
        assert asynchronous
        self._device.moves += 1
        self._device.q = list(motion.target)

    def stop(self):
        self._device.stops += 1


@pytest.fixture
def device(monkeypatch, tmp_path):
    made = Device()
    # An arm of this process alone: another worker's has the same address and is another arm.
    monkeypatch.setattr(claim_module, "PLACES", (tmp_path,))
    monkeypatch.setitem(sys.modules, "franky", Franky(made))
    return made


@pytest.fixture
def make():
    robots = []

    def build(**changes):
        robots.append(replace(FrankaConfig("10.0.0.2", silence_s=1.0), **changes).build())
        return robots[-1]

    yield build
    for robot in robots:
        robot.close()


class TestFranka(RobotContract):
    @pytest.fixture(autouse=True)
    def _fake(self, device, make):
        self.make, self.device = make, device

    def break_it(self, robot):
        self.device.mode = Mode.Reflex
        return "reports Reflex ([joint_reflex])"

    def mend(self, robot):
        self.device.mode = Mode.Idle


@pytest.mark.parametrize(
    ("mode", "ours"),
    [(Mode.Reflex, RobotMode.PROTECTIVE_STOP), (Mode.UserStopped, RobotMode.EMERGENCY_STOP)],
)
def test_a_stop_of_the_arm_is_latched_until_a_reconnect(device, make, mode, ours):
    robot = make()
    robot.connect()
    device.mode = mode
    wait_for_fault(robot)
    assert robot.state().mode is ours
    # The fault is known before the device was told.
    wait_until(lambda: device.stops >= 1, 2.0, what="a stop of the device")
    device.mode = Mode.Idle
    with pytest.raises(RobotError, match=f"reports {mode.name}"):
        robot.servo(np.array(START))
    robot.connect()
    assert robot.state().mode is RobotMode.RUNNING


@pytest.mark.parametrize(("seconds", "told"), [(-5.0, "went backwards"), (5.0, "jumped")])
def test_a_clock_that_was_set_is_latched_until_a_reconnect(device, make, seconds, told):
    robot = make()
    robot.connect()
    device.ahead_s = seconds
    wait_for_fault(robot)
    assert robot.state().mode is RobotMode.FAULT
    with pytest.raises(ClockError, match=told):
        robot.servo(np.array(START))
    robot.connect()
    assert device.stops >= 1
    assert robot.state().mode is RobotMode.RUNNING


def test_a_frozen_clock_is_stale_although_the_library_answers(device, make):
    robot = make()
    robot.connect()
    device.frozen = time.monotonic()
    wait_for_error(
        lambda: require_healthy(robot.state(), time.monotonic_ns(), 0.05),
        StaleSignalError,
        "device clock stands",
    )
    assert robot.state().tool_force_n == 5.0


def test_whatever_the_library_raises_is_one_typed_error(device, make, monkeypatch):
    def broken(*_, **__):
        raise ValueError("libfranka: motion aborted")

    robot = make()
    robot.connect()
    monkeypatch.setattr(Arm, "move", broken)
    robot.servo(np.array(START))
    wait_for_error(robot.keep_alive, RobotError, "motion aborted")
    assert robot.state().mode is RobotMode.FAULT


def test_problems_of_connecting_say_what_to_do(device, make, monkeypatch):
    device.mode = Mode.Reflex
    with pytest.raises(RobotConnectionError, match=r"joint_reflex.*clear it in Desk"):
        make().connect()
    device.refuses = True
    with pytest.raises(RobotConnectionError, match="Is the Franka Control Interface activated"):
        make().connect()
    monkeypatch.setitem(sys.modules, "franky", None)
    with pytest.raises(MissingDependencyError, match=r"robolearn\[franka\]"):
        make().connect()


def test_values_out_of_range_are_refused(device, make):
    robot = make()
    robot.connect()
    q = np.array(START)
    q[3] = 0.5
    with pytest.raises(DataError, match="joint 4"):
        robot.servo(q)
    assert device.moves == 0
    with pytest.raises(ConfigError, match="dynamics"):
        FrankaConfig("a", dynamics=0.0)
