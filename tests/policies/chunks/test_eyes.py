"""What builds on a policy that tells signals from its pictures sees them by it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.chunks.eyes import SeeingPolicy, eyes_of, told
from policies.critics.reranked import RerankedPolicy
from policies.imitation.flow import FlowConfig
from policies.nets.estimator import EstimateConfig
from policies.nets.pictures import PictureConfig
from policies.offline_rl.idql import IdqlConfig
from policies.registry import load_policy, policy_of
from robolearn.contracts import Policy
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import CheckpointError, SpecMismatchError
from robolearn.operations.practice.experiment import practice_experiment
from robolearn.operations.practice.finetune import finetune
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run, nested_run
from robolearn.types import PolicyInput
from sim.worlds import make_world
from tests.learning_mocks import ArraySource

TOP = "top/image"
WORLD = "gym_pusht,camera=top,size=32"
PICTURE = PictureConfig(channels=(8, 8, 8), blocks=1, points=4, crop=0.9)
DATA = DataConfig(observations=(TOOL, TOP, BLOCK))
FIT = FitConfig(steps=2, warmup=1, log_every=1, checkpoint_every=2)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flow policy that tells the block's pose from pictures, hardly trained."""
    pytest.importorskip("gym_pusht")
    env = make_world(WORLD)
    space = env.spec.task_space([TOOL, TOP, BLOCK])
    env.close()
    items: list[EpisodeArrays] = []
    for k in range(3):
        rng = np.random.default_rng(k)
        values = {
            TOOL: rng.uniform(0.1, 0.4, (12, 2)),
            TOP: rng.integers(0, 255, (12, 32, 32, 3), dtype=np.uint8),
            BLOCK: rng.uniform(0.1, 0.4, (12, 3)),
        }
        items.append(EpisodeArrays(f"e{k}", values, values[TOOL] + 0.01, np.zeros(12)))
    config = FlowConfig(
        n_obs=1, horizon=8, execute=4, width=16, blocks=1, batch_size=8, picture=PICTURE,
        estimated=(EstimateConfig(BLOCK, (2,)),), relative=((TOOL, BLOCK),),
    )  # fmt: skip
    out = tmp_path_factory.mktemp("eyes") / "flow"
    source = ArraySource(tuple(items), task_space=space)
    train(Experiment("flow", DATA, config, FIT), source, out, cache_dir=out.parent / "cache")
    return out


@pytest.fixture(scope="module")
def practised(parent: Path) -> Path:
    settings = {
        "algorithm.width": 16,
        "algorithm.batch_size": 16,
        "practice.lanes": 2,
        "practice.max_steps": 24,
        "practice.warmup_episodes": 2,
        "practice.critic_updates": 3,
        "practice.test_every": 0,
        "practice.test_starts": 2,
        "practice.max_episodes": 4,
        "practice.max_drift": 1e6,
        "fit.diagnose_every": 1,
        "practice.disk_gib": 0.0,
    }
    out = parent.parent / "practised"
    experiment = practice_experiment(load_run(parent), None, settings)
    result = finetune(experiment, parent, (WORLD,), parent.parent / "store", out)
    assert (result.kept, result.sound, result.episodes) == ("last", True, 4)
    return out


def asked(policy: Policy, rows: int = 2) -> PolicyInput:
    rng = np.random.default_rng(5)
    seen = {
        s.name: rng.integers(0, 255, (rows, 1, *s.shape), dtype=np.uint8)
        if s.is_image
        else rng.uniform(0.1, 0.4, (rows, 1, *s.shape))
        for s in policy.spec.task_space.observations
    }
    numbers = np.arange(rows, dtype=np.int64)
    return PolicyInput(seen, numbers, numbers)


