"""A link that pauses in motion: what was sent into it moves nothing, and the path begins anew."""

import dataclasses

import numpy as np
import pytest

from hardware.drivers.fakes.robot import FakeFault
from hardware.supervisor.guided_move import GuidedMove
from hardware.supervisor.link import Cause, Mode
from robolearn.arms.models import UR5E
from tests.hardware.workcell import CONFIG, FOLLOWER, RATE_HZ, WORKCELL, Cell, joints_at

GOAL = (0.45, 0.3)


@pytest.fixture
def cell():
    made = Cell(start=(0.1, 0.3))
    yield made
    made.close()


def fast(cell):
    """In the middle of a drive across the table."""
    cell.follow()
    cell.drive([(0.2, 0.3), (0.3, 0.3), (0.4, 0.3), GOAL])


def pause(cell, seconds):
    """The link pauses for so long; commands of the agent go on every 20 ms."""
    cell.robot.fault = FakeFault.PAUSED
    left = seconds
    while left > 1e-9:
        cell.command(GOAL)
        cell.run(min(left, 0.02))
        left -= 0.02
    cell.robot.fault = FakeFault.NONE


def acceleration(cell, since_ns):
    """Of the tool, by what the device received from a time on, as it stood before [m/s^2]."""
    sent = [(t, q) for t, q in cell.robot.sent]
    first = next((i for i, (t, _) in enumerate(sent) if t >= since_ns), len(sent))
    stood = sent[first - 1][1]
    rows = np.array([WORKCELL.xy(UR5E, q) for q in (stood, stood, *(q for _, q in sent[first:]))])
    return np.linalg.norm(np.diff(rows, n=2, axis=0), axis=1).max() * RATE_HZ**2


@pytest.mark.parametrize("seconds", [0.022, 0.03, 0.06, 0.076, 0.094])
def test_after_a_pause_the_path_begins_where_the_arm_stands(cell, seconds):
    fast(cell)
    assert np.linalg.norm(np.diff([WORKCELL.xy(UR5E, q) for _, q in cell.robot.sent[-2:]], axis=0))
    pause(cell, seconds)
    at = cell.now_ns
    cell.command(GOAL)
    cell.run(0.002)
    stood = cell.xy
    cell.drive([GOAL] * 15)
    assert cell.robot.halts == 1
    assert cell.causes == [Cause.STATE_LATE]
    assert acceleration(cell, at) <= 1.02 * FOLLOWER.limits.max_tool_acceleration
    assert np.linalg.norm(stood - np.array(GOAL)) > 0.02, "it was still on its way"
    np.testing.assert_allclose(cell.xy, GOAL, atol=2e-3)


def test_the_path_begins_anew_when_the_halt_is_confirmed_not_sooner(cell):
    fast(cell)
    pause(cell, 0.03)
    at = cell.now_ns
    cell.robot.ready_ns = at + 40_000_000
    cell.drive([GOAL])
    assert min(t for t, _ in cell.robot.sent if t >= at) >= cell.robot.ready_ns
    assert acceleration(cell, at) <= 1.02 * FOLLOWER.limits.max_tool_acceleration


def test_without_the_halt_the_queue_would_arrive_as_a_jump(cell, monkeypatch):
    monkeypatch.setattr(type(cell.robot), "halt", None)
    fast(cell)
    pause(cell, 0.06)
    at = cell.now_ns
    cell.drive([GOAL])
    assert acceleration(cell, at) > 40.0


@pytest.mark.parametrize("seconds", [0.12, 0.2])
def test_a_long_pause_is_latched_and_what_was_sent_is_void(cell, seconds):
    fast(cell)
    stood = cell.xy
    pause(cell, seconds)
    cell.run(0.5)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause in (Cause.STATE_STALE, Cause.ROBOT_FAULT)
    np.testing.assert_allclose(cell.xy, stood, atol=1e-9)


def test_an_arm_that_stands_needs_no_halt(cell):
    cell.follow()
    cell.drive([(0.1, 0.3)] * 8)
    cell.robot.fault = FakeFault.PAUSED
    cell.run(0.06)
    cell.robot.fault = FakeFault.NONE
    cell.drive([GOAL] * 15)
    assert cell.robot.halts == 0
    np.testing.assert_allclose(cell.xy, GOAL, atol=2e-3)


