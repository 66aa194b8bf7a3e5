"""A tool that is commanded by its pose, on a virtual clock: what reaches the arm, and what not.

The way from pose to joints is tested at ``tests/robolearn/arms/test_tool_drive.py``.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from hardware.supervisor import tool_follower
from hardware.supervisor.link import Cause, Mode, Target
from hardware.supervisor.tool_follower import ToolFollowerConfig, ToolFrame, ToolSpace
from robolearn.arms.models import UR5E
from robolearn.arms.tool_commands import values_from_pose
from robolearn.arms.tool_drive import ToolDrive
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.errors import ConfigError
from robolearn.geometry import pose, pose_error, rot_y, rot_z, rotvec_from_rotation
from tests.hardware.workcell import RATE_HZ, Cell

HOME = np.array([2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407])
LIMITS = ToolPathLimits((-0.25, -0.4, 0.005), (0.25, 0.4, 0.5))
SPACE = ToolSpace(
    ToolFrame((0.5, 0.0, 0.0)), (0.0, 0.0, 0.145), tuple(HOME), LIMITS, fingers_m=0.03
)
RECIPE = ToolFollowerConfig(SPACE, "ur5e", 0.05)
KINEMATICS = SPACE.kinematics(UR5E)
PERIOD_S = 0.05


def changed(limits=None, **space):
    """The same recipe with other limits or another space."""
    narrower = dataclasses.replace(LIMITS, **(limits or {}))
    return dataclasses.replace(RECIPE, space=dataclasses.replace(SPACE, limits=narrower, **space))


@pytest.fixture
def cell():
    made = Cell(recipe=RECIPE, q=HOME)
    yield made
    made.close()


def sent(cell):
    """Set-points [n, 6] and poses of the tip [n, 4, 4]."""
    q = np.array([q for _, q in cell.robot.sent])
    return q, KINEMATICS.pose_rows(q)


def within(cell, limits=LIMITS):
    """What the device received kept every limit of the tool and of the joints."""
    q, T = sent(cell)
    assert np.all(np.isfinite(q))
    assert np.all(np.abs(np.diff(q, axis=0)) * RATE_HZ <= 1.001 * limits.max_joint_speed)
    bent = np.abs(np.diff(q, n=2, axis=0)) * RATE_HZ**2
    assert np.all(bent <= 1.01 * limits.max_joint_acceleration)
    place = T[:, :3, 3]
    speed = np.linalg.norm(np.diff(place, axis=0), axis=1) * RATE_HZ
    assert speed.max() <= 1.01 * limits.max_speed
    push = np.linalg.norm(np.diff(place, n=2, axis=0), axis=1) * RATE_HZ**2
    assert push.max() <= 1.1 * limits.max_acceleration
    turn = [pose_error(a, b)[1] * RATE_HZ for a, b in zip(T[:-1:7], T[1::7], strict=False)]
    assert max(turn) <= 1.01 * limits.max_rotation_speed
    margin = limits.workspace_margin
    assert np.all(place >= np.array(limits.workspace_low) - margin)
    assert np.all(place <= np.array(limits.workspace_high) + margin)


def turning(T):
    """How fast the tool turns from pose to pose of ``T [n, 4, 4]``, ``[n - 1, 3]`` [rad/s]."""
    return RATE_HZ * np.array(
        [rotvec_from_rotation(b[:3, :3] @ a[:3, :3].T) for a, b in itertools.pairwise(T)]
    )


@pytest.mark.parametrize(
    ("jerk", "rotation_jerk"), [(None, None), (20.0, None), (None, 60.0), (20.0, 60.0)]
)
def test_a_jump_is_a_motion_within_the_limits(jerk, rotation_jerk):
    recipe = changed({"max_jerk": jerk, "max_rotation_jerk": rotation_jerk})
    cell = Cell(recipe=recipe, q=HOME)
    cell.follow()
    cell.drive([[0.24, 0.39, 0.3, 0.5]] * 6, PERIOD_S)
    cell.drive([[-0.28, -0.39, 0.1, -0.5]] * 3, PERIOD_S)
    within(cell, recipe.space.limits)
    if jerk is not None:
        place = sent(cell)[1][:, :3, 3]
        jolt = np.linalg.norm(np.diff(place, n=3, axis=0), axis=1) * RATE_HZ**3
        assert jolt.max() <= 1.1 * jerk
    if rotation_jerk is not None:
        jolt = np.linalg.norm(np.diff(turning(sent(cell)[1]), n=2, axis=0), axis=1) * RATE_HZ**2
        # The half of it is the acceleration over the window; turning round takes the whole.
        assert 0.4 * rotation_jerk < jolt.max() <= 1.1 * rotation_jerk
    # A target a little outside is followed to the border.
    assert set(cell.causes) == {Cause.OUT_OF_RANGE}
    rows = cell.link.sent.since(0).value
    np.testing.assert_allclose(rows[-1, 2:6], cell.follower.action(cell.robot.sent[-1][1]))
    cell.close()


@pytest.mark.parametrize("jerk", [None, 60.0])
def test_the_last_gate_stops_a_jerk_of_the_rotation(jerk, monkeypatch):
    """One that keeps the acceleration: a path whose mean was not taken."""

    class Unlimited(ToolDrive):
        def __init__(self, kinematics, limits, period_s):
            super().__init__(kinematics, LIMITS, period_s)

    monkeypatch.setattr(tool_follower, "ToolDrive", Unlimited)
    recipe = changed({"max_rotation_jerk": jerk}, action="tool/pose")
    cell = Cell(recipe=recipe, q=HOME)
    cell.follow()
    turned = values_from_pose(pose(rot_z(0.6) @ KINEMATICS.pose(HOME)[:3, :3], (0.0, 0.0, 0.25)))
    cell.drive([turned] * 3, PERIOD_S)
    if jerk is None:
        assert cell.mode is Mode.FOLLOW
    else:
        assert cell.mode is Mode.STOPPED
        assert cell.causes == [Cause.LIMIT_VIOLATION]
    cell.close()


def test_a_limit_on_the_rotations_jerk_that_cannot_be_kept_is_refused():
    with pytest.raises(ConfigError, match="jerk must be positive"):
        dataclasses.replace(LIMITS, max_rotation_jerk=0.0)
    with pytest.raises(ConfigError, match=r"turns by 3\.00 rad .* lower max_rotation_speed"):
        dataclasses.replace(
            LIMITS,
            max_rotation_speed=6.0,
            max_rotation_acceleration=60.0,
            max_rotation_jerk=240.0,
        )


def test_a_pause_of_the_agent_brakes_along_the_motion_and_goes_on(cell):
    cell.follow()
    cell.drive([[0.2, 0.0, 0.25, 0.0]] * 3, PERIOD_S)
    cell.run(0.06)
    assert cell.causes == []
    cell.run(0.4)
    assert cell.causes == [Cause.AGENT_LATE]
    assert cell.speeds()[-1].max() == 0.0
    assert cell.follower.at_rest
    cell.drive([[0.2, 0.0, 0.25, 0.0]] * 2, PERIOD_S)
    assert cell.causes == [Cause.AGENT_LATE, Cause.AGENT_BACK]
    assert cell.speeds()[-1].max() > 0.0
    within(cell)


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ("tool/pose", [0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0]),
        ("tool/pose", [0.0, 0.0, 0.2, 0.0, 2.0, 0.0, 0.0]),
        ("tool/pose", [0.4, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0]),
        ("tool/xyz_yaw", [0.0, 0.0, -0.1, 0.0]),
        ("tool/xyz_yaw", [0.0, 0.0, 0.2, 1e6]),
        ("tool/xyz_yaw", [0.0, np.nan, 0.2, 0.0]),
        ("tool/xyz_yaw", [1e300, 0.0, 0.2, 0.0]),
    ],
)
def test_what_is_no_pose_or_far_outside_is_refused_and_the_arm_brakes(action, value):
    cell = Cell(recipe=changed(action=action), q=HOME)
    cell.follow()
    cell.drive([value] * 3, 0.008)
    assert set(cell.causes) <= {Cause.FAR_OUTSIDE, Cause.NOT_FINITE}
    assert len(cell.causes) == 3
    assert cell.speeds().max(initial=0.0) == 0.0
    cell.close()


@pytest.mark.parametrize(
    ("mutation", "why"),
    [
        (lambda q, k: q + 0.005, "joint speeds"),
        (lambda q, k: q + np.array([0.0, 0.0008, 0.0, 0.0, 0.0, 0.0]) * k, ""),
        (lambda q, k: q * np.nan, "finite"),
        (lambda q, k: q[:5], "finite angles"),
        (lambda q, k: q + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0003]), "acceleration"),
    ],
)
def test_the_last_look_refuses_what_a_broken_follower_would_send(
    cell, mutation, why, monkeypatch, caplog
):
    cell.follow()
    cell.drive([[0.0, 0.0, 0.24, 0.0]] * 2, PERIOD_S)
    honest, calls = cell.follower.step, []

    def broken(dt_s, now_ns, *, moving):
        calls.append(0)
        return mutation(honest(dt_s, now_ns, moving=moving), len(calls))

    monkeypatch.setattr(cell.follower, "step", broken)
    cell.drive([[0.0, 0.0, 0.24, 0.0]] * 4, PERIOD_S)
    assert cell.mode is Mode.STOPPED
    assert cell.causes[-1] is Cause.LIMIT_VIOLATION
    assert why in caplog.text
    within(cell)


def test_the_last_look_knows_workspace_and_rotation(cell):
    follower = cell.follower
    low = KINEMATICS.joints(_moved(KINEMATICS.pose(HOME), z=-0.27), HOME)
    assert "outside the workspace" in follower.violation(low, None, 0.002)
    assert "height" in follower.violation(low, None, 0.002, guided=True)
    high = KINEMATICS.joints(_moved(KINEMATICS.pose(HOME), z=0.28), HOME)
    assert "outside the workspace" in follower.violation(high, None, 0.002)
    assert follower.violation(high, None, 0.002, guided=True) == ""
    turned = HOME + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0016])
    assert "turns by" in follower.violation(turned, HOME, 0.002)
    assert follower.violation(HOME + 1e-5, HOME, 0.002) == ""


def test_what_was_sent_is_told_like_the_command():
    """3.2 rad and 3.2 - 2 pi are one heading, q and -q one rotation; a recording says which."""
    follower = RECIPE.build(RATE_HZ)
    q = KINEMATICS.joints(KINEMATICS.pose(HOME) @ pose(rot_z(3.1)), HOME)
    follower.start(q)
    for heading in (3.2, -3.1, 3.1 - 4.0 * np.pi):
        follower.target(_target([0.0, 0.0, 0.25, heading]), 0)
        assert abs(follower.action(q)[3] - heading) < 0.2
    follower = changed(action="tool/pose").build(RATE_HZ)
    follower.start(HOME)
    for sign in (1.0, -1.0):
        follower.target(_target([0.0, 0.0, 0.25, 0.0, sign, 0.0, 0.0]), 0)
        np.testing.assert_allclose(follower.action(HOME)[4], sign, atol=1e-6)


def _target(value):
    return Target(0, 0, np.array(value), np.zeros((0, len(value))))


def test_the_hand_keeps_off_the_table_and_the_fingers_do_not():
    """A tool that tilts brings its hand to the table although its tip stays above."""
    guard = RECIPE.guard(RATE_HZ)
    low = _moved(KINEMATICS.pose(HOME), -0.24)
    assert guard.ahead(KINEMATICS.joints(low, HOME)) is None
    low[:3, :3] = rot_y(1.2) @ low[:3, :3]
    near = guard.ahead(KINEMATICS.joints(low, HOME))
    assert near is not None
    assert "table" in near.kind


def _moved(T, z):
    out = T.copy()
    out[2, 3] += z
    return out


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "tool/delta_pose"},
        {"home": (0.0,) * 5},
        {"fingers_m": 0.2},
        {"limits": {"max_joint_speed": 4.0}},
        {"limits": {"max_speed": float("nan")}},
        {"limits": {"joint_margin": 7.0}},
        {"limits": {"workspace_low": (0.3, 0.0, 0.0)}},
    ],
)
def test_a_space_that_cannot_be_is_refused(wrong):
    limits = wrong.pop("limits", None)
    with pytest.raises(ConfigError):
        changed(limits, **wrong)
