"""Diffusion Q-learning: through all steps, which critic divides, what is slow, what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.critics.judged_actor import resampled
from policies.offline_rl.generative.diffusion_ql import DiffusionQl, DiffusionQlConfig
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from tests.learning_mocks import SPACE, random_flat
from tests.policies.offline_rl.test_actor_critics import says


def built(**more: Any) -> tuple[DiffusionQl, EpisodeDataset]:
    sizes = {"horizon": 2, "width": 8, "depth": 1, "batch_size": 4} | more
    config = DiffusionQlConfig(**sizes)
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    torch.manual_seed(0)
    found: Any = config.build(SPACE, data.stats(), None)
    return found, data


def test_the_critic_is_followed_through_every_step() -> None:
    algorithm, data = built(diffusion_steps=5, clip=100.0)
    answers: list[Tensor] = []

    def keep(_: nn.Module, __: Any, answer: Tensor) -> None:
        answer.retain_grad()
        answers.append(answer)

    rng = torch.Generator().manual_seed(0)
    t = algorithm.encoded(data.gather(np.array([1, 8, 18])), 1, rng)
    algorithm.actor.generator.net.register_forward_hook(keep)
    algorithm.actor_losses(t, rng)["policy"].backward()
    # The first answer is that of denoising, the others are those of the sample's steps.
    assert len(answers) == 6
    for answer in answers:
        assert answer.grad is not None
        assert bool((answer.grad.abs().amax(dim=1) > 0).all())


def test_another_critic_divides_in_every_update() -> None:
    """With Q of 2 and 4 the term is 2 / 4 or 4 / 2, whatever was drawn."""
    found: list[float] = []
    batch = built()[1].gather(np.array([1, 8]))
    for seed in range(12):
        both: list[float] = []
        for eta in (0.0, 1.0):
            algorithm, _ = built(eta=eta)
            says(algorithm.critic.q, 2.0, 4.0)
            rng = torch.Generator().manual_seed(seed)
            t = algorithm.encoded(batch, 1, rng)
            both.append(algorithm.actor_losses(t, rng)["policy"].item())
        found.append(round(both[0] - both[1], 4))
    assert set(found) == {0.5, 2.0}


def test_the_slow_policy_moves_now_and_then() -> None:
    algorithm, _ = built(slow_after=4, slow_every=3, actor_tau=0.5)
    with torch.no_grad():
        for parameter in algorithm.actor.generator.parameters():
            parameter.add_(1.0)
    ahead = [p.detach().clone() for p in algorithm.actor.generator.parameters()]
    behind: list[float] = []
    for step in range(10):
        algorithm.after_update(step, frozenset({"policy"}))
        slow = algorithm.slow.parameters()
        behind.append(max(float((a - b).max()) for a, b in zip(ahead, slow, strict=True)))
    assert behind == pytest.approx([1.0] * 6 + [0.5] * 3 + [0.25], abs=1e-5)


def test_the_best_of_what_may_follow_counts_where_it_is_asked_for() -> None:
    """The largest of several samples by each critic, then the least of the critics."""
    algorithm, data = built(next_samples=3, discount=0.5)
    batch = data.gather(np.array([1, 8]))
    rng = torch.Generator().manual_seed(0)
    t = algorithm.encoded(batch, 1, rng)
    state = rng.get_state()
    loss = algorithm.critic_loss(t, rng)["critic"].item()
    rng.set_state(state)
    with torch.no_grad():
        seen = algorithm.actor.split(t.next_seen)[0].repeat_interleave(3, dim=0)
        chunks = algorithm.drawn(algorithm.slow, seen, rng)
        follow = t.follow.repeat_interleave(3, dim=0)
        q = algorithm.target(torch.cat([follow, chunks], dim=-1))
        best = [max(q[i, 3 * row : 3 * row + 3].tolist()) for i in range(2) for row in range(2)]
        worth = np.minimum(best[:2], best[2:])
        target = t.reward + 0.25 * torch.tensor(worth)
        wanted = ((algorithm.critic.q_values(t.now, t.chunk) - target) ** 2).mean()
    assert loss == pytest.approx(wanted.item(), rel=1e-4)


def test_samples_are_drawn_again_in_proportion_to_their_worth() -> None:
    scores = torch.tensor([0.3, 2.0, 1.0]).expand(20_000, 3)
    normal = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))
    share = torch.bincount(resampled(scores, normal), minlength=3) / 20_000
    torch.testing.assert_close(share, scores[0].softmax(dim=0), atol=0.01, rtol=0.0)


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="eta and slow_after"):
        DiffusionQlConfig(eta=-1.0)
    with pytest.raises(ConfigError, match="candidates"):
        DiffusionQlConfig(candidates=0)
