"""A hand guides the arm under the supervisor: on a virtual clock, and through the real ur_rtde."""

import dataclasses

import numpy as np
import pytest

from hardware.devices.robot import RobotMode
from hardware.drivers.fakes.robot import FakeFault, FakeRobot
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import Cause, Mode
from robolearn.arms.models import UR5E
from tests.hardware.lab import HOME
from tests.hardware.real_cell import cell_at, prompt_lab
from tests.hardware.supervisor.test_supervisor_gripper import gripper
from tests.hardware.workcell import (
    CONFIG,
    FOLLOWER,
    RATE_HZ,
    WORKCELL,
    Cell,
    in_joint_space,
    joints_at,
)
from tests.waiting import wait_until

JOINTS = in_joint_space("ur5e")
ASIDE = np.array([0.4, 0.0, 0.0, 0.0, 0.0, 0.0])


@pytest.fixture
def cell():
    made = Cell(recipe=JOINTS, q=HOME)
    yield made
    made.close()


def guide(cell, qd, seconds):
    """A hand that moves every joint at ``qd`` as long as it can."""
    for _ in range(round(seconds * RATE_HZ)):
        cell.robot.guide(np.array(qd, float), 1.0 / RATE_HZ)
        cell.run(1.0 / RATE_HZ)
    cell.robot.guide(np.zeros(6), 0.0)


def freedrive(cell):
    cell.ask("freedrive")
    cell.run(0.004)
    assert cell.mode is Mode.FREEDRIVE
    assert not cell.status.refused


def measured(cell):
    return cell.robot.state().joint_position


def test_a_hand_moves_the_arm_and_the_supervisor_takes_it_over_where_it_is(cell):
    freedrive(cell)
    sent, start = len(cell.robot.sent), measured(cell)
    guide(cell, ASIDE, 0.25)
    np.testing.assert_allclose(measured(cell), start + 0.25 * ASIDE, atol=1e-9)
    assert len(cell.robot.sent) == sent, "no set-point while a hand guides the arm"
    assert cell.link.states.count > 100, "the state is recorded on"
    assert cell.robot.state().mode is RobotMode.RUNNING, "the device's watchdog is fed"
    cell.ask("hold")
    cell.run(0.05)
    assert cell.mode is Mode.HOLD
    assert cell.causes == [Cause.FREEDRIVE, Cause.FREEDRIVE_ENDED]
    assert not cell.robot.free
    after = np.array([q for _, q in cell.robot.sent[sent:]])
    assert len(after) > 10
    np.testing.assert_allclose(after, np.tile(measured(cell), (len(after), 1)), atol=1e-12)
    cell.ask("goto", [start])
    cell.run(0.8)
    np.testing.assert_allclose(measured(cell), start, atol=1e-6)


def test_a_stiff_arm_is_not_moved_by_the_hand_and_other_requests_wait(cell):
    start = measured(cell)
    guide(cell, ASIDE, 0.1)
    np.testing.assert_array_equal(measured(cell), start)
    freedrive(cell)
    for kind in ("follow", "goto", "freedrive"):
        cell.ask(kind, [start])
        cell.run(0.004)
        assert cell.status.refused
    assert cell.mode is Mode.FREEDRIVE


def at_wrist(angle):
    q = np.array(HOME)
    q[5] = JOINTS.space.limits.high[5] + angle
    return Cell(recipe=JOINTS, q=q)


def test_a_limit_ends_freedrive_before_it_is_reached():
    cell = at_wrist(-0.2)
    freedrive(cell)
    guide(cell, [0, 0, 0, 0, 0, 0.8], 0.3)
    assert cell.mode is Mode.HOLD
    assert cell.causes == [Cause.FREEDRIVE, Cause.HAND_LIMIT]
    assert np.all(measured(cell) <= np.array(JOINTS.space.limits.high))
    cell.ask("goto", [measured(cell) - 0.1 * np.eye(6)[5]])
    cell.run(0.004)
    assert cell.mode is Mode.GOTO, "still inside: the supervisor can move it away"
    cell.close()


def test_the_workspace_of_the_table_ends_freedrive():
    cell = Cell()
    freedrive(cell)
    down = np.linalg.pinv(UR5E.jacobian(measured(cell))) @ np.array([0, 0, -0.05, 0, 0, 0])
    guide(cell, down, 1.0)
    assert cell.causes == [Cause.FREEDRIVE, Cause.HAND_LIMIT]
    tip = WORKCELL.tip(UR5E, measured(cell))[2, 3]
    assert tip > WORKCELL.tip_height_m - FOLLOWER.min_clearance_m
    cell.close()


def test_itself_ends_freedrive(cell):
    freedrive(cell)
    guide(cell, [0, 0, 0.8, 0, 0, 0], 0.6)
    assert cell.causes == [Cause.FREEDRIVE, Cause.HAND_LIMIT]
    assert JOINTS.guard(RATE_HZ).model.distance(measured(cell)) > 0.0


@pytest.mark.parametrize("qd", [[0, 0, 0, 0, 0, 1.3], [0.9, 0, 0, 0, 0, 0]])
def test_a_hand_that_is_too_fast_ends_freedrive(qd):
    cell = Cell(config=dataclasses.replace(CONFIG, guide_tool_speed=0.2), recipe=JOINTS, q=HOME)
    freedrive(cell)
    guide(cell, qd, 0.06)
    assert cell.mode is Mode.HOLD
    assert cell.causes == [Cause.FREEDRIVE, Cause.HAND_LIMIT]
    cell.close()