def test_a_guided_move_goes_on_through_the_waypoints_that_are_left(cell):
    over, goal = joints_at((0.3, 0.3), 0.1), joints_at((0.4, 0.4), 0.1)
    cell.ask("goto", [over, goal])
    cell.run(0.6)
    pause(cell, 0.06)
    at = cell.now_ns
    cell.run(6.0)
    assert cell.robot.halts == 1
    assert cell.mode is Mode.HOLD
    assert cell.status.answered == cell.number
    assert not cell.status.refused
    np.testing.assert_allclose(cell.robot.state().joint_position, goal, atol=1e-6)
    passed = min(np.abs(q - over).max() for t, q in cell.robot.sent if t >= at)
    assert passed < 1e-6
    assert acceleration(cell, at) < FOLLOWER.limits.max_tool_acceleration


def test_a_stop_that_is_asked_for_in_a_pause_is_latched(cell):
    fast(cell)
    cell.robot.fault = FakeFault.PAUSED
    cell.run(0.03)
    cell.ask("estop")
    cell.run(0.03)
    assert cell.mode is Mode.STOPPING
    cell.robot.fault = FakeFault.NONE
    cell.run(0.05)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.ESTOP


def test_hold_in_a_pause_holds_where_the_arm_stands(cell):
    fast(cell)
    cell.robot.fault = FakeFault.PAUSED
    cell.run(0.03)
    cell.ask("hold")
    cell.run(0.03)
    cell.robot.fault = FakeFault.NONE
    cell.run(0.05)
    assert cell.mode is Mode.HOLD
    assert cell.status.answered == cell.number


def test_an_arm_that_never_comes_to_rest_is_stopped(cell):
    fast(cell)
    cell.robot.fault = FakeFault.PAUSED
    cell.run(0.03)
    cell.robot.fault = FakeFault.NONE
    cell.supervisor._pause._begun_ns -= 2_000_000_000
    cell.run(0.002)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.DRIVER_ERROR


@pytest.mark.parametrize("seed", range(6))
def test_randomised_pauses_never_send_an_arm_faster_than_its_limits(seed):
    rng = np.random.default_rng(seed)
    patient = dataclasses.replace(CONFIG, state_late_s=float(rng.uniform(0.01, 0.03)))
    cell = Cell(start=rng.uniform(0.05, 0.45, 2), config=patient)
    cell.follow()
    for _ in range(3):
        cell.drive([rng.uniform(0.05, 0.46, 2) for _ in range(rng.integers(1, 4))], 0.1)
        cell.robot.fault = FakeFault.PAUSED
        cell.run(rng.uniform(0.04, 0.2))
        cell.robot.fault = FakeFault.NONE
        at = cell.now_ns
        cell.drive([rng.uniform(0.05, 0.46, 2) for _ in range(2)], 0.1)
        if any(t >= at for t, _ in cell.robot.sent):
            assert acceleration(cell, at) <= 1.05 * FOLLOWER.limits.max_tool_acceleration
        if cell.mode is Mode.STOPPED:
            break
    cell.close()


def test_waypoints_ahead_of_a_guided_move_by_hand():
    points = [np.full(2, v) for v in (1.0, 2.0, 3.0)]
    move = GuidedMove(np.zeros(2), points, 1.0, 100.0)
    assert [p[0] for p in move.ahead] == [1.0, 2.0, 3.0]
    while move.at(move._time_s)[0] < 1.5:
        move.step(0.002, moving=True)
    assert [p[0] for p in move.ahead] == [2.0, 3.0]
    while not move.done:
        move.step(0.002, moving=True)
    assert [p[0] for p in move.ahead] == [3.0]


def test_a_guided_move_to_where_the_arm_stands_takes_no_time() -> None:
    move = GuidedMove(np.zeros(2), [np.zeros(2), np.ones(2)], 1.0, 100.0)
    move.slow_to(0.25, lambda a, b: float(np.abs(b - a).max()))
    assert move.duration_s >= 1.0 / 0.25
    still = GuidedMove(np.zeros(2), [np.zeros(2)], 1.0, 100.0)
    still.slow_to(0.25, lambda a, b: float(np.abs(b - a).max()))
    assert still.duration_s == 0.0
