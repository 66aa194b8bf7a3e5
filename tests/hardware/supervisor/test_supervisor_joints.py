"""Joint targets, distances, forces and following errors, on a virtual clock."""

import dataclasses
import math

import numpy as np
import pytest

from hardware.drivers.fakes.robot import FakeFault
from hardware.supervisor.checks import CollisionConfig, FollowingCheck, Obstacle, are_finite
from hardware.supervisor.joint_follower import JointFollowerConfig, JointSpace
from hardware.supervisor.link import Cause, Mode, Target, command_width
from robolearn.arms.joint_path import JointLimits
from robolearn.arms.models import UR5E
from robolearn.errors import ConfigError
from tests.hardware.workcell import RATE_HZ, Cell, changed, in_joint_space

READY = np.array([0.0, -1.9, 1.9, -1.6, -1.57, 0.0])
UR = in_joint_space("ur5e", table_height_m=0.0, tool_length_m=0.12)
PANDA_READY = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])


def moved(by):
    """The ready position with every joint moved by some angle."""
    return READY + np.array(by)


@pytest.fixture
def cell():
    made = Cell(recipe=UR, q=READY)
    yield made
    made.close()


def within(cell, recipe=UR):
    """What the device received kept position, speed and acceleration."""
    limits = recipe.space.limits
    q = np.array([q for _, q in cell.robot.sent])
    assert np.all(np.isfinite(q))
    assert np.all((q >= limits.low) & (q <= limits.high))
    assert np.all(cell.speeds() <= 1.001 * np.array(limits.speed))
    steps = np.abs(np.diff(q, n=2, axis=0)) * RATE_HZ**2
    assert np.all(steps <= 1.01 * np.array(limits.acceleration))


@pytest.mark.parametrize("width", [1, 2, 7])
def test_a_target_of_any_width_survives_its_row(width):
    rng = np.random.default_rng(width)
    target = Target(3, 12_345_678_901_234, rng.normal(size=width), rng.normal(size=(5, width)))
    row = target.pack()
    assert row.shape == (command_width(width),)
    again = Target.unpack(row)
    assert (again.seq, again.due_ns) == (3, 12_345_678_901_234)
    np.testing.assert_array_equal(again.value, target.value)
    np.testing.assert_array_equal(again.plan, target.plan)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], 0),
        ([[1.0, 2.0], [3.0, 4.0]], 2),
        ([[1.0, 2.0], [math.inf, 4.0], [math.nan, 4.0]], 3),
        ([[math.nan, math.nan], [-math.inf, 4.0]], 2),
        # Finite numbers whose sum is not.
        ([[1e308, 1e308], [1e308, 1e308]], 2),
        ([[math.inf, 4.0], [1.0, math.inf]], 2),
    ],
)
def test_a_plan_ends_where_its_row_is_infinite_throughout(rows, told):
    plan = np.array(rows).reshape(-1, 2)
    again = Target.unpack(Target(1, 2, np.zeros(2), plan).pack())
    assert len(again.plan) == told
    np.testing.assert_array_equal(again.plan, plan)


def test_numbers_are_finite_where_their_sum_is_not():
    assert are_finite(np.array([1e308, 1e308]))
    assert are_finite(np.zeros(0))
    for wrong in (math.nan, math.inf, -math.inf):
        assert not are_finite(np.array([1.0, wrong]))
    assert not are_finite(np.array([math.inf, -math.inf]))


def test_joint_targets_are_reached_within_the_limits(cell):
    cell.follow()
    goal = moved([0.3, 0.1, -0.2, 0.1, 0.2, -0.4])
    cell.drive([goal] * 15)
    np.testing.assert_allclose(cell.robot.state().joint_position, goal, atol=2e-3)
    assert cell.causes == []
    sent = cell.link.sent.since(0).value
    np.testing.assert_array_equal(sent[-1, 2:8], sent[-1, 8:])
    within(cell)


def test_other_arms_have_other_widths():
    recipe = in_joint_space("panda")
    cell = Cell(recipe=recipe, q=PANDA_READY)
    cell.follow()
    cell.drive([PANDA_READY + 0.1] * 10)
    np.testing.assert_allclose(cell.robot.state().joint_position, PANDA_READY + 0.1, atol=2e-3)
    within(cell, recipe)
    cell.close()


