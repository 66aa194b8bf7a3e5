"""Diffusion: its samplers against those of diffusers, loss by hand, two modes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

from policies.imitation.diffusion import (
    DiffusionConfig,
    DiffusionModel,
    Prediction,
    Sampler,
    wanted,
)
from robolearn.contracts import Policy
from robolearn.errors import ConfigError
from robolearn.learning import FieldPolicy
from tests.contracts import PolicyContract
from tests.learning_mocks import random_request
from tests.policies.family import a_batch, learn, mode_shares, two_modes, untrained

SMALL = DiffusionConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)


class TestDdimContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(SMALL).policy()


class TestDdpmContract(PolicyContract):
    def make(self) -> Policy:
        config = dataclasses.replace(
            SMALL, sampler="ddpm", prediction="sample", sampler_steps=10, levels=10
        )
        return untrained(config).policy()


class TestSolverContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(dataclasses.replace(SMALL, sampler="dpmsolver++")).policy()


def model(**values: object) -> DiffusionModel:
    found = untrained(dataclasses.replace(SMALL, **values)).ema  # type: ignore[arg-type]
    assert isinstance(found, DiffusionModel)
    return found


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_perfect_prediction_gives_the_action_back(prediction: Prediction) -> None:
    net = model(prediction=prediction)
    a, eps = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    alpha, sigma = torch.full((3, 1, 1), 0.6), torch.full((3, 1, 1), 0.8)
    answer = wanted(prediction, a, eps, alpha, sigma)
    torch.testing.assert_close(net.estimate(alpha * a + sigma * eps, answer, alpha, sigma), a)


def test_the_schedule_is_the_published_one() -> None:
    net = model()
    reference: Any = DDPMScheduler(100, beta_schedule="squaredcos_cap_v2")
    a, eps = torch.randn(2, 4, 2), torch.randn(2, 4, 2)
    level = torch.tensor([7, 80])
    alpha, sigma = (net.get_buffer(n)[level][:, None, None] for n in ("alpha", "sigma"))
    torch.testing.assert_close(alpha * a + sigma * eps, reference.add_noise(a, eps, level))


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_ancestral_sampling_is_ddpm(clip: float) -> None:
    """DDIM with eta = 1 over all levels takes the steps of diffusers' DDPM."""
    levels = 8
    net = model(
        sampler="ddpm", prediction="epsilon", levels=levels, sampler_steps=levels, clip=clip
    )
    noise = torch.randn(3, levels + 1, 4, 2, generator=torch.Generator().manual_seed(0))
    context = net.context(
        {
            k: torch.as_tensor(v, dtype=torch.float32)
            for k, v in random_request(3).observations.items()
        }
    )
    reference: Any = DDPMScheduler(
        levels, beta_schedule="squaredcos_cap_v2", clip_sample=clip > 0, prediction_type="epsilon"
    )
    reference.set_timesteps(levels)
    x = noise[:, 0]
    for i, level in enumerate(reference.timesteps):
        answer = net.predict(x, level.float().expand(3), context)
        generator = torch.Generator().manual_seed(i)
        drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(i))
        noise[:, i + 1] = drawn
        x = reference.step(answer, level, x, generator=generator).prev_sample
    torch.testing.assert_close(net.generate(noise, context), x, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_the_velocity_is_that_of_the_straight_path(prediction: Prediction) -> None:
    """With a perfect network the field points along data - noise, whatever is predicted."""
    net = model(prediction=prediction)
    a, eps = torch.randn(5, 4, 2), torch.randn(5, 4, 2)
    t = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    s = t[:, None, None]
    norm = (s**2 + (1 - s) ** 2).sqrt()
    levels: list[torch.Tensor] = []

    def perfect(x: torch.Tensor, level: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        levels.append(level)
        return wanted(prediction, a, eps, s / norm, (1 - s) / norm)

    net.predict = perfect  # type: ignore[method-assign]
    velocity = net.velocity((1 - s) * eps + s * a, t, torch.zeros(5, 1))
    torch.testing.assert_close(velocity, a - eps, atol=1e-4, rtol=1e-4)
    # The level told to the network is as noisy as the path: signal to noise t / (1 - t).
    alpha, sigma = net.get_buffer("alpha"), net.get_buffer("sigma")
    near = levels[0].round().long()
    torch.testing.assert_close((alpha / (alpha + sigma))[near], t, atol=0.02, rtol=0)


def test_loss_of_a_silent_network_by_hand() -> None:
    config = dataclasses.replace(SMALL, prediction="sample", observation_noise=0.0)
    built = untrained(config)
    for parameter in built.model.parameters():
        parameter.data.zero_()
    batch = a_batch(config)
    loss = built(batch, 0, torch.Generator().manual_seed(0)).by_group["diffusion"]
    actions = built.model.codec.encode(batch.actions, batch.observations)
    expected = (actions[batch.action_mask] ** 2).mean()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("sampler", "prediction", "steps"),
    [("ddim", "v_prediction", 4), ("dpmsolver++", "sample", 4), ("ddpm", "epsilon", 20)],
)
def test_learns_two_modes(
    sampler: Sampler, prediction: Prediction, steps: int, tmp_path: Path
) -> None:
    config = DiffusionConfig(
        n_obs=1,
        horizon=2,
        execute=1,
        width=32,
        blocks=2,
        lr=3e-3,
        batch_size=64,
        levels=20,
        sampler=sampler,
        prediction=prediction,
        sampler_steps=steps,
        ema=0.98,
        clip=0.0 if sampler == "dpmsolver++" else 1.0,
    )
    left, right = mode_shares(learn(config, two_modes(), tmp_path, 150))
    assert min(left, right) > 0.25
    assert left + right > 0.7


def test_it_is_a_field_policy_and_continues_a_prefix() -> None:
    policy = untrained(SMALL).policy()
    assert isinstance(policy, FieldPolicy)
    request = random_request(3)
    plain = policy.sample(request).actions[:, 0]
    wish = plain + 0.02
    pulled = policy.sample(dataclasses.replace(request, prefix=wish)).actions[:, 0]
    assert abs(pulled - wish).mean() < 0.7 * abs(plain - wish).mean()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sampler_steps": 101}, "sampler_steps must be in 1..levels=100"),
        ({"clip": 1.0, "sampler": "dpmsolver++"}, "cannot clip"),
        ({"clip": -1.0}, "at least 0"),
    ],
)
def test_bad_configurations_are_explained(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DiffusionConfig(**values)  # type: ignore[arg-type]
