"""SceneEnv beyond its contract: frames, rates, divergence, determinism across processes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robolearn.errors import DataError, SceneError
from robolearn.pusht import BLOCK, GOAL, TOOL
from robolearn.types import Command, Condition
from sim.env.scene_env import SceneEnv
from sim.scene.load import load_scene
from tests.sim.scene.test_scene_package import CONFIG, XML, write_scene

RNG = np.random.default_rng(0)


def command(env: SceneEnv, xy: object, seq: int = 0) -> Command:
    return Command(seq, {TOOL: np.asarray(xy, dtype=np.float64)}, env.now_ns(), "test")


def test_poses_are_those_of_the_named_frame(tmp_path: Path) -> None:
    env = SceneEnv(load_scene(write_scene(tmp_path)))
    poses = {TOOL: (0.3, 0.4), BLOCK: (0.2, 0.1, 2.5)}
    report = env.reset(Condition("a", 0, poses), RNG)
    assert np.allclose(report.achieved[TOOL], poses[TOOL], atol=1e-12)
    assert np.allclose(report.achieved[BLOCK], poses[BLOCK], atol=1e-12)
    # The frame's site is turned by 90 degrees and shifted by (0.1, 0.2).
    assert np.allclose(env.data.qpos[:2], [0.1 - 0.4, 0.2 + 0.3], atol=1e-12)


def test_a_free_body_can_be_placed(tmp_path: Path) -> None:
    start = XML.index('<joint name="bx"')
    end = XML.index('<geom size=".01 .01 .01"')
    xml = XML[:start] + "<freejoint/>" + XML[end:]
    env = SceneEnv(load_scene(write_scene(tmp_path, xml)))
    pose = (0.2, 0.1, -3.0)
    report = env.reset(Condition("a", 0, {BLOCK: pose}), RNG)
    assert np.allclose(report.achieved[BLOCK], pose, atol=1e-12)


def test_a_body_without_joints_cannot_be_placed(tmp_path: Path) -> None:
    start = XML.index('<joint name="bx"')
    end = XML.index('<geom size=".01 .01 .01"')
    with pytest.raises(SceneError, match="cannot be placed"):
        SceneEnv(load_scene(write_scene(tmp_path, XML[:start] + XML[end:])))


def test_fast_signals_keep_their_rate(tmp_path: Path) -> None:
    env = SceneEnv(load_scene(write_scene(tmp_path)))
    env.reset(Condition("a", 0, {TOOL: (0.1, 0.1)}), RNG)
    times: list[int] = []
    for k in range(3):
        env.apply(command(env, (0.3, 0.3), k))
        env.advance()
        batch = env.drain()
        times += batch.signals["tool/velocity"].t_ns.tolist()
        assert len(batch.signals[TOOL].t_ns) == 1
    assert times == [20_000_000 * k for k in range(15)]


def test_an_unsettable_pose_is_refused(tmp_path: Path) -> None:
    reset = {"distribution": "gym_pusht", "settable": [TOOL]}
    env = SceneEnv(load_scene(write_scene(tmp_path, reset=reset)))
    with pytest.raises(DataError, match="settable"):
        env.reset(Condition("a", 0, {BLOCK: (0.1, 0.1, 0.0)}), RNG)


def test_divergence_ends_the_episode_without_calling_it_a_failure(tmp_path: Path) -> None:
    # A negative damping injects energy.
    xml = XML.replace('name="bx" type="slide"', 'name="bx" type="slide" damping="-1e6"')
    env = SceneEnv(load_scene(write_scene(tmp_path, xml)))
    env.reset(Condition("a", 0, {TOOL: (0.1, 0.1), BLOCK: (0.2, 0.2, 0.0)}), RNG)
    env.data.qvel[2] = 1e-3
    for k in range(20):
        env.apply(command(env, (0.3, 0.3), k))
        env.advance()
        assert np.isfinite(env.observe().value(BLOCK)).all()
    outcome = env.outcome()
    assert outcome.reason == "physics_diverged"
    assert outcome.truncated
    assert not outcome.terminal
    env.reset(Condition("a", 0, {TOOL: (0.1, 0.1), BLOCK: (0.2, 0.2, 0.0)}), RNG)
    assert env.outcome().reason == ""


def test_absurd_speed_is_divergence(tmp_path: Path) -> None:
    physics = {"timestep_s": 0.01, "max_speed": 0.5}
    env = SceneEnv(load_scene(write_scene(tmp_path, physics=physics)))
    env.reset(Condition("a", 0, {TOOL: (0.1, 0.1)}), RNG)
    env.apply(command(env, (0.5, 0.5)))
    env.advance()
    assert env.outcome().reason == "physics_diverged"


def test_success_is_sticky_and_terminal() -> None:
    env = SceneEnv(load_scene("pusht_reference"))
    env.reset(Condition("goal", 0, {TOOL: (0.05, 0.05), BLOCK: GOAL}), RNG)
    outcome = env.outcome()
    assert outcome.success
    assert outcome.terminal
    assert outcome.reason == "success"
    assert outcome.metrics["coverage"] == pytest.approx(1.0)
    env.data.qpos[2] += 0.1
    env.apply(command(env, (0.05, 0.05)))
    env.advance()
    later = env.outcome()
    assert later.success
    assert later.progress < 1.0
    assert later.metrics["max_coverage"] == pytest.approx(1.0)
    env.reset(Condition("a", 0, {TOOL: (0.05, 0.05), BLOCK: (0.1, 0.3, 0.0)}), RNG)
    assert not env.outcome().success


def test_the_tool_follows_the_published_law() -> None:
    # gym-pusht: v += (100 (target - x) - 20 v) / 100 s, x += v / 100 s; ten times per tick.
    env = SceneEnv(load_scene("pusht_reference"))
    env.reset(Condition("a", 0, {TOOL: (0.1, 0.1), BLOCK: (0.4, 0.4, 0.0)}), RNG)
    x, v = np.array([0.1, 0.1]), np.zeros(2)
    for k in range(20):
        target = np.array([0.1 + 0.01 * k, 0.3 - 0.01 * k])
        env.apply(command(env, target, k))
        env.advance()
        for _ in range(10):
            v = v + (100 * (target - x) - 20 * v) * 0.01
            x = x + v * 0.01
        assert np.allclose(env.observe().value(TOOL), x, atol=1e-9)


def test_an_unknown_action_of_the_controller_is_refused(tmp_path: Path) -> None:
    control = {**CONFIG["control"], "action": "tool/xy"}  # type: ignore[dict-item]
    with pytest.raises(SceneError, match="no action 'tool/xy'"):
        SceneEnv(load_scene(write_scene(tmp_path, control=control)))


SCRIPT = """
import hashlib, numpy as np
from robolearn.types import Command
from sim.worlds import make_world
env = make_world("pusht_reference")
env.reset(env.sample_condition(5), np.random.default_rng(0))
digest = hashlib.sha256()
for k in range(60):
    xy = np.array([.256 + .15 * np.cos(k / 9), .256 + .15 * np.sin(k / 9)])
    env.apply(Command(k, {"tool/xy_table": xy}, 0, "x"))
    env.advance()
    digest.update(env.observe().value("block/pose").tobytes())
print(digest.hexdigest())
"""


def test_two_processes_give_the_same_bits() -> None:
    root = Path(__file__).parents[3]
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == hashlib.sha256().digest_size * 2