def test_a_late_agent_means_brake_at_the_highest_deceleration(cell):
    cell.follow()
    cell.drive([READY + 1.0] * 3)
    fast = cell.speeds()[-1].max()
    assert fast > 0.5
    cell.run(0.06)
    assert cell.causes == [Cause.AGENT_LATE]
    cell.run(fast / 8.0 + 0.02)
    assert cell.speeds()[-1].max() == 0.0
    within(cell)


def test_targets_beyond_the_limits_stop_at_them():
    narrow = dataclasses.replace(UR.space.limits, high=(*UR.space.limits.high[:5], 0.4))
    recipe = changed(UR, limits=narrow)
    cell = Cell(recipe=recipe, q=READY)
    cell.follow()
    cell.drive([moved([0.0, 0.0, 0.0, 0.0, 0.0, 0.55])] * 12)
    assert set(cell.causes) == {Cause.OUT_OF_RANGE}
    assert cell.robot.state().joint_position[5] == pytest.approx(0.4, abs=1e-3)
    within(cell, recipe)
    cell.close()


@pytest.mark.parametrize(
    ("goal", "between"),
    [
        (moved([0.0, 1.3, 0.0, 0.0, 0.0, 0.0]), "table"),
        (moved([0.0, 0.0, 0.9, 2.6, 0.0, 0.0]), ""),
    ],
)
def test_the_arm_brakes_before_it_meets_the_table_or_itself(cell, goal, between, caplog):
    cell.follow()
    cell.drive([goal] * 40)
    assert cell.mode is Mode.STOPPED
    assert cell.causes[-1] is Cause.COLLISION
    assert between in caplog.text
    event = cell.events[-1]
    assert event.limit == pytest.approx(0.02)
    model = UR.guard(RATE_HZ).model
    nearest = min(model.distance(q) for _, q in cell.robot.sent[-100:])
    assert 0.005 < nearest < 0.03
    within(cell)
    # The way out is open, the way in is not.
    cell.ask("clear")
    cell.run(0.01)
    cell.ask("goto", [goal])
    cell.run(0.01)
    assert cell.status.refused
    cell.ask("goto", [READY])
    cell.run(5.0)
    assert not cell.status.refused
    np.testing.assert_allclose(cell.robot.state().joint_position, READY, atol=1e-6)


def test_an_absurd_target_is_ignored_and_the_arm_holds(cell):
    cell.follow()
    cell.drive([moved([0.0, 0.0, 0.0, 0.0, 0.0, 0.3])] * 2)
    cell.drive([moved([0.0, 0.0, 0.0, 0.0, 0.0, 50.0])] * 4)
    assert Cause.FAR_OUTSIDE in cell.causes
    assert Cause.AGENT_LATE in cell.causes
    assert cell.speeds()[-1].max() == 0.0
    within(cell)


def test_obstacles_of_the_cell_are_kept_apart():
    goal = moved([-np.pi / 2, 0, 0, 0, 0, 0])
    x, y = UR5E.fk(goal)[:2, 3].tolist()
    post = Obstacle("post", (x, y, 0.0), (x, y, 1.0), 0.05)
    recipe = dataclasses.replace(UR, collision=CollisionConfig(margin_m=0.04, obstacles=(post,)))
    cell = Cell(recipe=recipe, q=READY)
    cell.ask("goto", [goal])
    cell.run(0.02)
    assert cell.causes == [Cause.UNREACHABLE]
    cell.follow()
    cell.drive([goal] * 20)
    assert cell.causes[-1] is Cause.COLLISION
    assert min(recipe.guard(RATE_HZ).model.distance(q) for _, q in cell.robot.sent[::10]) > 0.02
    cell.close()


def test_an_arm_that_does_not_follow_is_stopped(cell):
    cell.follow()
    cell.drive([READY + 0.2] * 4)
    cell.robot.push = np.array([0.0, 0.0, 0.3, 0.0, 0.0, 0.0])
    cell.command(READY + 0.2)
    cell.run(0.04)
    assert cell.mode is Mode.FOLLOW, "a moment is no error"
    cell.run(0.02)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.FOLLOWING_ERROR
    assert cell.events[-1].value == pytest.approx(0.3, abs=0.02)
    assert cell.robot.stops == 1
    cell.robot.push = None
    cell.ask("clear")
    cell.run(0.1)
    assert cell.mode is Mode.HOLD


