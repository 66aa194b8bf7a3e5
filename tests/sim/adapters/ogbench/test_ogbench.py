"""OGBench's worlds as envs, and the data that its oracles make."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.critics.hindsight import HindsightConfig
from policies.offline_rl.goals.gciql import GciqlConfig
from robolearn import ogbench
from robolearn.cli.main import main
from robolearn.contracts import Env
from robolearn.data.episode import EpisodeMeta, episode_from_arrays
from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.reading.rewards import RewardConfig, rewarded
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, SceneError
from robolearn.operations.evaluate import EvaluateOptions, evaluate
from robolearn.operations.train import train
from robolearn.runtime import run_episode
from robolearn.spec import diff_task_spaces
from robolearn.training.experiment import Experiment
from robolearn.training.loop import FitConfig
from robolearn.types import Command, Condition
from sim.worlds import build_operator, make_world
from tests.contracts import EnvContract

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ogbench") is None, reason="OGBench is not installed (an extra)"
)
BLOCK = "block_0/pose"
SUITE = """
name: imported
task: ogbench_cube_single
max_steps: 2
subset: 1
protocol: one start
seed: 0
source_world: ogbench/cube-single
conditions:
  - {id: a, seed: 1, poses: {}}
"""


def cube_condition(seed: int) -> Condition:
    angle = 0.2 * seed
    pose = (0.4, 0.02 * seed, 0.02, np.cos(angle), 0.0, 0.0, np.sin(angle))
    return Condition(id=f"cube-{seed}", seed=seed, poses={BLOCK: pose})


@pytest.mark.slow
class TestCube(EnvContract):
    def make(self) -> Env:
        return make_world("ogbench/cube-single")

    def condition(self, seed: int) -> Condition:
        return cube_condition(seed)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["scene", "puzzle-3x3", "cube-double,mode=play"])
def test_every_world_keeps_the_contract(world: str) -> None:
    class OfWorld(EnvContract):
        def make(self) -> Env:
            return make_world(f"ogbench/{world}")

        def condition(self, seed: int) -> Condition:
            return Condition(id=f"{world}-{seed}", seed=seed, poses={})

    contract = OfWorld()
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)()


@pytest.fixture(scope="module")
def cube() -> Any:
    env = make_world("ogbench/cube-single,task=1")
    yield env
    env.close()


@pytest.fixture(scope="module")
def play() -> Any:
    env = make_world("ogbench/cube-single,mode=play")
    yield env
    env.close()


def send(env: Any, seq: int, tool: list[float], grip: float = 0.0) -> None:
    action = {"tool/delta_xyz_yaw": np.array(tool), "gripper/delta_closure": np.array([grip])}
    env.apply(Command(seq=seq, action=action, due_ns=env.now_ns(), source="test"))
    env.advance()
    env.drain()


def test_a_step_of_the_tool_is_in_metres(cube: Any) -> None:
    cube.reset(cube_condition(1), np.random.default_rng(0))
    before = cube.observe().value("tool/pose")
    for seq in range(10):
        send(cube, seq, [0.0, 0.02, 0.0, 0.0])
    moved = cube.observe().value("tool/pose")[:3] - before[:3]
    # Each goal is relative to where the tool is, so the tool lags behind the sum of them.
    assert 0.04 < moved[1] < 0.2
    assert np.abs(moved[[0, 2]]).max() < 0.02
    # The recorded commands are those of the SI units: OGBench gets their share of the limit.
    assert cube.observe().value("obs/state").shape == (28,)


def test_the_cube_at_its_goal_is_success(cube: Any) -> None:
    pose = (0.425, -0.1, 0.02, 1.0, 0.0, 0.0, 0.0)
    condition = Condition(id="goal", seed=0, poses={BLOCK: pose})
    report = cube.reset(condition, np.random.default_rng(0))
    np.testing.assert_allclose(report.achieved[BLOCK], pose, atol=1e-12)
    assert not cube.outcome().success
    send(cube, 0, [0.0, 0.0, 0.0, 0.0])
    outcome = cube.outcome()
    assert outcome.success
    assert outcome.terminal
    assert outcome.reward == 0.0


def test_the_oracle_plays_the_same_way_twice(play: Any) -> None:
    np.random.seed(7)  # noqa: NPY002 - the oracle must not touch the global generator
    before = np.random.random()  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    agent = build_operator(play, "play", 0.1)
    paths = []
    for _ in range(2):
        run_episode(play, agent, None, [], play.sample_condition(11), max_steps=25)
        paths.append(play.observe().value("tool/pose"))
    assert np.array_equal(paths[0], paths[1])
    play.reset(play.sample_condition(11), np.random.default_rng(0))
    assert np.linalg.norm(paths[0][:3] - play.observe().value("tool/pose")[:3]) > 0.02
    assert before == np.random.random()  # noqa: NPY002


@pytest.mark.slow
def test_play_moves_the_cube(play: Any) -> None:
    agent = build_operator(play, "play", 0.1)
    play.reset(play.sample_condition(11), np.random.default_rng(0))
    start = play.observe().value(BLOCK)
    run_episode(play, agent, None, [], play.sample_condition(11), max_steps=120)
    assert np.linalg.norm(play.observe().value(BLOCK)[:3] - start[:3]) > 0.02


def test_noise_and_modes_are_checked(cube: Any, play: Any) -> None:
    with pytest.raises(ConfigError, match="mode=play"):
        build_operator(cube, "play", 0.1)
    with pytest.raises(ConfigError, match="0 to 1"):
        build_operator(play, "scripted", 1.5)
    for name, message in (
        ("ogbench/cube-singel", "Did you mean 'cube-single'"),
        ("ogbench/cube-single,task=9", "task is 1 to 5"),
        ("ogbench/cube-single,mode=fun", "no mode 'fun'"),
    ):
        with pytest.raises(SceneError, match=message):
            make_world(name)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["play", "scripted"])
def test_collect_regenerates_play_data(tmp_path: Path, agent: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("world: ogbench/cube-single,mode=play\nmax_steps: 40\n")
    words = ["collect", "--config", str(config), "--out", str(tmp_path / "s"), "--agent", agent]
    assert main([*words, "--noise", "0.1", "--episodes", "2"]) == 0
    store = EpisodeStore.open(tmp_path / "s")
    for info in store.list():
        episode = store.read(info.id)
        assert info.kind == "scripted"
        assert info.agent.startswith("ogbench-1.2.2:")
        # Play does not end: the recording is cut, nothing is terminal.
        assert episode.truncated.tolist() == [False] * 39 + [True]
        assert not episode.terminal.any()
        assert episode.observed("obs/state").shape == (40, 28)


@pytest.mark.parametrize("away_m", [0.0, 0.2])
def test_rewards_of_a_single_task_are_a_relabelling_of_what_is_seen(
    cube: Any, away_m: float
) -> None:
    target = cube.ogbench.task_infos[0]["goal_xyzs"][0]
    x, y, z = target
    start = (x, y + away_m, z, 1.0, 0.0, 0.0, 0.0)
    cube.reset(Condition("c", 0, {BLOCK: start}), np.random.default_rng(0))
    seen, rewards = [], []
    for k in range(6):
        seen.append(cube.observe().value(BLOCK))
        send(cube, k, [0.0, 0.0, 0.0, 0.0])
        rewards.append(cube.outcome().reward)
    meta = EpisodeMeta("scripted", cube.task, cube.spec, Condition("c", 0, {}), cube.outcome())
    episode = episode_from_arrays(
        meta, {BLOCK: np.stack(seen)}, {}, progress=np.zeros(6), reward=np.array(rewards)
    )
    part = {"signal": BLOCK, "index": [0, 1, 2], "value": target.tolist(), "tolerance": 0.04}
    found = rewarded(episode, RewardConfig("reached", {"parts": [part]}), success=False)
    np.testing.assert_array_equal(found.reward, rewards)
    assert found.done.tolist() == [away_m == 0.0] * 6


def test_play_shows_where_goals_are_put_in(cube: Any, play: Any) -> None:
    def shown(env: Any) -> set[tuple[str, tuple[int, ...]]]:
        return {(s.name, s.shape) for s in env.spec.signals}

    assert shown(cube) == shown(play)
    play.reset(play.sample_condition(3), np.random.default_rng(0))
    seen = play.observe()
    np.testing.assert_array_equal(seen.value("goal/state"), seen.value("obs/state"))


def test_a_policy_of_an_imported_file_runs_in_its_world(tmp_path: Path, play: Any) -> None:
    play.reset(play.sample_condition(1), np.random.default_rng(0))
    done = np.random.default_rng(0).uniform(-1, 1, (12, 5))
    seen, poses, commands = [], [], []
    for seq, action in enumerate(done):
        observation = play.observe()
        seen.append(observation.value("obs/state"))
        poses.append(observation.value(BLOCK))
        commands.append({k: v[0] for k, v in ogbench.si_actions(action[None]).items()})
        play.apply(Command(seq, commands[-1], play.now_ns(), "test"))
        play.advance()
        play.drain()
    path = tmp_path / "cube-single-play-v0.npz"
    ends = np.arange(12) == 11
    np.savez(path, observations=np.stack(seen), actions=done, terminals=ends)
    store = EpisodeStore.create(tmp_path / "store")
    recording = find_importer(path)[1].open(path, ImportOptions())
    write_recording(recording, store, ImportOptions())
    episode = store.read("ep_000000")
    np.testing.assert_allclose(episode.observed(BLOCK), np.stack(poses), atol=1e-12)
    for name, values in episode.action.items():
        np.testing.assert_array_equal(values, [c[name] for c in commands])

    assert episode.meta.embodiment.actions == play.spec.actions
    assert episode.meta.embodiment.name == play.spec.name
    wanted = episode.meta.embodiment.task_space(("obs/state", "goal/state", BLOCK))
    assert diff_task_spaces(wanted, play.spec) == []

    experiment = Experiment(
        "gciql",
        DataConfig(("obs/state", "goal/state"), kinds=("scripted",)),
        GciqlConfig(
            width=8,
            depth=1,
            batch_size=4,
            goals=HindsightConfig((("goal/state", "obs/state"),)),
        ),
        FitConfig(steps=2, warmup=1, log_every=1),
    )
    run = train(experiment, tmp_path / "run", store.path).run_dir
    (tmp_path / "suite.yaml").write_text(SUITE)
    options = EvaluateOptions(
        suite=tmp_path / "suite.yaml", conditions=1, workers=0, videos=0, repeat=False
    )
    trials = evaluate((run,), tmp_path / "trials", options).trials
    assert [(t.env, t.steps) for t in trials] == [("ogbench/cube-single", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("world", ["scene", "puzzle-3x3"])
def test_sizes_of_observations(world: str) -> None:
    env = make_world(f"ogbench/{world}")
    assert env.spec.signal("obs/state").shape == (ogbench.WORLDS[world].observed,)
    env.close()