def test_critics_learn_without_pictures_and_act_by_what_the_parent_tells(practised: Path) -> None:
    run = load_run(practised)
    assert run.config["data"]["observations"] == [TOOL, BLOCK]
    # What it needs in a deployment is what its parent needs.
    assert [s.name for s in run.spec.task_space.observations] == [TOOL, TOP]
    policy = load_policy(practised)
    assert isinstance(policy, SeeingPolicy)
    assert isinstance(policy.inner, RerankedPolicy)
    assert policy.spec == load_policy(practised / "parent").spec
    request = asked(policy)
    answer = policy.sample(request, 2)
    assert answer.actions.shape == (2, 2, 8, 2)
    # As the policy inside is told it by the parent's own eyes.
    pictures = {n: torch.from_numpy(np.float32(v) if n == TOOL else v)
                for n, v in request.observations.items()}  # fmt: skip
    with torch.inference_mode():
        seen = policy.eyes(pictures)
    plain = dataclasses.replace(
        request, observations={n: v.double().numpy() for n, v in seen.items()}
    )
    np.testing.assert_array_equal(policy.inner.sample(plain, 2).actions, answer.actions)
    # Another picture, another answer.
    request.observations[TOP][:] = 255 - request.observations[TOP]
    assert not np.array_equal(policy.sample(request, 2).actions, answer.actions)


def test_practice_goes_on_over_what_sees_by_a_parent(practised: Path) -> None:
    experiment = practice_experiment(load_run(practised), None, {"algorithm.candidates": 3})
    assert experiment.experiment.data.observations == (TOOL, BLOCK)


def test_the_chunks_are_the_parents_own(parent: Path, practised: Path) -> None:
    alone = load_policy(parent)
    request = asked(alone)
    chunks = alone.sample(request, 8).actions
    best = load_policy(practised).sample(request, 1).actions[:, 0]
    for row in range(2):
        apart = np.abs(chunks[row] - best[row]).reshape(8, -1).max(axis=1)
        assert apart.min() < 1e-6


def test_a_graph_answers_as_the_policy_does(practised: Path) -> None:
    policy = load_policy(practised)
    assert isinstance(policy, SeeingPolicy)
    graph, request = policy.graph(), asked(policy)
    pictures = {n: torch.from_numpy(np.float32(v) if n == TOOL else v)
                for n, v in request.observations.items()}  # fmt: skip
    noise = torch.zeros(2, 1, graph.draws, 8, 2)
    with torch.inference_mode():
        found = graph.several(noise, pictures)
        inside = policy.inner.graph().several(noise, policy.eyes(pictures))  # type: ignore[attr-defined]
    torch.testing.assert_close(found, inside, rtol=0, atol=0)


def test_eyes_that_are_gone_are_missed(practised: Path, tmp_path: Path) -> None:
    run = load_run(practised)
    other = dataclasses.replace(nested_run(run, "parent"), path=tmp_path)
    # Somebody wrote a run that observes pictures, learned from none and has no parent.
    config = {**other.config, "data": {**other.config["data"], "observations": [TOOL, BLOCK]}}
    with pytest.raises(CheckpointError, match="parent"):
        policy_of(dataclasses.replace(other, config=config))


def test_who_has_no_eyes_is_told_nothing(parent: Path) -> None:
    seeing = load_policy(parent)
    blind = told(seeing)
    assert [s.name for s in blind.spec.task_space.observations] == [TOOL, BLOCK]
    assert eyes_of(blind) is None
    assert told(blind) is blind


def test_what_is_not_told_from_pictures_must_be_the_recorded_signal(parent: Path) -> None:
    """Of the pose that the pictures tell a run says shape and angles alone; of the tool all."""
    run = load_run(parent)
    space = told(load_policy(parent)).spec.task_space
    tool, block = space.observations
    config = IdqlConfig(n_obs=1, horizon=8, stride=4)
    named = dataclasses.replace(block, unit="m", frame="table")
    config.build(dataclasses.replace(space, observations=(tool, named)), run.stats, run)
    tool = dataclasses.replace(tool, frame="elsewhere")
    with pytest.raises(SpecMismatchError, match="another task space"):
        config.build(dataclasses.replace(space, observations=(tool, named)), run.stats, run)


def test_signals_of_another_shape_are_no_parents(parent: Path) -> None:
    run = load_run(parent)
    space = load_policy(parent).spec.task_space
    wide = dataclasses.replace(
        space,
        observations=(
            space.observations[0],
            dataclasses.replace(space.observations[0], name=BLOCK),
        ),
    )
    with pytest.raises(SpecMismatchError, match="another task space"):
        IdqlConfig(n_obs=1, horizon=8, stride=4).build(wide, run.stats, run)
