"""pusht_ur5e: the env contract, exact starts, tracking, friction, and what must never happen."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.errors import ConfigError, DataError, SceneError
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command, Condition
from sim.control.arm_xy import ArmXyController, arm_xy_config
from sim.control.planar import build_controller
from sim.env.scene_env import SceneEnv
from sim.scene.load import load_scene
from sim.tasks.pusht import PushT
from tests.contracts import EnvContract
from tests.sim.human import human_episodes

SCENE = load_scene("pusht_ur5e")


def start(tool=(0.256, 0.4), block=(0.1, 0.2, 0.3)) -> SceneEnv:
    env = SceneEnv(SCENE)
    env.reset(Condition("test", 0, {TOOL: tool, BLOCK: block}), np.random.default_rng(0))
    return env


def drive(env: SceneEnv, target, ticks: int = 1, seq: int = 0) -> None:
    for k in range(ticks):
        action = {TOOL: np.array(target, dtype=np.float64)}
        env.apply(Command(seq=seq + k, action=action, due_ns=env.now_ns(), source="test"))
        env.advance()


class TestPushtUr5e(EnvContract):
    def make(self) -> Env:
        return SceneEnv(SCENE)

    def condition(self, seed: int) -> Condition:
        return PushT().sample_condition(seed)


@pytest.mark.parametrize("tool", [(0.0, 0.0), (0.512, 0.512), (0.0, 0.512), (0.512, 0.0)])
def test_starts_in_every_corner(tool) -> None:
    env = start(tool=tool, block=(0.25, 0.3, 1.0))
    np.testing.assert_allclose(env.observe().value(TOOL), tool, atol=1e-9)
    np.testing.assert_array_equal(env.observe().value("arm/joint_velocity"), 0.0)
    env.advance()
    np.testing.assert_allclose(env.observe().value(TOOL), tool, atol=1e-6)


def test_without_a_tool_pose_the_arm_is_at_home() -> None:
    env = SceneEnv(SCENE)
    env.reset(Condition("test", 0, {BLOCK: (0.1, 0.2, 0.3)}), np.random.default_rng(0))
    np.testing.assert_allclose(env.observe().value(TOOL), (0.256, 0.4), atol=1e-3)


def test_a_start_out_of_reach_is_refused() -> None:
    env = SceneEnv(SCENE)
    with pytest.raises(DataError, match="out of reach"):
        env.reset(Condition("test", 0, {TOOL: (0.2, -0.6)}), np.random.default_rng(0))


def test_the_arm_follows_the_limiter_within_a_millimetre() -> None:
    env = start(block=(0.1, 0.45, 0.0))
    worst = 0.0
    for k, target in enumerate([(0.4, 0.2), (0.4, 0.05), (0.2, 0.1), (0.45, 0.4), (0.45, 0.1)]):
        for _ in range(3):
            drive(env, target, seq=k)
            planned = env._controller._last.xy
            worst = max(worst, float(np.linalg.norm(env.observe().value(TOOL) - planned)))
    assert worst < 1e-3
    drive(env, (0.45, 0.1), 20)
    np.testing.assert_allclose(env.observe().value(TOOL), (0.45, 0.1), atol=1e-4)


def test_the_tool_moves_as_gym_pushts_agent() -> None:
    env = start(tool=(0.2, 0.3), block=(0.4, 0.1, 0.0))
    x, v, error = np.array([0.2, 0.3]), np.zeros(2), []
    for target in ((0.22, 0.33), (0.25, 0.34), (0.27, 0.31), (0.26, 0.3), (0.22, 0.3)):
        drive(env, target)
        for _ in range(10):
            v = v + (100.0 * (np.array(target) - x) - 20.0 * v) * 0.01
            x = x + v * 0.01
        error.append(float(np.linalg.norm(env.observe().value(TOOL) - x)))
    assert max(error) < 1e-3


def test_joint_speeds_stay_below_the_robots_limit() -> None:
    env = start(block=(0.1, 0.45, 0.0))
    for k, target in enumerate([(0.512, 0.0), (0.0, 0.0), (0.512, 0.512), (0.0, 0.512)]):
        drive(env, target, 8, seq=8 * k)
    speeds = env.drain().signals["arm/joint_velocity"].value
    assert np.abs(speeds).max() < np.pi


def test_each_foot_carries_a_quarter_of_the_weight_and_slides_as_coulomb_says() -> None:
    env = start(block=(0.15, 0.25, 0.7))
    model, data = env.model, env.data
    x, yaw = model.joint("block_x").dofadr[0], model.joint("block_yaw").dofadr[0]
    force = np.zeros(6)
    loads = []
    for c in range(data.ncon):
        mujoco.mj_contactForce(model, data, c, force)
        loads.append(force[0])
    weight = model.body("block").mass[0] * 9.81
    assert loads == pytest.approx([weight / 4] * 4, rel=0.02)
    before = env.observe().value(BLOCK).copy()
    data.qvel[x] = 0.2
    env.advance()
    moved = env.observe().value(BLOCK) - before
    # v^2 / (2 mu g), along the push, without turning (world x is table y).
    assert moved[1] == pytest.approx(0.2**2 / (2 * 0.5 * 9.81), rel=0.15)
    assert abs(moved[0]) < 1e-4
    assert abs(moved[2]) < 0.005
    assert abs(data.qvel[yaw]) < 1e-3


def test_the_block_rests_under_a_push_below_friction() -> None:
    env = start(block=(0.15, 0.25, 0.7))
    before = env.observe().value(BLOCK).copy()
    env.data.qfrc_applied[env.model.joint("block_x").dofadr[0]] = 0.35
    for _ in range(10):
        env.advance()
    # Half of what makes it slide, for a second: it creeps by less than a millimetre.
    moved = env.observe().value(BLOCK) - before
    assert np.abs(moved[:2]).max() < 1e-3
    assert abs(moved[2]) < 5e-3
    env.data.qfrc_applied[:] = 0.0
    env.advance()
    before = env.observe().value(BLOCK).copy()
    for _ in range(10):
        env.advance()
    np.testing.assert_allclose(env.observe().value(BLOCK), before, atol=1e-6)


@pytest.mark.parametrize("tool", [(0.25, 0.28), (0.25, 0.22), (0.20, 0.29)])
def test_starting_inside_the_block_throws_nothing(tool) -> None:
    env = start(tool=tool, block=(0.25, 0.30, 0.0))
    drive(env, tool, 10)
    block = env.observe().value(BLOCK)
    assert np.linalg.norm(block[:2] - (0.25, 0.30)) < 0.08
    assert env.outcome().reason == ""


@pytest.mark.parametrize("block", [(0.256, 0.44, 0.0), (0.40, 0.1, 2.0)])
def test_squeezed_against_the_rim_the_block_stays_on_the_table(block) -> None:
    env = start(tool=(0.256, 0.25), block=block)
    for k, target in enumerate([(0.256, 0.512), (0.45, 0.0), (0.5, 0.2), (0.256, 0.0)]):
        drive(env, target, 10, seq=10 * k)
        pose = env.observe().value(BLOCK)
        assert np.all(np.abs(pose[:2] - 0.256) < 0.256)
        assert env.outcome().reason == ""


def test_what_was_sent_is_the_command() -> None:
    env = start()
    drive(env, (0.3, 0.3), seq=7)
    sent = env.drain().sent
    assert sent.seq.tolist() == [7]
    np.testing.assert_array_equal(sent.action[TOOL], [[0.3, 0.3]])


def test_a_human_episode_replays_open_loop() -> None:
    episode = human_episodes(1)[0]
    env = SceneEnv(SCENE)
    first = {name: tuple(episode.observed(name)[0].tolist()) for name in (TOOL, BLOCK)}
    env.reset(Condition("human", 0, first), np.random.default_rng(0))
    tool = episode.observed(TOOL)
    deviation = []
    for k, action in enumerate(episode.action[TOOL][:80]):
        drive(env, action, seq=k)
        deviation.append(float(np.linalg.norm(env.observe().value(TOOL) - tool[k + 1])))
    # The tool does what the person's did, whatever the block does.
    assert np.median(deviation) < 1e-3
    assert max(deviation) < 5e-3
    block = env.observe().value(BLOCK)
    assert np.linalg.norm(block[:2] - episode.observed(BLOCK)[80][:2]) < 0.1


def test_the_top_view_is_the_table_frame_with_the_arm_out_of_the_way() -> None:
    env = start(tool=(0.1, 0.4), block=(0.38, 0.12, 0.7))
    try:
        image = env.render(256, 256).astype(np.int64)
    finally:
        env.close()

    def at(x: float, y: float) -> np.ndarray:
        return image[int((1 - y / 0.512) * 256), int(x / 0.512 * 256)]

    tool, block, paper = at(0.1, 0.4), at(0.38 + 0.0386, 0.12 - 0.0459), at(0.1, 0.1)
    assert tool[2] > tool[0] + 60  # blue
    assert block.max() < 170
    assert paper.min() > 190
    green = at(0.256 - 0.03, 0.256 - 0.03)
    assert green[1] > green[0] + 40
    # The flange and the wrist hang over the table to the right of the base; none of it is drawn.
    assert at(0.1, 0.45).min() > 190
    assert at(0.256, 0.49).min() > 190


def test_unusable_control_sections_are_refused() -> None:
    scene, model = SCENE, SCENE.compile()

    def build(**changes: object) -> object:
        control = {**scene.config.control, **changes}
        return build_controller(dataclasses.replace(scene.config, control=control), model)

    assert isinstance(build(), ArmXyController)
    with pytest.raises(SceneError, match="Did you mean 'ur5e'"):
        build(arm="ur5")
    with pytest.raises(SceneError, match="no action"):
        build(action="tool/xyz")
    with pytest.raises(SceneError, match="setpoint_rate_hz"):
        build(setpoint_rate_hz=130)
    with pytest.raises(SceneError, match="6 joints"):
        build(joints=["elbow"])
    with pytest.raises(SceneError, match="mm and"):
        build(table_origin_m=[-0.8, 0.256, 0.0])
    with pytest.raises(SceneError, match="unknown key"):
        build(tool_radius=1)
    with pytest.raises(ConfigError, match="max_tool_speed"):
        arm_xy_config({**scene.config.control, "limits": {"max_tool_speed": -1.0}})
