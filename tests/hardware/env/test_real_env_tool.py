"""A cell that is commanded by its tool's pose, over the fake robot."""

import dataclasses

import numpy as np
import pytest
import yaml

from hardware.cell.config import CellConfig
from hardware.cell.limits import RunLimits
from hardware.cell.motion import JOINT_POSITION, TOOL_POSE, action_rows
from hardware.cell.sanity import require_sane
from hardware.cell.spec import EVENT, cell_spec
from hardware.cell.start import StartOffset
from hardware.commissioning.latency_motions import swing
from hardware.commissioning.no_task import middle
from hardware.devices.gripper_config import GripperCellConfig
from hardware.env.real_env import RealEnv
from hardware.supervisor.link import Cause
from hardware.supervisor.tool_follower import ToolFrame
from robolearn.arms.models import UR5E
from robolearn.arms.tool_commands import values_from_pose
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import (
    pose,
    rot_x,
    rot_y,
    rot_z,
    rotation_from_quat,
    rotvec_from_rotation,
)
from robolearn.operations.cell.look import limits_text
from robolearn.runtime import run_episode
from robolearn.spec import diff_task_spaces
from robolearn.types import Condition
from sim.env.scene_env import SceneEnv
from sim.scene.load import load_scene
from tests.hardware.joint_wave import NoTask, Towards
from tests.mocks import Listener
from tests.waiting import wait_until

HOME = (2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407)
CELL = f"""
name: tool_cell
driver: {{kind: fake, joint_position: {list(HOME)}, watchdog_s: 5.0}}
arm: ur5e
tool:
  frame: {{origin_m: [0.5, 0.0, 0.0]}}
  tool_offset_m: [0.0, 0.0, 0.145]
  fingers_m: 0.03
  home: {list(HOME)}
  limits:
    workspace_low: [-0.25, -0.4, 0.005]
    workspace_high: [0.25, 0.4, 0.5]
rate_hz: 20
# Nothing here is about lateness: a busy machine must not stop the arm.
supervisor: {{late_s: 2.0, heartbeat_s: 2.0, frozen_s: 5.0, state_late_s: 1.0, state_stale_s: 2.0,
  goto_speed: 2.0, goto_acceleration: 12.0}}
"""
START = (0.02, 0.03, 0.2, 0.0, 1.0, 0.0, 0.0)
GOAL = (0.05, 0.0, 0.18)


def cell(**tool) -> CellConfig:
    made = from_dict(CellConfig, yaml.safe_load(CELL), "cell")
    return dataclasses.replace(made, tool=dataclasses.replace(made.tool, **tool))


def turned(tilt: float, heading: float) -> tuple[float, ...]:
    """``tool/pose`` over the table: the tool points down, leant over about its own y axis [rad]."""
    return tuple(values_from_pose(pose(rot_z(heading) @ rot_x(np.pi) @ rot_y(tilt), GOAL)))


@pytest.mark.parametrize(
    ("action", "goal", "tilt"),
    [
        ("tool/xyz_yaw", (*GOAL, 0.2), 0.0),
        ("tool/pose", turned(0.0, 0.2), 0.0),
        # What a heading alone cannot say.
        ("tool/pose", turned(0.35, 0.2), 0.35),
    ],
    ids=["xyz_yaw", "pose", "leant over"],
)
def test_an_episode_of_a_tools_pose_is_run_and_reported(action, goal, tilt):
    env = RealEnv(cell(action=action), place=lambda _: "nothing to place", scorer=NoTask())
    listener = Listener()
    try:
        condition = Condition("c", 1, {TOOL_POSE: START})
        agent = Towards({action: goal})
        result = run_episode(env, agent, None, [listener], condition, max_steps=25)
        assert "tool/pose off by 0." in result.reset.note
        np.testing.assert_allclose(result.reset.achieved[TOOL_POSE], START, atol=2e-3)
        sent = np.concatenate([t.drained.sent.action[action] for t in listener.ticks])
        np.testing.assert_allclose(sent[-1], goal, atol=2e-3)
        at = listener.ticks[-1].observation.value(TOOL_POSE)
        np.testing.assert_allclose(at[:3], GOAL, atol=5e-3)
        off = rotation_from_quat(at[3:]).T @ rotation_from_quat(np.array(turned(tilt, 0.2)[3:]))
        assert np.linalg.norm(rotvec_from_rotation(off)) < 0.01
        assert env.interventions == []
        moved = swing(env, middle(env.config), seconds=1.2, amplitude=0.01)
        assert 0.003 < np.ptp(moved.sent) < 0.02
        assert np.ptp(moved.measured) == pytest.approx(np.ptp(moved.sent), rel=0.1)
        env.home()
        q = env.supervisor.state().joint_position
        np.testing.assert_allclose(q, HOME, atol=5e-3)
        # A start where the arm stands already: the way goes up, and comes back down.
        here = tuple(env.observe().value(TOOL_POSE).tolist())
        report = env.reset(Condition("here", 1, {TOOL_POSE: here}), np.random.default_rng(0))
        np.testing.assert_allclose(report.achieved[TOOL_POSE], here, atol=2e-3)
    finally:
        env.close()


