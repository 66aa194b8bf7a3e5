"""Consistency-AC: where paths end, neighbours that agree about it, every step of a sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.offline_rl.generative.consistency_ac import ConsistencyAcConfig, boundary_count
from robolearn.errors import ConfigError
from tests.policies.offline_rl.bandits import encoded, generator

TINY: dict[str, Any] = {"width": 8, "depth": 1, "horizon": 2}


def test_boundaries_by_hand() -> None:
    algorithm, _ = encoded(ConsistencyAcConfig(**TINY, sigma=(0.002, 80.0)))
    paths = algorithm.actor.generator
    torch.testing.assert_close(paths.boundaries(2), torch.tensor([0.002, 80.0]), rtol=1e-4, atol=0)
    middle = (0.5 * (0.002 ** (1 / 7) + 80.0 ** (1 / 7))) ** 7
    assert paths.boundaries(3)[1].item() == pytest.approx(middle, rel=1e-4)


def test_there_are_more_and_more_of_them() -> None:
    counts = [boundary_count(k, (2, 150), 1000) for k in range(0, 1200, 100)]
    assert counts[0] == 2
    assert counts[10:] == [150, 150]
    assert counts == sorted(counts)
    half = 0.5 * (151**2 - 4) + 4
    assert counts[5] == int(half**0.5) + 1 == 107


def test_a_path_ends_where_it_is_at_the_least_level() -> None:
    algorithm, t = encoded(ConsistencyAcConfig(**TINY))
    paths, seen = algorithm.actor.generator, algorithm.actor.split(t.seen)[0]
    x = torch.randn(4, 4)
    least = torch.full((4,), 0.002)
    torch.testing.assert_close(paths.end(x, least, seen), x)
    # Noise alone says nothing of its end: the network's answer, at the scale of actions.
    answers: list[Tensor] = []
    paths.net.register_forward_hook(lambda *found: answers.append(found[2]))
    end = paths.end(80.0 * x, torch.full((4,), 80.0), seen)
    torch.testing.assert_close(end, 0.5 * answers[0], rtol=1e-2, atol=1e-2)


def test_neighbours_agree_by_hand() -> None:
    """The higher one learns what the slow policy says at the lower one, the same noise in both."""
    algorithm, t = encoded(ConsistencyAcConfig(**TINY))
    paths, seen = algorithm.actor.generator, algorithm.actor.split(t.seen)[0]
    with torch.no_grad():
        for parameter in algorithm.slow.parameters():
            parameter.add_(0.1)
    rng = generator()
    loss = paths.loss(t, rng, seen, algorithm.slow, 4)
    rng = generator()
    noise = torch.randn(t.chunk.shape, generator=rng)
    lower = torch.randint(0, 3, (4,), generator=rng)
    low, high = paths.boundaries(4)[lower], paths.boundaries(4)[lower + 1]
    end = paths.end(t.chunk + high[:, None] * noise, high, seen)
    wanted = algorithm.slow.end(t.chunk + low[:, None] * noise, low, seen)
    assert loss.item() == pytest.approx(t.mean((end - wanted) ** 2).item(), rel=1e-5)
    # With two boundaries the lower one is what was done.
    rng = generator()
    loss = paths.loss(t, rng, seen, algorithm.slow, 2).item()
    noise = torch.randn(t.chunk.shape, generator=generator())
    end = paths.end(t.chunk + 80.0 * noise, torch.full((4,), 80.0), seen)
    assert loss == pytest.approx(t.mean((end - t.chunk - 0.002 * noise) ** 2).item(), rel=1e-3)
    loss_of_slow = paths.loss(t, generator(), seen, algorithm.slow, 4)
    loss_of_slow.backward()
    assert all(p.grad is None for p in algorithm.slow.parameters())


def test_further_steps_begin_at_lower_levels() -> None:
    algorithm, t = encoded(ConsistencyAcConfig(**TINY, sampler_steps=3, clip=100.0))
    paths, seen = algorithm.actor.generator, algorithm.actor.split(t.seen)[0]
    noise = torch.randn(4, 3, 4)
    found = paths.sample(noise, seen)
    _, second, third, top = paths.boundaries(4).tolist()
    x = paths.end(top * noise[:, 0], torch.full((4,), top), seen)
    for k, level in enumerate((third, second), start=1):
        spread = (level**2 - 0.002**2) ** 0.5
        x = paths.end(x + spread * noise[:, k], torch.full((4,), level), seen)
    torch.testing.assert_close(found, x, rtol=1e-4, atol=1e-5)


def test_the_critic_is_followed_through_every_step() -> None:
    algorithm, t = encoded(ConsistencyAcConfig(**TINY, sampler_steps=3, clip=100.0))
    answers: list[Tensor] = []

    def keep(_: nn.Module, __: Any, answer: Tensor) -> None:
        if answer.requires_grad:
            answer.retain_grad()
            answers.append(answer)

    algorithm.actor.generator.net.register_forward_hook(keep)
    algorithm.actor_losses(t, generator())["policy"].backward()
    # The first answer is that of the neighbours, the others are those of the sample's steps.
    assert len(answers) == 4
    for answer in answers:
        assert answer.grad is not None
        assert bool((answer.grad.abs().amax(dim=1) > 0).all())


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="sigma must rise"):
        ConsistencyAcConfig(sigma=(1.0, 0.5))
    with pytest.raises(ConfigError, match="boundaries must grow"):
        ConsistencyAcConfig(boundaries=(1, 5))
    with pytest.raises(ConfigError, match="action_std positive"):
        ConsistencyAcConfig(action_std=0.0)