def test_an_arm_that_stands_outside_may_be_guided_back():
    cell = at_wrist(0.04)
    freedrive(cell)
    guide(cell, [0, 0, 0, 0, 0, -0.4], 0.1)
    assert cell.mode is Mode.FREEDRIVE
    guide(cell, [0, 0, 0, 0, 0, 0.4], 0.2)
    assert cell.mode is Mode.HOLD, "and no further out"
    cell.close()


def test_an_agent_that_is_silent_loses_the_arm_and_a_frozen_one_stops_it(cell):
    freedrive(cell)
    cell.beating = False
    guide(cell, ASIDE, 0.2)
    assert cell.mode is Mode.HOLD
    assert cell.causes == [Cause.FREEDRIVE, Cause.AGENT_SILENT, Cause.FREEDRIVE_ENDED]
    cell.beating = True
    cell.run(0.01)
    freedrive(cell)
    cell.supervisor._hand._ended_ns = cell.now_ns + 10**12  # a device that never comes to rest
    cell.beating = False
    guide(cell, ASIDE, 0.6)
    assert cell.status.cause is Cause.AGENT_FROZEN


@pytest.mark.parametrize("what", ["estop", "agent", "fault", "state"])
def test_stops_make_the_arm_stiff_at_once(cell, what):
    freedrive(cell)
    guide(cell, ASIDE, 0.1)
    if what == "estop":
        cell.ask("estop")
    elif what == "agent":
        cell.inbox.closed = Cause.AGENT_DEAD
    else:
        fault = {"fault": FakeFault.PROTECTIVE_STOP, "state": FakeFault.FROZEN}[what]
        cell.robot.fault = fault
    guide(cell, ASIDE, 0.15)
    assert cell.mode is Mode.STOPPED
    assert not cell.robot.free
    assert cell.robot.stops == 1


def test_a_device_that_refuses_is_a_stop_and_one_without_freedrive_a_refusal(cell, monkeypatch):
    monkeypatch.setattr(FakeRobot, "freedrive", None)
    cell.ask("freedrive")
    cell.run(0.004)
    assert cell.status.refused
    assert cell.mode is Mode.HOLD
    monkeypatch.undo()
    freedrive(cell)
    cell.robot.fault = FakeFault.REFUSES
    cell.ask("hold")
    cell.run(0.004)
    assert cell.status.cause is Cause.DRIVER_ERROR


def test_the_gripper_follows_commands_while_a_hand_guides_the_arm():
    hand = Cell(gripper=gripper())
    hand.run(0.02)
    hand.command((0.1, 0.1), width=0.05)
    freedrive(hand)
    hand.run(0.1)
    assert hand.grip.moves == [], "of before"
    sent, start = len(hand.robot.sent), measured(hand)
    here = FOLLOWER.build(RATE_HZ).action(start)
    for width in (0.03, np.nan, 0.9):
        hand.command(here, width=width)
        hand.run(0.1)
    # Too late to be meant.
    hand.command(here, width=0.06, due_ns=hand.now_ns - 10**9)
    hand.run(0.1)
    assert hand.grip.moves == [0.03]
    # The arm's part is followed by nobody.
    hand.command(here + 0.02, width=0.04)
    hand.run(0.2)
    assert hand.grip.moves == [0.03, 0.04]
    np.testing.assert_array_equal(measured(hand), start)
    assert len(hand.robot.sent) == sent
    assert hand.mode is Mode.FREEDRIVE
    hand.ask("hold")
    hand.run(0.05)
    hand.command(here, width=0.08)
    hand.run(0.1)
    assert hand.grip.moves == [0.03, 0.04]
    hand.close()


def test_causes_of_freedrive_do_not_latch():
    assert not any(c.latches for c in (Cause.FREEDRIVE, Cause.FREEDRIVE_ENDED, Cause.HAND_LIMIT))


def test_a_hand_guides_the_emulated_ur_through_the_unmodified_client(tmp_path):
    with prompt_lab(tmp_path, 32, 30132) as lab, lab.where.connect() as door:
        cell = cell_at(lab.where.address)
        client = SupervisorClient(cell.robot_builder(), FOLLOWER, cell.supervisor)
        client.request("goto", [joints_at((0.256, 0.3), 0.1)])
        first = client.counts()[0]
        client.request("freedrive")
        place = UR5E.fk(joints_at((0.3, 0.2), 0.1))[:3, 3]
        door.call("hand", to=place.tolist(), force=40.0)

        def off():
            return np.linalg.norm(UR5E.fk(client.state().joint_position)[:3, 3] - place)

        wait_until(lambda: off() < 0.003, 10.0)
        client.request("hold")
        door.call("hand")
        assert client.status().mode is Mode.HOLD
        assert [e.cause for e in client.events()] == [Cause.FREEDRIVE, Cause.FREEDRIVE_ENDED]
        path = client.states(first).value
        assert len(path) > 100, "the demonstration that the hand gave"
        client.request("goto", [joints_at((0.256, 0.3), 0.1)])
        client.close()
