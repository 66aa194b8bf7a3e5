"""Composition: combinations of fields whose densities are known."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.chunks.base import ChunkAlgorithm
from policies.chunks.policy import ChunkPolicy, FieldChunkPolicy
from policies.imitation.compose import (
    ComposeConfig,
    ComposedModel,
    Operator,
    compose,
    equal_growth,
    growth,
    score,
)
from policies.imitation.diffusion import DiffusionConfig
from policies.imitation.flow import FlowConfig
from policies.registry import load_policy
from robolearn.contracts import Policy
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.learning import FieldPolicy
from robolearn.operations.compose import ComposedBuilder, write_composed
from robolearn.training.run_directory import load_run
from tests.contracts import PolicyContract
from tests.learning_mocks import random_request
from tests.policies.family import learn, mode_shares, two_modes, untrained
from tests.policies.nets.test_pictures import CAMERA, SEEN, SMALL, dots, request

FLOW = FlowConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)
DIFFUSION = DiffusionConfig(n_obs=2, horizon=4, execute=2, width=24, blocks=1, batch_size=16)


def composed(config: ComposeConfig) -> ChunkPolicy | FieldChunkPolicy:
    return compose([untrained(FLOW).policy(), untrained(DIFFUSION).policy()], config)


class TestConvexContract(PolicyContract):
    def make(self) -> Policy:
        return composed(ComposeConfig("convex", (0.3, 0.7)))


class TestOrContract(PolicyContract):
    def make(self) -> Policy:
        return composed(ComposeConfig("or", (0.5, 0.5)))


class TestAndContract(PolicyContract):
    def make(self) -> Policy:
        return composed(ComposeConfig("and"))


def test_all_the_weight_on_one_is_that_one() -> None:
    flow = untrained(dataclasses.replace(FLOW, time_shift=1.0)).policy()
    other = untrained(DIFFUSION).policy()
    request = random_request(3)
    alone = flow.sample(request).actions
    both = compose([flow, other], ComposeConfig("convex", (1.0, 0.0))).sample(request).actions
    torch.testing.assert_close(torch.tensor(both), torch.tensor(alone), atol=1e-5, rtol=0)


def test_it_is_a_field_policy() -> None:
    policy = composed(ComposeConfig("convex", (0.25, 0.75)))
    assert isinstance(policy, FieldPolicy)
    request = random_request(3)
    x, t = torch.randn(3, 4, 2), torch.full((3,), 0.5)
    each = [untrained(config).policy() for config in (FLOW, DIFFUSION)]
    parts = [p.field(x, t, p.context(request)) for p in each]
    v = policy.field(x, t, policy.context(request))
    torch.testing.assert_close(v, 0.25 * parts[0] + 0.75 * parts[1])


def gaussian(mean: float, std: float):
    """The exact field of data a ~ N(mean, std^2), every number by itself."""

    def field(x: Tensor, t: Tensor, context: Tensor) -> Tensor:
        s = t[:, None, None]
        variance = (1 - s) ** 2 + (s * std) ** 2
        return mean + (s * std**2 - (1 - s)) / variance * (x - s * mean)

    return field


def test_score_and_growth_of_gaussians() -> None:
    """Against the log density of x_t, differentiated numerically along a path."""
    mean, std, t, h = 0.4, 0.6, 0.45, 1e-4
    field = gaussian(mean, std)
    x = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at = torch.full((5,), t, dtype=torch.float64)

    def log_density(x: Tensor, t: float) -> Tensor:
        spread = ((1 - t) ** 2 + (t * std) ** 2) ** 0.5
        return (-0.5 * ((x - t * mean) / spread) ** 2 - math.log(spread)).sum(dim=(1, 2))

    v = field(x, at, x)
    slope = (t * std**2 - (1 - t)) / ((1 - t) ** 2 + (t * std) ** 2)
    expected = -(x - t * mean) / ((1 - t) ** 2 + (t * std) ** 2)
    torch.testing.assert_close(score(x, t, v), expected)
    moving = torch.randn_like(x)
    found = growth(x, t, moving, [v], [torch.full((5,), 8 * slope, dtype=torch.float64)])[:, 0]
    ahead, behind = log_density(x + h * moving, t + h), log_density(x - h * moving, t - h)
    torch.testing.assert_close(found, (ahead - behind) / (2 * h), atol=1e-5, rtol=1e-5)


def test_and_makes_both_densities_grow_alike() -> None:
    rng = torch.Generator().manual_seed(0)
    x = 0.3 * torch.randn(50, 4, 2, generator=rng)
    t = 0.5
    at = torch.full((50,), t)
    fields = [gaussian(0.5, 0.4)(x, at, x), gaussian(-0.5, 0.4)(x, at, x)]
    same = torch.full((50,), 3.0)
    k = equal_growth(x, t, fields, [same, same])
    v = k[:, None, None] * fields[0] + (1 - k[:, None, None]) * fields[1]
    grown = growth(x, t, v, fields, [same, same])
    inside = (k > 0) & (k < 1)
    assert inside.float().mean() > 0.5
    torch.testing.assert_close(grown[inside, 0], grown[inside, 1], atol=1e-4, rtol=1e-4)
    assert equal_growth(x, t, [fields[0], fields[0]], [same, same]).tolist() == [0.5] * 50


def two_gaussians(config: ComposeConfig) -> Tensor:
    model = composed(config).model
    assert isinstance(model, ComposedModel)
    for part, mean in zip(model.parts, (0.6, -0.6), strict=True):
        part.velocity = gaussian(mean, 0.1)  # type: ignore[method-assign]
    noise = torch.randn(200, 1, 4, 2, generator=torch.Generator().manual_seed(0))
    return model.generate(noise, torch.zeros(200, model.context_size)).mean(dim=(1, 2))


def test_or_does_one_or_the_other_and_convex_the_middle() -> None:
    """Modes at +-0.6 with deviation 0.1: 'or' samples are at a mode, the others between."""
    either = two_gaussians(ComposeConfig("or", (0.5, 0.5), sampler_steps=20))
    near = (either.abs() - 0.6).abs() < 0.2
    assert near.float().mean() > 0.9
    assert 0.2 < (either > 0).float().mean() < 0.8
    middle = two_gaussians(ComposeConfig("convex", (0.5, 0.5), sampler_steps=20))
    assert (middle.abs() < 0.2).float().mean() > 0.9
    both = two_gaussians(ComposeConfig("and", sampler_steps=20))
    assert both.abs().mean() < either.abs().mean()


@pytest.mark.parametrize("weights", [(0.2, 0.3, 0.5), (0.0, 1.0, 0.0)])
def test_three_policies_move_by_the_weighted_mean(weights: tuple[float, ...]) -> None:
    parts = [untrained(config).policy() for config in (FLOW, DIFFUSION, FLOW)]
    policy = compose(parts, ComposeConfig("convex", weights))
    request = random_request(3)
    x, t = torch.randn(3, 4, 2), torch.full((3,), 0.4)
    seen = policy.context(request)
    widths = [part.model.context_size for part in parts]
    each = [
        part.model.velocity(x, t, context)
        for part, context in zip(parts, seen.split(widths, dim=-1), strict=True)
    ]
    wanted = sum(w * v for w, v in zip(weights, each, strict=True))
    torch.testing.assert_close(policy.field(x, t, seen), wanted, atol=1e-5, rtol=1e-5)
    assert policy.sample(request).actions.shape == (3, 1, 4, 2)


@pytest.mark.parametrize("operator", ["convex", "or", "and"])
def test_policies_that_see_pictures_are_combined(operator: Operator) -> None:
    """What the camera shows decides, as in each of them."""
    dataset = EpisodeDataset(flatten(dots()), FlowConfig(**SMALL).batches(), 0)
    parts: list[Policy] = []
    for config in (FlowConfig(**SMALL), DiffusionConfig(**SMALL)):
        built = config.build(SEEN, dataset.stats(), None)
        assert isinstance(built, ChunkAlgorithm)
        for parameter in built.ema.parameters():
            parameter.data.add_(0.05 * torch.randn(parameter.shape))
        parts.append(built.policy())
    policy = compose(parts, ComposeConfig(operator))
    asked = request()
    answer = policy.sample(asked).actions
    assert answer.shape == (4, 1, 2, 2)
    black = np.zeros_like(asked.observations[CAMERA])
    blind = dataclasses.replace(asked, observations={**asked.observations, CAMERA: black})
    assert np.abs(policy.sample(blind).actions - answer).max() > 1e-5


def test_a_composed_run_is_complete_and_loads(tmp_path: Path) -> None:
    toy = {"n_obs": 1, "horizon": 2, "execute": 1, "width": 32, "blocks": 2, "lr": 3e-3}
    learn(FlowConfig(**toy, batch_size=64, ema=0.97), two_modes(), tmp_path, 80)
    learn(
        DiffusionConfig(**toy, batch_size=64, ema=0.97, levels=20, clip=1.0),
        two_modes(),
        tmp_path,
        80,
    )
    runs = (tmp_path / "flow", tmp_path / "diffusion")
    builder = ComposedBuilder(runs, "convex", (0.5, 0.5), 8)
    digest = write_composed(tmp_path / "both", builder)
    assert load_run(tmp_path / "both").policy_hash == digest
    other = write_composed(tmp_path / "other", dataclasses.replace(builder, weights=(0.4, 0.6)))
    assert other != digest
    again = write_composed(tmp_path / "again", dataclasses.replace(builder, steps=4))
    assert again != digest
    policy = load_policy(tmp_path / "both")
    left, right = mode_shares(policy)
    assert min(left, right) > 0.1
    request = random_request(3, 1)
    assert (policy.sample(request).actions == builder().sample(request).actions).all()
    (tmp_path / "both" / "parts" / "1").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"parts/1/config\.yaml is absent"):
        load_policy(tmp_path / "both")
    with pytest.raises(CheckpointError, match=r"lacks the policies \['1'\]"):
        load_policy(tmp_path / "both", accept_edited=True)


def test_what_does_not_fit_is_explained() -> None:
    flow = untrained(FLOW).policy()
    with pytest.raises(SpecMismatchError, match="sees or does something else"):
        compose(
            [flow, untrained(dataclasses.replace(DIFFUSION, n_obs=3)).policy()], ComposeConfig()
        )
    with pytest.raises(SpecMismatchError, match="scale actions differently"):
        compose([flow, untrained(dataclasses.replace(FLOW, anchor=2.0)).policy()], ComposeConfig())
    with pytest.raises(ConfigError, match="2 policies, but 3 weights"):
        compose([flow, flow], ComposeConfig(weights=(0.5, 0.25, 0.25)))
    with pytest.raises(ConfigError, match="sum to 1"):
        ComposeConfig(weights=(0.5, 0.6))
    with pytest.raises(ConfigError, match="combines two"):
        ComposeConfig("and", (0.4, 0.3, 0.3))
    with pytest.raises(ConfigError, match="robolearn compose"):
        ComposeConfig().batches()
