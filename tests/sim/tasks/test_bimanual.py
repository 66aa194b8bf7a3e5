"""Nothing assumes a single arm: two of them are collected, recorded, read and evaluated."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.table import TrialStore
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import SceneError
from robolearn.runtime import run_episode
from robolearn.types import Condition
from sim.env.scene_env import SceneEnv
from sim.experts.registry import build_expert
from sim.scene.load import load_scene
from sim.tasks.lift_bar import LiftBar, grasps
from sim.worlds import make_world

WORLD, TASK = "panda_bimanual", "lift_bar"


def test_two_hands_lift_record_and_are_scored(tmp_path: Path) -> None:
    env = make_world(WORLD)
    agent = build_expert(TASK, env.spec)
    store = EpisodeStore.create(tmp_path / "store")
    with EpisodeRecorder(store, spec=env.spec, kind="scripted") as recorder:
        result = run_episode(
            env, agent, None, [recorder], env.sample_condition(3), max_steps=200, task=TASK
        )
    assert result.outcome.success
    (episode,) = (store.read(i) for i in store.ids())
    ticks = len(episode.action["left_tool/xyz_yaw"])
    for side in ("left", "right"):
        assert episode.observed(f"{side}_arm/joint_position").shape == (ticks, 7)
        assert episode.action[f"{side}_gripper/width"].shape == (ticks, 1)
    bar = episode.observed("bar/pose")
    assert bar[-1, 2] > 0.12
    # Both arms really moved, each on its own side.
    assert np.ptp(episode.observed("left_tool/pose")[:, 2]) > 0.1
    assert (episode.observed("left_tool/pose")[:, 1] > 0).all()
    assert (episode.observed("right_tool/pose")[:, 1] < 0).all()

    scene = load_scene(WORLD)
    policy = PolicyEntry("scripted", "-", None, functools.partial(build_expert, TASK))
    world = WorldEntry(WORLD, scene.content_hash, env.engine, functools.partial(make_world, WORLD))
    lists = {WORLD: [env.sample_condition(seed) for seed in range(2)]}
    with TrialStore(tmp_path / "trials") as trials:
        options = Options(suite="s@1", task=TASK, max_steps=200, batch=2, code="k")
        records = evaluate((policy,), (world,), lists, trials, options)
    assert [r.success for r in records] == [True, True]
    assert {r.env_hash for r in records} == {scene.content_hash}
    assert {r.engine for r in records} == {env.engine}
    env.close()


def test_one_hand_cannot_do_it() -> None:
    env = SceneEnv(load_scene(WORLD))
    expert = build_expert(TASK, env.spec)
    env.reset(env.sample_condition(3), np.random.default_rng(0))
    expert.reset(0)
    still = env.observe().value("right_tool/pose")
    for _ in range(100):
        command = expert.decide(env.observe(), None)
        action = {**command.action, "right_tool/xyz_yaw": np.array([*still[:3], 0.0])}
        env.apply(type(command)(command.seq, action, command.due_ns, "test"))
        env.advance()
        env.outcome()
    assert not env.outcome().success
    assert env.outcome().metrics["tilt_rad"] > 0.05


def test_a_noisy_expert_is_worse_and_the_task_says_how_far_it_came() -> None:
    env = make_world(WORLD)
    agent = build_expert(TASK, env.spec, noise=1.0)
    result = run_episode(env, agent, None, [], env.sample_condition(0), max_steps=80, task=TASK)
    assert result.outcome.progress < 1.0
    task = LiftBar([[0.0, -0.1], [0.15, 0.1]])
    for seed in range(20):
        condition = task.sample_condition(seed)
        assert condition == task.sample_condition(seed)
        left, right = grasps(np.array(condition.poses["bar/pose"]), 0.15)
        assert left[1] > right[1]
    env.close()


def test_starts_of_both_arms_can_be_chosen() -> None:
    env = SceneEnv(load_scene(WORLD))
    poses = {
        "left_tool/pose": (0.05, 0.25, 0.2, 0.0, 1.0, 0.0, 0.0),
        "right_tool/pose": (0.0, -0.3, 0.15, 0.0, 1.0, 0.0, 0.0),
        "right_gripper/width": (0.02,),
    }
    report = env.reset(Condition("a", 0, poses), np.random.default_rng(0))
    for name, pose in poses.items():
        np.testing.assert_allclose(report.achieved[name], pose, atol=1e-6)


def test_the_same_arm_twice_is_refused(tmp_path: Path) -> None:
    scene = load_scene(WORLD)
    for name in ("scene.xml", "panda.xml"):
        (tmp_path / name).write_text((scene.path / name).read_text())
    text = (scene.path / "scene.yaml").read_text()
    doubled = text.replace("action: right_tool/xyz_yaw", "action: left_tool/xyz_yaw")
    (tmp_path / "scene.yaml").write_text(doubled)
    with pytest.raises(SceneError, match="left_tool/xyz_yaw"):
        SceneEnv(load_scene(tmp_path))
