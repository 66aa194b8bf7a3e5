"""A supervised gripper on a virtual clock: limits, stops, faults, and who waits for whom."""

import threading
import time

import numpy as np
import pytest

from hardware.devices.gripper_config import GripperCellConfig
from hardware.drivers.fakes.gripper import FakeGripper, FakeGripperConfig, FakeGripperFault
from hardware.supervisor.gripper_keeper import GripperKeeper
from hardware.supervisor.link import GRIP_WIDTH, Cause, Mode, Target
from hardware.supervisor.shared_memory import Ring
from robolearn.errors import ConfigError, RobotConnectionError
from tests.hardware.workcell import Cell
from tests.waiting import wait_until

GRIPPER = {
    "driver": {"kind": "fake", "speed_m_s": 0.6},
    "high_m": 0.08,
    "low_m": 0.01,
    "max_age_s": 0.2,
}
XY = (0.256, 0.3)


def gripper(object_m=0.0, **changes):
    driver = {**GRIPPER["driver"], "object_m": object_m}
    return GripperCellConfig(**{**GRIPPER, "driver": driver, **changes})


@pytest.fixture
def make():
    made = []

    def build(object_m=0.0, **changes):
        made.append(Cell(XY, gripper=gripper(object_m, **changes)))
        made[-1].follow()
        return made[-1]

    yield build
    for cell in made:
        cell.close()


def drive(cell, widths, period=0.05):
    for width in widths:
        cell.command(XY, width=width)
        cell.run(period)


def test_the_fingers_follow_and_the_recording_tells(make):
    cell = make()
    drive(cell, [0.08, 0.05, 0.05, 0.05])
    assert cell.grip.state().width_m == pytest.approx(0.05)
    # The same width again is no new order.
    assert cell.grip.moves == [0.05]
    rows = cell.link.grips.since(0)
    assert np.all(np.diff(rows.t_ns) > 0)
    assert rows.value[-1].tolist() == pytest.approx([0.05, 0.0, 0.0])
    # What is in force stands behind every set-point of the arm.
    sent = cell.link.sent.since(0).value[:, -1]
    assert sent[0] == pytest.approx(0.08)
    assert sent[-1] == pytest.approx(0.05)
    assert cell.causes == []


@pytest.mark.parametrize(
    ("width", "due_s", "cause", "reached"),
    [
        (np.nan, 0.0, Cause.NOT_FINITE, None),
        (np.inf, 0.0, Cause.NOT_FINITE, None),
        (0.02, -1.0, Cause.STALE_COMMAND, None),
        (0.02, 2.0, Cause.STALE_COMMAND, None),
        (-0.1, 0.0, Cause.FAR_OUTSIDE, None),
        (0.5, 0.0, Cause.FAR_OUTSIDE, None),
        (0.005, 0.0, Cause.OUT_OF_RANGE, 0.01),
    ],
)
def test_bad_widths_meet_the_rules_of_the_arm(make, width, due_s, cause, reached):
    cell = make()
    drive(cell, [0.06, 0.06])
    cell.command(XY, width=width, due_ns=cell.now_ns + round(due_s * 1e9))
    cell.run(0.04)
    assert cell.causes == [cause]
    assert cell.mode is Mode.FOLLOW
    drive(cell, [] if reached is None else [reached] * 3)
    assert cell.grip.moves == ([0.06] if reached is None else [0.06, reached])


def test_a_stop_keeps_what_is_held_and_stops_fingers_that_move(make):
    holding = make(object_m=0.04)
    drive(holding, [0.01] * 4)
    assert holding.grip.state().holding
    holding.ask("estop")
    holding.run(0.3)
    assert holding.mode is Mode.STOPPED
    assert holding.grip.stops == 1
    assert holding.grip.state().holding, "a stop must not let go"
    moving = make()
    drive(moving, [0.01])
    width = moving.grip.state().width_m
    assert 0.04 < width < 0.08
    moving.ask("estop")
    moving.run(0.3)
    assert moving.grip.state().width_m == pytest.approx(width, abs=0.004)
    moving.ask("clear")
    moving.run(0.1)
    assert moving.mode is Mode.HOLD
    assert moving.grip.state().width_m == pytest.approx(width, abs=0.004)


def test_a_late_agent_does_not_open_the_gripper(make):
    cell = make(object_m=0.04)
    drive(cell, [0.01] * 4)
    cell.run(0.3)
    assert cell.causes == [Cause.AGENT_LATE]
    assert cell.grip.state().holding


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (FakeGripperFault.REFUSES, Cause.GRIPPER_FAULT),
        (FakeGripperFault.SILENT, Cause.GRIPPER_STALE),
    ],
)
def test_a_fault_brakes_the_arm_and_latches_until_the_operator_clears(make, fault, cause):
    cell = make()
    drive(cell, [0.05] * 2)
    cell.grip.fault = fault
    for _ in range(10):
        cell.command((0.4, 0.3), width=0.05)
        cell.run(0.04)
    assert cell.mode is Mode.STOPPED
    assert cell.supervisor.cause is cause
    cell.assert_within_limits()
    cell.ask("clear")
    cell.run(0.01)
    refused = fault is FakeGripperFault.REFUSES
    assert (cell.mode is Mode.STOPPED) is refused
    cell.grip.fault = FakeGripperFault.NONE
    cell.ask("clear")
    cell.run(0.1)
    assert cell.mode is Mode.HOLD
    cell.follow()
    drive(cell, [0.03] * 3)
    assert cell.grip.state().width_m == pytest.approx(0.03)


