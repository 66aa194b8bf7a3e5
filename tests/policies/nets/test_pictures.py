"""Every policy sees cameras: a mixed task space, a toy that only the picture can solve."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.chunks.base import ChunkAlgorithm, ChunkConfig
from policies.imitation.act import ActConfig
from policies.imitation.bc import BcConfig
from policies.imitation.bc_rnn import BcRnnConfig
from policies.imitation.flow import FlowConfig
from policies.nets.pictures import PictureConfig
from policies.registry import PolicyConfig
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import SpecMismatchError
from robolearn.seeding import child_seed
from robolearn.spec import SignalSpec
from robolearn.training.experiment import Experiment
from robolearn.training.loop import FitConfig, fit
from robolearn.training.run_directory import WEIGHTS, load_run, write_json, write_run, write_tensors
from robolearn.types import PolicyInput
from tests.learning_mocks import SPACE, TOOL, ArraySource

CAMERA = "wrist/image"
SEEN = dataclasses.replace(
    SPACE,
    observations=(SPACE.observations[0], SignalSpec(CAMERA, (16, 16, 3), "", 10.0, "uint8")),
)
ONLY = dataclasses.replace(SPACE, observations=SEEN.observations[1:])
SMALL = {
    "n_obs": 2,
    "horizon": 2,
    "execute": 1,
    "width": 32,
    "blocks": 1,
    "batch_size": 32,
    "lr": 3e-3,
    "picture": PictureConfig((8, 16), stride=2, points=4, crop=0.9),
}


def dots(space=SEEN, episodes: int = 6, steps: int = 20) -> ArraySource:
    """The action points at a bright square in the picture."""
    items = []
    for k in range(episodes):
        rng = np.random.default_rng(k)
        place = rng.integers(1, 12, (steps, 2))
        pictures = np.zeros((steps, 16, 16, 3), dtype=np.uint8)
        for t, (x, y) in enumerate(place):
            pictures[t, y : y + 4, x : x + 4] = 255
        values = {TOOL: rng.uniform(0.1, 0.4, (steps, 2)), CAMERA: pictures}
        observed = {s.name: values[s.name] for s in space.observations}
        items.append(EpisodeArrays(f"e{k}", observed, 0.1 + 0.02 * place, np.zeros(steps)))
    return ArraySource(tuple(items), task_space=space)


def request(space=SEEN, batch: int = 4, n_obs: int = 2) -> PolicyInput:
    rng = np.random.default_rng(0)
    values = {
        TOOL: rng.uniform(0.1, 0.4, (batch, n_obs, 2)),
        CAMERA: rng.integers(0, 255, (batch, n_obs, 16, 16, 3), dtype=np.uint8),
    }
    return PolicyInput(
        observations={s.name: values[s.name] for s in space.observations},
        t_ns=np.arange(batch, dtype=np.int64),
        seed=rng.integers(0, 2**62, batch),
    )


def built(config: ChunkConfig, space=SEEN) -> tuple[ChunkAlgorithm, EpisodeDataset]:
    torch.manual_seed(0)
    dataset = EpisodeDataset(flatten(dots(space)), config.batches(), 0)
    assert isinstance(config, PolicyConfig)
    algorithm = config.build(space, dataset.stats(), None)
    assert isinstance(algorithm, ChunkAlgorithm)
    return algorithm, dataset


@pytest.mark.parametrize("space", [SEEN, ONLY], ids=["mixed", "pictures alone"])
@pytest.mark.parametrize("kind", [FlowConfig, ActConfig, BcRnnConfig])
def test_a_step_is_taken_and_each_row_stands_alone(kind, space, tmp_path: Path) -> None:
    config = kind(**SMALL)
    algorithm, dataset = built(config, space)
    (loss,) = algorithm(dataset.batch(0), 0, torch.Generator().manual_seed(0)).by_group.values()
    loss.backward()
    assert algorithm.model.pictures is not None
    stem = algorithm.model.pictures.get_parameter("nets.0.stem.weight")
    assert stem.grad is not None
    experiment = Experiment("x", DataConfig((CAMERA,)), config, FitConfig(1))
    write_run(tmp_path, experiment.plain(), algorithm.policy().spec, dataset.stats())
    write_tensors(tmp_path / WEIGHTS, algorithm.policy_weights(), {})
    write_json(tmp_path / "provenance.json", {})
    policy = config.load(load_run(tmp_path))
    asked = request(space)
    whole = policy.sample(asked).actions
    np.testing.assert_array_equal(policy.sample(asked).actions, whole)
    one = PolicyInput(
        {k: v[1:2] for k, v in asked.observations.items()}, asked.t_ns[1:2], asked.seed[1:2]
    )
    np.testing.assert_allclose(policy.sample(one).actions[0], whole[1], atol=1e-5)


def test_wrong_pictures_are_refused() -> None:
    algorithm, _ = built(FlowConfig(**SMALL))
    asked = request()
    floats = dict(asked.observations) | {CAMERA: asked.observations[CAMERA].astype(np.float64)}
    with pytest.raises(SpecMismatchError, match="should be uint8 pictures"):
        algorithm.policy().sample(dataclasses.replace(asked, observations=floats))


def test_a_picture_says_where_to_go() -> None:
    config = BcConfig(**SMALL | {"n_obs": 1, "horizon": 1, "batch_size": 64}, ema=0.95)
    algorithm, dataset = built(config, ONLY)
    optimizer = torch.optim.AdamW(algorithm.model.parameters(), lr=5e-3)
    rng = torch.Generator().manual_seed(0)
    for step in range(60):
        (loss,) = algorithm(dataset.batch(step), step, rng).by_group.values()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        algorithm.after_update(step, frozenset())
    fresh = dots(ONLY, episodes=8).items[-1]
    asked = PolicyInput(
        {CAMERA: np.asarray(fresh.observations[CAMERA])[:, None]},
        np.arange(20, dtype=np.int64),
        np.arange(20, dtype=np.int64),
    )
    error = algorithm.policy().sample(asked).actions[:, 0, 0] - fresh.actions
    guess = np.abs(fresh.actions - fresh.actions.mean(axis=0)).mean()
    assert np.abs(error).mean() < 0.4 * guess


def test_the_loop_steps_where_backward_points(tmp_path: Path) -> None:
    # Convolutions over channels_last pictures hand their gradients out in another memory order.
    config = BcConfig(**SMALL)
    looped, dataset = built(config)
    plain, _ = built(config)
    fit(looped, dataset, FitConfig(2, warmup=0, schedule="constant"), tmp_path, seed=3)
    rates = {"lr": config.lr, "betas": (0.9, 0.95), "weight_decay": 1e-4}
    optimizer = torch.optim.AdamW(plain.model.parameters(), **rates, fused=True)
    for step in range(2):
        rng = torch.Generator().manual_seed(child_seed(3, "fit", step))
        (loss,) = plain(dataset.batch(step), step, rng).by_group.values()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
        optimizer.step()
    for (name, one), other in zip(
        looped.model.named_parameters(), plain.model.parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0.0, msg=name)
