"""Control of kind ``arms`` in the packaged scene ``panda_table``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.arms.models import ARMS
from robolearn.errors import DataError, SceneError
from robolearn.geometry import rotation_from_quat
from robolearn.types import Command, Condition
from sim.env.scene_env import SceneEnv
from sim.robots.panda import panda_mjcf
from sim.scene.load import SCENES, load_scene

RNG = np.random.default_rng(0)
PARTS = {"pose": 7, "xyz_yaw": 4, "delta_pose": 6}
JOINTS = [f"joint{i}" for i in range(1, 8)]


def scene_with(folder: Path, action: dict[str, object], **control: object) -> SceneEnv:
    """The packaged scene with another action of the arm."""
    source = SCENES / "panda_table"
    raw = yaml.safe_load((source / "scene.yaml").read_text())
    raw["actions"][0] = action
    raw["control"]["arms"][0]["action"] = action["name"]
    raw["control"]["arms"][0].update(control)
    for name in ("scene.xml", "panda.xml"):
        (folder / name).write_text((source / name).read_text())
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw))
    return SceneEnv(load_scene(folder))


def start(poses: dict[str, tuple[float, ...]]) -> Condition:
    return Condition("x", 0, {n: tuple(float(v) for v in pose) for n, pose in poses.items()})


def act(env: SceneEnv, ticks: int = 1, width: float = 0.08, **values: object) -> None:
    (arm,) = [a.name for a in env.spec.actions if a.name != "gripper/width"]
    for k in range(ticks):
        action = {
            arm: np.array(values["arm"], dtype=float),
            "gripper/width": np.array([width]),
        }
        env.apply(Command(k, action, env.now_ns(), "test"))
        env.advance()


@pytest.fixture(scope="module")
def table() -> SceneEnv:
    return SceneEnv(load_scene("panda_table"))


def test_every_copy_of_the_panda_is_the_generated_one() -> None:
    copies = sorted(SCENES.glob("*/panda.xml"))
    assert copies
    for path in copies:
        assert path.read_text() == panda_mjcf(), f"write sim.robots.panda.panda_mjcf() to {path}"


def test_the_tool_goes_where_it_is_sent_pointing_down(table: SceneEnv) -> None:
    table.reset(start({"cube/pose": (0.2, 0.2, 0.02, 1, 0, 0, 0)}), RNG)
    act(table, 40, arm=(0.1, -0.2, 0.15, 0.6))
    pose = table.observe().value("tool/pose")
    np.testing.assert_allclose(pose[:3], (0.1, -0.2, 0.15), atol=1e-3)
    c, s = math.cos(0.6), math.sin(0.6)
    np.testing.assert_allclose(
        rotation_from_quat(pose[3:]), [[c, s, 0], [s, -c, 0], [0, 0, -1]], atol=5e-3
    )
    sent = table.drain().sent
    np.testing.assert_array_equal(sent.action["tool/xyz_yaw"][-1], (0.1, -0.2, 0.15, 0.6))


def test_joint_limits_of_speed_and_acceleration_hold_for_a_wild_target(table: SceneEnv) -> None:
    table.reset(table.sample_condition(0), RNG)
    arm = ARMS["panda"]
    speeds = [np.zeros(7)]
    rng = np.random.default_rng(1)
    for _ in range(15):
        target = rng.uniform([-0.25, -0.4, 0.05, -3], [0.25, 0.4, 0.5, 3])
        act(table, 2, arm=target)
        speeds.append(table.observe().value("arm/joint_velocity"))
    # The set-points obey the limits exactly (tests of the joint path); the servos nearly.
    assert np.all(np.abs(speeds) <= 1.1 * np.array(arm.max_speed) + 0.05)


def test_grasp_and_lift(table: SceneEnv) -> None:
    table.reset(start({"cube/pose": (0.1, 0.1, 0.02, 1, 0, 0, 0)}), RNG)
    act(table, 30, arm=(0.1, 0.1, 0.1, 0.0))
    act(table, 20, arm=(0.1, 0.1, 0.02, 0.0))
    act(table, 20, 0.0, arm=(0.1, 0.1, 0.02, 0.0))
    for share in np.linspace(0.0, 1.0, 21):
        act(table, 1, 0.0, arm=(0.1, 0.1 - 0.2 * share, 0.02 + 0.23 * share, 0.0))
    act(table, 10, 0.0, arm=(0.1, -0.1, 0.25, 0.0))
    seen = table.observe()
    np.testing.assert_allclose(seen.value("cube/pose")[:3], (0.1, -0.1, 0.25), atol=2e-3)
    assert 0.036 < seen.value("gripper/width")[0] < 0.0402
    act(table, 20, 0.08, arm=(0.1, -0.1, 0.25, 0.0))
    assert table.observe().value("cube/pose")[2] < 0.03


def test_starts_by_pose_joints_and_width(table: SceneEnv) -> None:
    tool = (0.1, 0.05, 0.2, 0.0, 1.0, 0.0, 0.0)
    report = table.reset(start({"tool/pose": tool, "gripper/width": (0.03,)}), RNG)
    np.testing.assert_allclose(report.achieved["tool/pose"], tool, atol=1e-6)
    np.testing.assert_allclose(report.achieved["gripper/width"], 0.03, atol=1e-12)
    q = (0.1, 0.2, -0.1, -2.0, 0.1, 2.2, 0.5)
    report = table.reset(start({"arm/joint_position": q}), RNG)
    np.testing.assert_allclose(report.achieved["arm/joint_position"], q, atol=1e-12)
    cube = (0.1, 0.0, 0.3, 0.6, 0.0, 0.8, 0.0)
    report = table.reset(start({"cube/pose": cube}), RNG)
    np.testing.assert_allclose(report.achieved["cube/pose"], cube, atol=1e-12)
    with pytest.raises(DataError, match="no configuration near"):
        table.reset(start({"tool/pose": (2.0, 0, 0.2, 0, 1, 0, 0)}), RNG)
    with pytest.raises(DataError, match="norm"):
        table.reset(start({"cube/pose": (0, 0, 0.2, 0, 1, 1, 0)}), RNG)


def test_absolute_pose_and_relative_pose_agree(tmp_path: Path) -> None:
    pose = {
        "name": "tool/pose",
        "frame": "table",
        "low": [-0.3, -0.4, 0, -1, -1, -1, -1],
        "high": [0.3, 0.4, 0.6, 1, 1, 1, 1],
    }
    env = scene_with(tmp_path, pose)
    env.reset(env.sample_condition(0), RNG)
    start = env.observe().value("tool/pose")
    goal = start + np.array([0.05, -0.1, -0.04, 0, 0, 0, 0])
    act(env, 40, arm=goal)
    np.testing.assert_allclose(env.observe().value("tool/pose"), goal, atol=1e-3)
    with pytest.raises(DataError, match="norm"):
        act(env, 1, arm=(0, 0, 0.2, 0, 0, 0, 0))

    (tmp_path / "b").mkdir()
    delta: dict[str, object] = {"name": "tool/delta_pose", "mode": "relative", "frame": "table"}
    delta |= {"low": [-0.05] * 3 + [-0.2] * 3, "high": [0.05] * 3 + [0.2] * 3}
    other = scene_with(tmp_path / "b", delta)
    other.reset(other.sample_condition(0), RNG)
    act(other, 10, arm=[0.005, -0.01, -0.004, 0, 0, 0])
    act(other, 30, arm=[0.0] * 6)
    np.testing.assert_allclose(
        other.observe().value("tool/pose"), env.observe().value("tool/pose"), atol=1e-3
    )


@pytest.mark.parametrize("mode", ["absolute", "relative"])
def test_joint_actions(tmp_path: Path, mode: str) -> None:
    arm = ARMS["panda"]
    low, high = (arm.low, arm.high) if mode == "absolute" else ([-0.1] * 7, [0.1] * 7)
    action = {"name": "arm/joint_position", "mode": mode, "low": list(low), "high": list(high)}
    env = scene_with(tmp_path, action)
    env.reset(env.sample_condition(0), RNG)
    start = env.observe().value("arm/joint_position")
    change = np.array([0.3, -0.2, 0.1, 0.2, -0.3, 0.1, 0.4])
    if mode == "absolute":
        act(env, 40, arm=start + change)
    else:
        act(env, 10, arm=change / 10)
        act(env, 30, arm=np.zeros(7))
    np.testing.assert_allclose(env.observe().value("arm/joint_position"), start + change, atol=2e-3)


def test_out_of_reach_is_followed_to_the_nearest_pose_and_reported(tmp_path: Path) -> None:
    action: dict[str, object] = {"name": "tool/xyz_yaw", "frame": "table"}
    action |= {"low": [-2, -2, 0, -3], "high": [2, 2, 1, 3]}
    env = scene_with(tmp_path, action)
    env.reset(env.sample_condition(0), RNG)
    act(env, 60, arm=(0.8, 0.0, 0.3, 0.0))
    sent = env.drain().sent.action["tool/xyz_yaw"][-1]
    assert 0.1 < sent[0] < 0.5
    np.testing.assert_allclose(env.observe().value("tool/pose")[:3], sent[:3], atol=5e-3)
    act(env, 60, arm=(0.0, 0.1, 0.3, 0.0))
    np.testing.assert_allclose(env.observe().value("tool/pose")[:3], (0, 0.1, 0.3), atol=1e-3)


@pytest.mark.parametrize(
    ("action", "control", "message"),
    [
        ({"name": "tool/xyz_yawn", "low": [0], "high": [1]}, {}, "Did you mean 'xyz_yaw'"),
        ({"name": "tool/pose", "low": [0], "high": [1]}, {}, "has 7 values"),
        ({"name": "tool/delta_pose", "low": [-1] * 6, "high": [1] * 6}, {}, "is relative"),
        ({"name": "tool/pose", "low": [-1] * 7, "high": [1] * 7}, {"arm": "pandas"}, "'panda'"),
        ({"name": "tool/pose", "low": [-1] * 7, "high": [1] * 7}, {"base": "cube"}, "do not move"),
        ({"name": "tool/pose", "low": [-1] * 7, "high": [1] * 7}, {"tool": "tol"}, "no site 'tol'"),
        ({"name": "tool/pose", "low": [-1] * 7, "high": [1] * 7}, {"home": [0.0]}, "7 joints"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, action: dict[str, object], control: dict[str, object], message: str
) -> None:
    with pytest.raises(SceneError, match=message):
        scene_with(tmp_path, action, **control)


def test_with_a_cells_limits_the_tool_moves_as_under_the_supervisor(tmp_path: Path) -> None:
    """Its speed is the cell's, and the border of the workspace is as far as it goes."""
    limits = {"workspace_low": [-0.25, -0.4, 0.005], "workspace_high": [0.25, 0.4, 0.4]}
    action = {"name": "tool/xyz_yaw", "frame": "table", "low": [-1.0] * 4, "high": [1.0] * 4}
    env = scene_with(tmp_path, action, limits=limits)
    env.reset(start({}), RNG)
    places = [env.observe().value("tool/pose")[:3]]
    for _ in range(30):
        act(env, 1, arm=(0.1, 0.2, 0.6, 0.0))
        places.append(env.observe().value("tool/pose")[:3])
    speeds = np.linalg.norm(np.diff(places, axis=0), axis=1) * 20.0
    assert 0.23 < speeds.max() < 0.26
    np.testing.assert_allclose(places[-1], [0.1, 0.2, 0.4], atol=4e-3)