@pytest.mark.parametrize("stop", [False, True])
def test_a_lost_object_is_told_and_stops_where_the_cell_says_so(make, stop):
    cell = make(object_m=0.04, stop_on_lost=stop)
    drive(cell, [0.01] * 4)
    cell.grip.fault = FakeGripperFault.OBJECT_GONE
    drive(cell, [0.01] * 4)
    assert cell.causes == [Cause.OBJECT_LOST]
    assert cell.mode is (Mode.STOPPED if stop else Mode.FOLLOW)
    assert cell.events[0].limit == pytest.approx(0.04, abs=1e-6)


def test_letting_go_on_command_is_no_loss(make):
    cell = make(object_m=0.04)
    drive(cell, [0.01] * 4 + [0.08] * 4 + [0.01])
    assert cell.causes == []


def test_between_episodes_a_width_is_asked_for_and_waited_for(make):
    cell = make()
    cell.ask("hold")
    cell.run(0.05)
    cell.ask("grip", [[0.03]])
    cell.run(0.02)
    assert cell.status.answered < cell.number
    cell.run(0.2)
    assert cell.status.answered == cell.number
    assert not cell.status.refused
    for bad in ([[0.5]], [[]], [[0.02, 0.03]]):
        cell.ask("grip", bad)
        cell.run(0.01)
        assert cell.status.refused


def test_a_target_with_a_width_crosses_the_ring_unchanged():
    plan = np.arange(6.0).reshape(3, 2)
    target = Target(7, 12_345_678_901, np.array([1.0, 2.0]), plan, np.array([0.04]))
    back = Target.unpack(target.pack())
    assert (back.seq, back.due_ns) == (7, 12_345_678_901)
    np.testing.assert_array_equal(back.plan, plan)
    np.testing.assert_array_equal(back.value, target.value)
    np.testing.assert_array_equal(back.gripper, [0.04])
    assert len(Target.unpack(Target(1, 2, np.zeros(6), np.zeros((0, 6))).pack()).gripper) == 0


class Slow(FakeGripper):
    """Every request waits until the test lets it go on."""

    def __init__(self, config):
        super().__init__(config)
        self.gate, self.entered = threading.Event(), threading.Event()

    def move(self, width_m, speed=1.0, force=1.0):
        self.entered.set()
        assert self.gate.wait(10.0)
        super().move(width_m, speed, force)


def test_nobody_waits_for_a_slow_gripper_and_the_newest_command_wins():
    ring = Ring.create(64, GRIP_WIDTH)
    slow = Slow(FakeGripperConfig())
    keeper = GripperKeeper(slow, gripper(), ring)
    keeper.connect(mounted=False)
    keeper.start()
    try:
        keeper.aim(np.array([0.05]))
        assert slow.entered.wait(5.0)
        # The call hangs; a tick's part returns all the same, and only the last of these is sent.
        for width in (0.04, 0.03, 0.02):
            assert keeper.aim(np.array([width]))
            assert keeper.goals == (width,)
            assert keeper.trouble(time.monotonic_ns()) is None
        slow.gate.set()
        wait_until(lambda: len(slow.moves) == 2)
        assert slow.moves == [0.05, 0.02]
    finally:
        keeper.close()
        ring.unlink()
        ring.close()


def test_a_driver_that_hangs_for_good_is_told(monkeypatch):
    monkeypatch.setattr("hardware.supervisor.gripper_keeper._JOIN_S", 0.05)
    ring = Ring.create(64, GRIP_WIDTH)
    slow = Slow(FakeGripperConfig())
    keeper = GripperKeeper(slow, gripper(max_age_s=0.05), ring)
    keeper.connect(mounted=False)
    keeper.start()
    try:
        keeper.aim(np.array([0.05]))
        assert slow.entered.wait(5.0)
        trouble = wait_until(lambda: keeper.trouble(time.monotonic_ns()))
        assert trouble.cause is Cause.GRIPPER_STALE
        with pytest.raises(RobotConnectionError, match="hangs in a call"):
            keeper.recover(mounted=False)
    finally:
        slow.gate.set()
        keeper.close()
        ring.unlink()
        ring.close()


def test_a_config_says_what_is_wrong():
    for wrong, told in (
        ({"low_m": 0.09}, "low_m < high_m"),
        ({"force": 0.0}, "shares in"),
        ({"max_age_s": float("nan")}, "max_age_s"),
        ({"start_m": 0.2}, "start_m"),
    ):
        with pytest.raises(ConfigError, match=told):
            gripper(**wrong)
    with pytest.raises(ConfigError, match="Did you mean 'robotiq'"):
        GripperCellConfig({"kind": "robotic"}, 0.08).driver_config()
    with pytest.raises(ConfigError, match="at most; lower high_m"):
        GripperCellConfig({"kind": "fake", "stroke_m": 0.05}, 0.08).build()
    with pytest.raises(ConfigError, match="needs an arm of serial servos"):
        GripperCellConfig({"kind": "servo", "stroke_m": 0.05}, 0.05).build()