def test_lag_is_no_following_error():
    check = FollowingCheck(1, 100.0, 0.5)
    check.reset(np.zeros(1))
    for k in range(100):
        check.sent(np.array([0.01 * k]))
    assert check.error(np.array([0.8])) == pytest.approx(0.0, abs=1e-12)
    assert check.error(np.array([0.3])) == pytest.approx(0.2)


@pytest.mark.parametrize(("name", "value"), [("tool_force_n", 130.0), ("load", 1.2)])
def test_force_and_load_stop_the_arm_after_a_moment(cell, name, value):
    cell.follow()
    cell.drive([READY + 0.1] * 2)
    setattr(cell.robot, name, value)
    cell.command(READY + 0.1)
    cell.run(0.01)
    setattr(cell.robot, name, 0.0)
    cell.run(0.03)
    assert cell.mode is Mode.FOLLOW
    setattr(cell.robot, name, value)
    cell.run(0.03)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.OVERLOAD
    assert cell.events[-1].value == value


def test_limits_outside_the_arms_own_are_refused():
    own = UR.space.limits
    for wrong in (
        dataclasses.replace(own, high=(9.0,) * 6),
        dataclasses.replace(own, speed=(9.0,) * 6),
        JointLimits((-1.0,), (1.0,), (1.0,), (1.0,)),
    ):
        with pytest.raises(ConfigError, match="ur5e"):
            JointFollowerConfig(JointSpace((0.0,) * len(wrong.low), wrong), "ur5e")
    with pytest.raises(ConfigError, match="no kinematics"):
        dataclasses.replace(UR, arm="ur17")


@pytest.mark.parametrize(
    "wrong",
    [{"margin_m": -0.1}, {"gate_m": 0.5}, {"period_s": 0.0}, {"margin_m": float("nan")}],
)
def test_a_guard_that_would_guard_nothing_is_refused(wrong):
    with pytest.raises(ConfigError, match="collision"):
        CollisionConfig(**wrong)


def test_an_arm_without_capsules_is_said_to_go_unchecked(caplog):
    unknown = dataclasses.replace(UR5E, name="ur5e_long")
    assert CollisionConfig().guard(unknown, 50.0) is None
    assert "ur5e_long" in caplog.text


def test_a_frozen_device_is_stale_not_astray(cell):
    cell.follow()
    cell.drive([READY + 0.3] * 2)
    cell.robot.fault = FakeFault.FROZEN
    cell.run(0.2)
    assert cell.status.cause is Cause.STATE_STALE


def test_a_tool_in_joint_space_keeps_its_speed_and_the_joints_their_jerk():
    limits = dataclasses.replace(UR.space.limits, jerk=(400.0,) * 6)
    recipe = changed(UR, limits=limits, max_tool_speed=0.3)
    cell = Cell(recipe=recipe, q=READY)
    cell.follow()
    rng = np.random.default_rng(5)
    cell.drive([READY + rng.uniform(-0.4, 0.4, 6) for _ in range(8)])
    cell.drive([moved([0.5, 0.1, -0.2, 0.1, 0.2, -0.4])] * 24)
    assert cell.causes == []
    goal = moved([0.5, 0.1, -0.2, 0.1, 0.2, -0.4])
    np.testing.assert_allclose(cell.robot.state().joint_position, goal, atol=2e-3)
    within(cell, recipe)
    q = np.array([q for _, q in cell.robot.sent])
    assert np.abs(np.diff(q, n=3, axis=0)).max() * RATE_HZ**3 <= 401.0
    tips = np.array([UR5E.fk(r)[:3, 3] + 0.12 * UR5E.fk(r)[:3, 2] for r in q])
    speeds = np.linalg.norm(np.diff(tips, axis=0), axis=1) * RATE_HZ
    assert 0.2 < speeds.max() <= 0.3
    cell.close()


def test_the_gate_of_a_tool_in_joint_space():
    follower = changed(UR, max_tool_speed=0.3).build(RATE_HZ)
    follower.start(READY)
    fast = READY + np.array([0.002, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert "tool speed" in follower.violation(fast, READY, 0.002)
    assert "acceleration" in follower.rough(fast)
    assert UR.build(RATE_HZ).violation(fast, READY, 0.002) == ""
    with pytest.raises(ConfigError, match="max_tool_speed"):
        changed(UR, max_tool_speed=0.0)