def test_what_slows_a_tool_with_limits_is_told_while_it_does(tmp_path: Path) -> None:
    """Reached for beyond what the arm is long, and let go of it; another start begins anew."""
    limits = {"workspace_low": [-2.0] * 3, "workspace_high": [2.0] * 3}
    action = {"name": "tool/xyz_yaw", "frame": "table", "low": [-2.0] * 4, "high": [2.0] * 4}
    env = scene_with(tmp_path, action, limits=limits)
    env.reset(start({}), RNG)
    assert env.slowed == ""
    here = env.observe().value("tool/pose")[:3]
    for _ in range(60):
        act(env, 1, arm=(here[0] + 1.5, here[1], here[2], 0.0))
    assert env.slowed.startswith("slowed: ")
    for _ in range(10):
        act(env, 1, arm=(*env.observe().value("tool/pose")[:3], 0.0))
    assert env.slowed == ""
    for _ in range(60):
        act(env, 1, arm=(here[0] + 1.5, here[1], here[2], 0.0))
    assert env.slowed
    env.reset(start({}), RNG)
    assert env.slowed == ""


def test_limits_are_of_a_tool_that_is_commanded(tmp_path: Path) -> None:
    limits = {"workspace_low": [-1.0] * 3, "workspace_high": [1.0] * 3}
    action = {"name": "arm/joint_position", "low": [-3.0] * 7, "high": [3.0] * 7}
    with pytest.raises(SceneError, match="commanded by its tool's pose"):
        scene_with(tmp_path, action, limits=limits)
