"""The lab's workcell in process: what hides comes from the seed, and an expert solves its tasks."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
import yaml

from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT
from robolearn.arms.models import UR5E
from robolearn.config import find_config
from robolearn.contracts import Env
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import SceneError
from robolearn.operations.builders import env_builder
from robolearn.operations.code_hash import reality_files
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.reality.worlds import (
    described_worlds,
    is_scene,
    make_world,
    said_goal,
    world_names,
)
from robolearn.operations.scenes.handled_objects import handlings
from robolearn.operations.scenes.identify_arm import motion_of
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.operations.suites import world_label
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command
from sim.identification.arm_motion import require_usable
from sim.identification.object_model import object_models
from sim.scene.load import load_scene
from sim.world_name import WorldName
from sim.worlds import build_operator

pytest.importorskip("pybullet")


def driven(env: Env, ticks: int, seed: int = 5) -> tuple[dict, list[np.ndarray]]:
    """Push for some ticks: what was achieved at the start, and where the T was told to be."""
    condition = env.sample_condition(seed)
    report = env.reset(condition, np.random.default_rng(0))
    start = report.achieved[TOOL]
    seen = []
    for k in range(ticks):
        target = np.clip(start + 0.01 * k * np.array([1.0, 0.5]), 0.0, 0.5)
        env.apply(Command(seq=k, action={TOOL: target}, due_ns=env.now_ns(), source="test"))
        env.advance()
        observation = env.observe()
        seen.append(np.concatenate([observation.value(TOOL), observation.value(BLOCK)]))
    return report.achieved, seen


def test_what_is_hidden_comes_from_the_seed_and_repeats() -> None:
    with contextlib.closing(make_world("reality/pusht,seed=3")) as env:
        start, first = driven(env, 5)
        wanted = env.sample_condition(5).poses
        # The tool stands there, the tracker says where the T is with its noise.
        assert start[TOOL] == pytest.approx(wanted[TOOL], abs=1e-3)
        assert 0.0 < np.abs(start[BLOCK][:2] - wanted[BLOCK][:2]).max() < 0.002
        errors = env.reset(env.sample_condition(5), np.random.default_rng(0)).standard_errors
        assert errors == {BLOCK: (0.0003, 0.0017)}
        again = driven(env, 5)[1]
        assert np.array_equal(first, again)
        blocks = env.drain().signals
        # A tracker's poses come at its own rate, when they were captured; joints, set-points and
        # the tool at the controller's, as from a cell.
        assert len(blocks[BLOCK].t_ns) > 5
        for name in (TOOL, JOINT_POSITION, JOINT_SETPOINT):
            assert set(np.diff(blocks[name].t_ns)) == {2_000_000}, name
        assert np.all(np.diff(blocks[BLOCK].t_ns) > 0)
        assert blocks[BLOCK].t_ns[-1] < env.now_ns()
        # The arm lags behind what it is told.
        told = wanted[TOOL][0] + 0.04
        assert 0.002 < told - first[-1][0] < 0.03
        own = env.scene_hash
    with contextlib.closing(make_world("reality/pusht,seed=4")) as env:
        assert env.scene_hash != own
        assert not np.array_equal(first, driven(env, 5)[1])


def test_an_expert_picks_and_places_in_it() -> None:
    with contextlib.closing(env_builder("reality/pick_place,seed=1")()) as env:
        agent = build_operator(env, "scripted", 0.0)
        env.reset(env.sample_condition(2), np.random.default_rng(0))
        agent.reset(2)
        for _ in range(env.max_steps):
            env.apply(agent.decide(env.observe(), None))
            env.advance()
            if env.outcome().terminal or env.outcome().truncated:
                break
        assert env.outcome().success
        assert env.observe().value("gripper/width").shape == (1,)


def test_names() -> None:
    assert {"reality/pusht", "reality/pick_place"} <= set(world_names())
    assert described_worlds()["reality/pusht"].startswith("Push-T")
    assert not is_scene(WorldName.parse("reality/pusht"))
    assert is_scene(WorldName.parse("pick_place"))
    assert world_label("reality/pusht,seed=3") == "reality/pusht,seed=3"
    assert said_goal("reality/pusht,seed=3") is None
    assert said_goal("reality/pusht,goal=0.2:0.2:0.5") == (0.2, 0.2, 0.5)
    for name, said in (
        ("reality/pushd", "Did you mean 'reality/pusht'"),
        ("reality/pusht,seed=x", "a whole number"),
        ("reality/pusht,camera=top", "no option 'camera'"),
        ("reality/pick_place,goal=0.2:0.2:0.5", "only Push-T has a goal"),
    ):
        with pytest.raises(SceneError, match=said):
            make_world(name)


def test_its_code_decides_trials() -> None:
    names = [path.as_posix() for path in reality_files()]
    for ending in ("reality/env.py", "emulators/drivetrain.py", "emulators/tracker.py",
                   "supervisor/table_follower.py", "plants/grip.py"):  # fmt: skip
        assert any(name.endswith(ending) for name in names), ending


def test_what_a_reality_recorded_tells_of_its_arm(tmp_path) -> None:
    raw = yaml.safe_load(find_config(Path("configs/hardware/lab_ur5e.yaml")).read_text())
    raw["lab"]["devices"]["controller"]["rate_hz"] = raw["robot"]["driver"]["rate_hz"] = 100
    raw["robot"]["wrench"] = True
    cell = tmp_path / "cell.yaml"
    cell.write_text(yaml.safe_dump(raw))
    # The name has options, which worlds of other families do not know.
    config = CollectConfig(world=f"reality/pusht,seed=3,cell={cell}", max_steps=25, seed=4)
    collect(config, tmp_path / "store", CollectOptions(agent="scripted", episodes=1))
    store = EpisodeStore.open(tmp_path / "store")
    episode = store.read(store.ids()[0])
    motion = motion_of(episode, UR5E.dof)
    require_usable(motion, UR5E)
    assert np.median(np.diff(motion.measured_t_s)) == pytest.approx(0.01)
    assert np.ptp(motion.measured, axis=0).max() > 0.05
    (block,) = object_models(load_scene("pusht_ur5e"))
    (handled,) = handlings(episode, block)
    assert len(handled.force) == len(motion.measured)


def test_every_operation_builds_worlds_where_realities_are_known() -> None:
    # sim.worlds does not know them: what asks it refuses 'reality/pusht,seed=3', also a film after
    # hours of trials.
    others = [
        str(path)
        for path in sorted(Path("robolearn").rglob("*.py"))
        if path.parent.name != "reality"
        and any(
            "from sim.worlds import" in line and "make_world" in line
            for line in path.read_text().splitlines()
        )
    ]
    assert not others
