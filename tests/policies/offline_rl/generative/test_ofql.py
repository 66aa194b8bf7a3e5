"""One-step flow Q-learning: an average velocity is what several steps of the velocity give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.nets.average_velocity import mean_flow_target
from policies.offline_rl.generative.average_flow import AverageFlow
from policies.offline_rl.generative.ofql import Ofql, OfqlConfig
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from tests.learning_mocks import SPACE, random_flat
from tests.policies.offline_rl.test_actor_critics import says

RATE = 0.8
ROWS = np.array([1, 8])


class Linear(AverageFlow):
    """The average velocities of the field v = RATE x, whose paths are known."""

    def average(self, x: Tensor, t: Tensor, r: Tensor, context: Tensor) -> Tensor:
        left = (r - t)[:, None]
        # (e^(c d) - 1) / d, also where no time is left.
        grown = torch.where(left == 0, RATE, torch.expm1(RATE * left) / left.clamp(min=1e-9))
        return x * grown


def test_one_step_is_what_many_small_ones_give() -> None:
    flow = Linear(3, 4, 8, 1)
    noise, context = torch.randn(6, 4), torch.zeros(6, 3)
    x = noise
    for _ in range(2000):
        x = x + RATE * x / 2000
    torch.testing.assert_close(flow.sample(noise, context), x, rtol=1e-3, atol=1e-3)
    # And the identity that is learned from says so: its right side is the average itself.
    t, r = torch.rand(6) * 0.5, 0.5 + torch.rand(6) * 0.5
    target = mean_flow_target(
        lambda at, now: flow.average(at, now, r, context), noise, RATE * noise, t, r
    )
    torch.testing.assert_close(target, flow.average(noise, t, r, context), rtol=1e-4, atol=1e-5)
    assert float((target - RATE * noise).abs().max()) > 0.1


def built(**more: Any) -> tuple[Ofql, EpisodeDataset]:
    config = OfqlConfig(horizon=2, width=8, depth=1, batch_size=4, **more)
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    torch.manual_seed(0)
    found: Any = config.build(SPACE, data.stats(), None)
    return found, data


def test_the_critic_counts_by_its_share_of_another_one() -> None:
    found: list[float] = []
    for eta in (0.0, 0.5):
        algorithm, data = built(eta=eta)
        says(algorithm.critic.q, 4.0, 4.0)
        rng = torch.Generator().manual_seed(0)
        t = algorithm.encoded(data.gather(ROWS), 1, rng)
        found.append(algorithm.actor_losses(t, rng)["policy"].item())
    assert found[0] - found[1] == pytest.approx(0.5, abs=1e-5)


def test_the_target_is_the_slow_policys_chunk() -> None:
    algorithm, data = built(discount=0.5)
    with torch.no_grad():
        for parameter in algorithm.actor.flow.parameters():
            parameter.add_(1.0)
    rng = torch.Generator().manual_seed(0)
    t = algorithm.encoded(data.gather(ROWS), 1, rng)
    state = rng.get_state()
    loss = algorithm.critic_loss(t, rng)["critic"].item()
    rng.set_state(state)
    with torch.no_grad():
        noise = torch.randn(t.chunk.shape, generator=rng)
        chunk = algorithm.actor.held(algorithm.slow.sample(noise, t.next_seen))
        worth = algorithm.target(torch.cat([t.follow, chunk], dim=-1)).amin(dim=0)
        target = t.reward + t.bootstrap * worth
        wanted = ((algorithm.critic.q_values(t.now, t.chunk) - target) ** 2).mean()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    before = [p.clone() for p in algorithm.slow.parameters()]
    algorithm.after_update(1, frozenset({"policy"}))
    assert any(
        not torch.equal(a, b) for a, b in zip(before, algorithm.slow.parameters(), strict=True)
    )


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="eta must be at least 0"):
        OfqlConfig(eta=-1.0)
