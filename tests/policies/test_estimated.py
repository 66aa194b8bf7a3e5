"""Signals that the recordings have and the policy does not: told from pictures."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.chunks.base import ESTIMATE
from policies.chunks.mirror import Mirror, MirrorConfig
from policies.imitation.bc import BcConfig
from policies.imitation.flow import FlowConfig
from policies.nets.encoder import decoded, encoded
from policies.nets.estimator import EstimateConfig
from policies.nets.pictures import PictureConfig, PictureEncoder, spatial_softmax
from policies.nets.transforms import fit_transform
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.store.stats import SignalStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.spec import SignalSpec
from robolearn.types import Condition, PolicyInput
from sim.worlds import make_world
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource
from tests.policies.nets.test_pictures import CAMERA, SEEN, SMALL

SPACE3 = dataclasses.replace(
    SPACE, observations=(*SEEN.observations, next(s for s in SPACE.observations if s.name == BLOCK))
)
TOLD = (EstimateConfig(BLOCK, (2,)),)


def blocks(episodes: int = 8, steps: int = 20) -> ArraySource:
    """A bright square shows where the block is, its colour where it points; the action is there."""
    items = []
    for k in range(episodes):
        rng = np.random.default_rng(k)
        place, yaw = rng.integers(1, 12, (steps, 2)), rng.uniform(-3, 3, steps)
        pictures = np.zeros((steps, 16, 16, 3), dtype=np.uint8)
        for t, (x, y) in enumerate(place):
            pictures[t, y : y + 4, x : x + 4] = 128 + np.array([0, 100, 0]) * np.sin(yaw[t])
        at = 0.1 + 0.02 * place
        values = {TOOL: rng.uniform(0.1, 0.4, (steps, 2)), CAMERA: pictures}
        values[BLOCK] = np.concatenate([at, yaw[:, None]], axis=1)
        items.append(EpisodeArrays(f"e{k}", values, at, np.zeros(steps)))
    return ArraySource(tuple(items), task_space=SPACE3)


def test_what_is_estimated_is_not_observed() -> None:
    config = BcConfig(
        **SMALL | {"n_obs": 1, "horizon": 1, "ema": 0.95, "estimated": TOLD, "batch_size": 64}
    )
    source = blocks()
    dataset = EpisodeDataset(flatten(source), config.batches(), 0)
    torch.manual_seed(0)
    algorithm = config.build(SPACE3, dataset.stats(), None)
    groups = algorithm.groups()
    assert set(groups) == {"bc", ESTIMATE}
    count = sum(len(g.parameters) for g in groups.values())
    assert count == len(list(algorithm.model.parameters()))
    optimizers = {n: torch.optim.AdamW(g.parameters, lr=5e-3) for n, g in groups.items()}
    rng = torch.Generator().manual_seed(0)
    for step in range(60):
        losses = algorithm(dataset.batch(step), step, rng).by_group
        for name, optimizer in optimizers.items():
            optimizer.zero_grad()
            losses[name].backward()
            optimizer.step()
        algorithm.after_update(step, frozenset())
    policy = algorithm.policy()
    assert [s.name for s in policy.spec.task_space.observations] == [TOOL, CAMERA]
    fresh = blocks(9).items[-1]
    asked = PolicyInput(
        {n: np.asarray(fresh.observations[n])[:, None] for n in (TOOL, CAMERA)},
        np.arange(20, dtype=np.int64),
        np.arange(20, dtype=np.int64),
    )
    error = policy.sample(asked).actions[:, 0, 0] - fresh.actions
    guess = np.abs(fresh.actions - fresh.actions.mean(axis=0)).mean()
    assert np.abs(error).mean() < 0.4 * guess


def test_actions_do_not_teach_the_eyes() -> None:
    config = FlowConfig(**SMALL, estimated=TOLD)
    dataset = EpisodeDataset(flatten(blocks(3)), config.batches(), 0)
    algorithm = config.build(SPACE3, dataset.stats(), None)
    losses = algorithm(dataset.batch(0), 0, torch.Generator().manual_seed(0)).by_group
    losses["flow"].backward(retain_graph=True)
    eyes = algorithm.groups()[ESTIMATE].parameters
    assert all(p.grad is None for p in eyes)
    losses[ESTIMATE].backward()
    assert all(p.grad is not None for p in eyes)


@pytest.mark.parametrize(
    ("space", "told", "error", "message"),
    [
        (SPACE, TOLD, SpecMismatchError, "without a camera"),
        (SEEN, TOLD, SpecMismatchError, "must be a vector in data.observations"),
        (SPACE3, (EstimateConfig(BLOCK),), ConfigError, r"is \[2\] in the data, \[\]"),
    ],
)
def test_what_cannot_be_estimated_is_refused(space, told, error, message) -> None:
    with pytest.raises(error, match=message):
        FlowConfig(**SMALL, estimated=told).policy_spec(space)


def test_features_of_a_signal_are_undone() -> None:
    values = torch.tensor([[0.1, 3.0, -0.2], [0.4, -2.0, 0.3]])
    low, high = (0.0, -4.0, -1.0), (0.5, 4.0, 1.0)
    stats = SignalStats(9, low, high, (0.2, 0.0, 0.0), (0.1, 2.0, 0.5))
    transform = fit_transform((3,), stats, "minmax", (1,))
    scale, offset = torch.tensor(transform.scale), torch.tensor(transform.offset)
    features = encoded(values, transform, scale, offset)
    np.testing.assert_allclose(features, transform.forward(values.numpy()), atol=1e-6)
    torch.testing.assert_close(decoded(features, transform, scale, offset), values)


class Brightest(nn.Module):
    """Where the picture is bright, as one point."""

    def forward(self, x: Tensor) -> Tensor:
        return spatial_softmax(40 * x[:, :1])


def test_a_crop_does_not_move_what_is_seen() -> None:
    camera = SignalSpec(CAMERA, (20, 30, 3), "", 10.0, "uint8")
    encoder = PictureEncoder((camera,), 1, PictureConfig(crop=0.7))
    encoder.nets[0] = Brightest()
    pictures = torch.zeros(8, 1, 20, 30, 3, dtype=torch.uint8)
    pictures[:, :, 9:11, 12:14] = 255
    whole = encoder({CAMERA: pictures}, None)
    # The centre of the square, in pixels from the left and upper edges.
    want = torch.tensor([2 * 13 / 30 - 1, 2 * 10 / 20 - 1])
    # Cells of a map are placed from edge to edge: off by less than half a pixel.
    assert (whole - want).abs().max() < 1 / 20
    cut = encoder({CAMERA: pictures}, torch.Generator().manual_seed(0))
    assert (cut - want).abs().max() < 1 / 20


@pytest.mark.parametrize("pose", [(0.2, 0.35, 0.7), (0.3, 0.2, -2.0)])
def test_a_mirrored_picture_is_a_picture_of_the_mirrored_world(pose) -> None:
    pytest.importorskip("gym_pusht")
    env = make_world("gym_pusht,camera=top,size=96")
    image, tool = "top/image", (0.1, 0.3)
    config = MirrorConfig((0.256, 0.256), 45.0, -90.0, (TOOL,), (BLOCK,), (image,))
    mirror = Mirror(config, env.spec.task_space([TOOL, BLOCK, image]))

    def seen(tool: tuple[float, ...], pose: tuple[float, ...]) -> Tensor:
        env.reset(Condition("x", 0, {TOOL: tool, BLOCK: pose}), np.random.default_rng(0))
        return torch.from_numpy(env.observe().value(image).copy())

    there = mirror.reflect(TOOL, torch.tensor(tool)).tolist()
    turned = mirror.reflect(BLOCK, torch.tensor(pose)).tolist()
    reflected = mirror.reflect(image, seen(tool, pose)).float()
    drawn, plain = seen(tuple(there), tuple(turned)).float(), seen(tool, pose).float()
    env.close()
    # Edges differ: pixels are not drawn symmetrically.
    assert (reflected - drawn).abs().mean() < 0.6 < 3.0 < (plain - drawn).abs().mean()


def test_pictures_are_reflected_pixel_by_pixel() -> None:
    # A mark in the right upper corner of a picture of 2 x 2 pixels, one line after the other.
    picture = torch.zeros(2, 2, 3, dtype=torch.uint8)
    picture[0, 1] = 255
    space = dataclasses.replace(
        SPACE, observations=(SignalSpec(CAMERA, (2, 2, 3), "", 10.0, "uint8"),)
    )
    where = {0.0: (1, 1), 45.0: (0, 1), 90.0: (0, 0), 135.0: (1, 0)}
    for axis, place in where.items():
        config = MirrorConfig((0.0, 0.0), axis, 0.0, (TOOL,), (), (CAMERA,))
        seen = Mirror(config, space).reflect(CAMERA, picture)
        assert seen[place].tolist() == [255] * 3
        assert int(seen.sum()) == 3 * 255
    with pytest.raises(ConfigError, match="multiple of 45"):
        Mirror(MirrorConfig((0.0, 0.0), 30.0, 0.0, (TOOL,), (), (CAMERA,)), space)