def test_what_slows_the_arm_is_told_while_it_does_and_recorded():
    limits = dataclasses.replace(cell().tool.limits, max_joint_speed=0.15)
    env = RealEnv(cell(limits=limits), place=lambda _: "nothing to place", scorer=NoTask())
    seen: list[str] = []

    class Watch(Listener):
        def on_tick(self, tick):
            super().on_tick(tick)
            seen.append(env.slowed)

    listener = Watch()
    try:
        agent = Towards({"tool/xyz_yaw": (0.15, -0.2, 0.15, 0.0)})
        condition = Condition("c", 1, {JOINT_POSITION: HOME})
        run_episode(env, agent, None, [listener], condition, max_steps=12)
        assert seen[0] == ""
        assert seen[-1] == "slowed: a joint has its full speed"
        assert {e.cause for e in env.interventions} == {Cause.SLOWED_JOINT_SPEED}
        # Also where nobody looks any more: a new episode begins with nothing.
        env.hold()
        env.begin(Condition("here", 1, {}))
        wait_until(lambda: env.observe() and env.slowed == "")
        assert env.interventions == []
    finally:
        env.close()
    rows = np.concatenate([t.drained.signals[EVENT.name].value for t in listener.ticks])
    assert rows[:, 0].tolist() == [Cause.NONE, Cause.SLOWED_JOINT_SPEED]
    assert 0.0 < rows[1, 1] < 0.9


@pytest.mark.parametrize("action", ["tool/xyz_yaw", "tool/pose"])
def test_a_policy_of_the_scene_fits_the_cell(action):
    """Signals and actions are named and shaped as in the scenes of kind ``arms``."""
    gripper = GripperCellConfig({"kind": "fake"}, high_m=0.085)
    offered = cell_spec(dataclasses.replace(cell(action=action), gripper=gripper))
    scene = SceneEnv(load_scene("ur5e_table")).spec
    names = ["tool/pose", "arm/joint_position", "arm/joint_velocity", "gripper/width"]
    lines = diff_task_spaces(scene.task_space(names), offered)
    other = ["- action tool/xyz_yaw: wanted (4,), absent"]
    assert lines == ([] if action == "tool/xyz_yaw" else other)
    made = offered.actions[0]
    assert (made.frame, made.mode) == ("table", "absolute")
    assert made.shape == (len(made.low),) == (len(made.high),)


def test_the_tools_quaternion_does_not_jump_where_it_points_down():
    """As the scenes tell it: of the two the one with qx >= 0."""
    motion = cell().motion()
    q = np.tile(HOME, (50, 1))
    q[:, 5] += np.linspace(-1.2, 1.2, 50)
    poses = motion.derived(q)[TOOL_POSE]
    assert np.all(poses[:, 4] >= 0.0)
    assert np.abs(np.diff(poses, axis=0)).max() < 0.05
    rows = action_rows("tool/xyz_yaw", {TOOL_POSE: poses})
    np.testing.assert_allclose(np.diff(rows[:, 3]), -2.4 / 49, atol=1e-6)
    np.testing.assert_allclose(rows[0, :3], [0.0, 0.0, 0.25], atol=1e-3)


def test_between_episodes_the_tool_goes_straight_up_and_comes_down_onto_its_start():
    motion, kinematics = cell().motion(), cell().tool.kinematics(UR5E)
    low = kinematics.joints(pose(rot_x(np.pi), (0.1, 0.1, 0.02)), np.array(HOME))
    *up, home = motion.home(low)
    np.testing.assert_array_equal(home, HOME)
    heights = [kinematics.pose(q)[:3, 3] for q in up]
    np.testing.assert_allclose(heights, [[0.1, 0.1, 0.055], [0.1, 0.1, 0.12]], atol=1e-6)
    start = motion.start(Condition("c", 0, {TOOL_POSE: START}))
    places = [kinematics.pose(q)[:3, 3] for q in start]
    np.testing.assert_allclose(places, [[0.02, 0.03, z] for z in (0.3, 0.235, 0.2)], atol=1e-6)
    assert motion.start(Condition("c", 0, {})) == []
    np.testing.assert_array_equal(motion.start(Condition("c", 0, {JOINT_POSITION: HOME})), [HOME])


@pytest.mark.parametrize(
    ("poses", "words"),
    [
        ({TOOL_POSE: START, JOINT_POSITION: HOME}, "give one of them"),
        ({TOOL_POSE: START[:3]}, "3 values"),
        ({TOOL_POSE: (0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0)}, "norm"),
        ({TOOL_POSE: (2.0, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0)}, "out of reach"),
        ({JOINT_POSITION: HOME[:3]}, "3 values"),
    ],
)
def test_a_start_that_cannot_be_is_told(poses, words):
    with pytest.raises(DataError, match=words):
        cell().motion().start(Condition("c", 0, poses))


def test_a_run_may_only_tighten_the_limits_of_a_tool():
    tight = RunLimits(max_tool_speed=0.1, max_joint_speed=0.5, max_tool_jerk=20.0).on(cell())
    limits = tight.tool.limits
    assert (limits.max_speed, limits.max_joint_speed, limits.max_jerk) == (0.1, 0.5, 20.0)
    with pytest.raises(ConfigError, match="only tighten"):
        RunLimits(max_tool_speed=0.5).on(cell())
    assert "0.25 m/s" in limits_text(cell())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"home": (*HOME[:1], -0.9, *HOME[2:])}, "outside the workspace"),
        ({"frame": ToolFrame((0.5, 0.0, 0.3))}, "outside the workspace"),
        ({"max_tip_height_m": 50.0}, "max_tip_height_m"),
        ({"tool_offset_m": (0.0, 0.0, 145.0)}, "tool_offset_m"),
    ],
)
def test_a_cell_that_cannot_be_meant_is_refused_when_it_is_loaded(wrong, words):
    with pytest.raises(ConfigError, match=words):
        require_sane(dataclasses.replace(cell(**wrong), lab=True), "robot")


def test_a_seventh_joint_is_no_quaternion():
    q = np.zeros(7)
    found = StartOffset.of(JOINT_POSITION, tuple(q), q + 0.01)
    assert (found.position_m, found.angle_rad) == (None, pytest.approx(0.01))
