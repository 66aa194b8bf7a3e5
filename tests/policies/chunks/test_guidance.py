"""Guided sampling against a field whose answer is known."""

import dataclasses

import numpy as np
import pytest
import torch

from policies.chunks.guidance import GuidanceConfig, Prefix, guidance_weight, guided, variants
from policies.imitation.beso import BesoConfig
from policies.imitation.compose import ComposeConfig, compose
from policies.imitation.diffusion import DiffusionConfig
from policies.imitation.flow import FlowConfig
from policies.imitation.mean_flow import MeanFlowConfig
from policies.imitation.shortcut import ShortcutConfig
from robolearn.errors import ConfigError, SpecMismatchError
from tests.learning_mocks import random_request
from tests.policies.family import untrained
from tests.policies.imitation.test_flow import algorithm

TIMES = torch.linspace(0.0, 1.0, 6)
PUBLISHED = GuidanceConfig(max_weight=5.0, deviation=1.0)
NOISE = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))


def gaussian_field(x_t, t, context):
    """Velocity of data a ~ N(0, s^2): the optimal field, linear in x."""
    del context
    s = 0.5
    t = t[:, None, None]
    return (t * s**2 - (1 - t)) / ((1 - t) ** 2 + (t * s) ** 2) * x_t


def two_ways(x_t, t, context):
    """Data: chunks that go one way or the other, ``+-2 (0, 1/3, 2/3, 1)``, to within 0.05."""
    del context
    s, t = 0.05, t[:, None, None]
    way = 2.0 * torch.linspace(0.0, 1.0, 4)[None, :, None]
    off = [x_t - t * sign * way for sign in (1.0, -1.0)]
    variance = (1 - t) ** 2 + (t * s) ** 2
    logits = torch.stack([-(d**2).sum(dim=(1, 2)) for d in off], dim=1) / (2 * variance[:, 0])
    share = logits.softmax(dim=1)[:, :, None, None]
    fields = [
        sign * way + (t * s**2 - (1 - t)) / variance * d
        for sign, d in zip((1.0, -1.0), off, strict=True)
    ]
    return share[:, 0] * fields[0] + share[:, 1] * fields[1]


def kept(config, steps=12):
    """How often a chunk goes on as its first two actions, (0, 2/3), did: exactly always."""
    noise = torch.randn(200, 4, 2, generator=torch.Generator().manual_seed(1))[..., :1]
    before = Prefix(
        2.0 * torch.linspace(0.0, 1.0, 4)[None, :, None].expand(200, 4, 1),
        torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 4, 1).expand(200, 4, 1),
    )
    times = torch.linspace(0.0, 1.0, steps + 1)
    out = guided(two_ways, noise, times, noise, before, config)
    return float((out[:, 3, 0] > 1.0).float().mean())


def test_a_plan_keeps_its_way():
    """The published weight takes a deviation of 2/3 for noise: 27 chunks of 100 turn round."""
    assert kept(PUBLISHED) < 0.8
    assert kept(GuidanceConfig(max_weight=30.0, deviation=0.3)) > 0.97
    assert kept(GuidanceConfig(max_weight=5.0, candidates=4)) > 0.97


def test_candidates_are_as_normal_as_the_first_and_none_is_taken_for_nothing():
    several = variants(NOISE, 4)
    assert torch.equal(several[0], NOISE)
    assert torch.equal(
        several.abs().sort(dim=2).values, NOISE.abs().sort(dim=1).values.expand(4, 3, 4, 2)
    )
    assert len({tuple(v.flatten().tolist()) for v in several}) == 4
    free = prefix(0.4, [0.0] * 4)
    one, four = (
        guided(gaussian_field, NOISE, TIMES, NOISE, free, GuidanceConfig(candidates=n))
        for n in (1, 4)
    )
    assert torch.equal(one, four)


def prefix(value, weight):
    return Prefix(torch.full((3, 4, 2), value), torch.tensor(weight).view(1, 4, 1).expand(3, 4, 1))


@pytest.mark.parametrize("jacobian", [True, False])
def test_weights_pull_and_their_absence_leaves_free(jacobian):
    config = GuidanceConfig(jacobian=jacobian)
    free = guided(gaussian_field, NOISE, TIMES, NOISE, prefix(0.4, [0.0] * 4), config)
    pulled = guided(gaussian_field, NOISE, TIMES, NOISE, prefix(0.4, [1.0, 1.0, 0.0, 0.0]), config)
    assert torch.equal(pulled[:, 2:], free[:, 2:])
    assert (pulled[:, :2] - 0.4).abs().max() < 0.5 * (free[:, :2] - 0.4).abs().max()


def test_one_step_by_hand():
    times = torch.tensor([0.5, 1.0])
    out = guided(gaussian_field, NOISE, times, NOISE, prefix(0.4, [1.0] * 4), PUBLISHED)
    # At t = 0.5: v = (0.125 - 0.5) / (0.25 + 0.0625) x = -1.2 x, a_hat = x + 0.5 v = 0.4 x,
    # J = 0.4, k = 0.5 / 0.25 = 2.
    expected = NOISE + 0.5 * (-1.2 * NOISE + 2.0 * 0.4 * (0.4 - 0.4 * NOISE))
    torch.testing.assert_close(out, expected)


def test_the_weight_of_the_pull():
    assert guidance_weight(0.0, 5.0) == 5.0
    assert guidance_weight(0.5, 5.0) == pytest.approx(2.0)
    assert guidance_weight(0.999, 5.0) == 5.0
    # r^2 = 0.25 * 0.25 / (0.25 * 0.25 + 0.25) = 0.2
    assert guidance_weight(0.5, 100.0, 0.5) == pytest.approx(5.0)
    for wrong in ({"max_weight": float("nan")}, {"deviation": 0.0}, {"candidates": 0}):
        with pytest.raises(ConfigError):
            GuidanceConfig(**wrong)


def test_a_flow_policy_continues_a_prefix():
    policy = algorithm().policy()
    request = random_request(3)
    plain = policy.sample(request)
    wanted = plain.actions[:, 0] + 0.02
    weight = np.tile([1.0, 1.0, 0.0, 0.0], (3, 1))
    asked = dataclasses.replace(request, prefix=wanted, prefix_weight=weight)
    first, second = policy.sample(asked, n=2), policy.sample(asked, n=2)
    np.testing.assert_array_equal(first.actions, second.actions)
    before = np.abs(plain.actions[:, 0, :2] - wanted[:, :2]).mean()
    assert np.abs(first.actions[:, 0, :2] - wanted[:, :2]).mean() < 0.7 * before
    none = dataclasses.replace(asked, prefix_weight=np.zeros((3, 4)))
    np.testing.assert_allclose(policy.sample(none).actions, plain.actions, atol=1e-6)


def test_a_hard_mask_ends_at_the_prefix():
    """The rest is as free as without, where the field has no say in it."""
    config = GuidanceConfig(hard=True)
    out = guided(gaussian_field, NOISE, TIMES, NOISE, prefix(0.4, [1.0, 1.0, 0.5, 0.0]), config)
    free = guided(gaussian_field, NOISE, TIMES, NOISE, prefix(0.4, [0.0] * 4), config)
    torch.testing.assert_close(out[:, :2], torch.full((3, 2, 2), 0.4))
    torch.testing.assert_close(out[:, 2:], free[:, 2:])


SMALL = {"n_obs": 2, "horizon": 4, "execute": 2, "width": 32, "blocks": 2, "batch_size": 16}
FAMILY = (
    FlowConfig(**SMALL),
    DiffusionConfig(**SMALL),
    MeanFlowConfig(**SMALL),
    ShortcutConfig(**SMALL),
    BesoConfig(**SMALL),
)


@pytest.mark.parametrize("config", [*FAMILY, None], ids=lambda c: type(c).__name__)
@pytest.mark.parametrize(
    "how", [GuidanceConfig(), GuidanceConfig(jacobian=False), GuidanceConfig(hard=True)]
)
def test_everything_with_a_field_continues_a_prefix(config, how):
    """Guided with and without the Jacobian, and by a hard mask; None: composed of two."""
    if config is None:
        policy = compose([untrained(c).policy() for c in FAMILY[:2]], ComposeConfig())
    else:
        policy = untrained(config).policy()
    policy.guidance = how
    request = random_request(3)
    plain = policy.sample(request).actions[:, 0, :2]
    wanted = np.full((3, 4, 2), 0.25)
    weight = np.tile([1.0, 1.0, 0.0, 0.0], (3, 1))
    asked = dataclasses.replace(request, prefix=wanted, prefix_weight=weight)
    found = policy.sample(asked).actions[:, 0, :2]
    assert np.abs(found - 0.25).mean() < 0.9 * np.abs(plain - 0.25).mean()
    if how.hard:
        np.testing.assert_allclose(found, 0.25, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix": np.zeros((3, 5, 2))},
        {"prefix": np.zeros((2, 4, 2))},
        {"prefix": np.full((3, 4, 2), np.nan)},
        {"prefix": np.zeros((3, 4, 2)), "prefix_weight": np.full((3, 4), 1.5)},
        {"prefix": np.zeros((3, 4, 2)), "prefix_weight": np.ones((3, 3))},
    ],
)
def test_a_wrong_prefix_is_refused(wrong):
    with pytest.raises(SpecMismatchError, match="prefix"):
        algorithm().policy().sample(dataclasses.replace(random_request(3), **wrong))
