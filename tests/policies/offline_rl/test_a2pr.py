"""A2PR clones the better of what was done and what its auto-encoder proposes, where it is good."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from policies.offline_rl.a2pr import A2prConfig
from robolearn.errors import ConfigError
from tests.policies.offline_rl.bandits import encoded, first_number, generator, says

CONFIG = A2prConfig(horizon=2, width=8, depth=1, mask=0.4)


@pytest.fixture
def proposing(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A chunk is worth its first number; the auto-encoder proposes 0 everywhere."""
    algorithm, t = encoded(CONFIG)
    monkeypatch.setattr(algorithm.critic, "q_values", first_number)
    nothing = torch.zeros_like(t.chunk), torch.zeros(len(t.chunk))
    monkeypatch.setattr(algorithm.vae, "rebuilt", lambda *_: nothing)
    return algorithm, t


def test_the_better_action_is_cloned(proposing: tuple[Any, Any]) -> None:
    algorithm, t = proposing
    says(algorithm.critic.v, -100.0)
    best, weight = algorithm.guide(t, t.chunk, generator())
    better = t.chunk[:, 0] > 0
    assert better.any()
    assert not better.all()
    torch.testing.assert_close(best, torch.where(better[:, None], t.chunk, 0.0))
    assert weight.tolist() == pytest.approx([0.4] * 4)


def test_nothing_is_cloned_where_nothing_is_good(proposing: tuple[Any, Any]) -> None:
    algorithm, t = proposing
    says(algorithm.critic.v, 0.2)
    _, weight = algorithm.guide(t, t.chunk, generator())
    assert (weight > 0).tolist() == (t.chunk[:, 0] > 0.2).tolist()
    says(algorithm.critic.v, 100.0)
    chunk = algorithm.actor.chunk(t.seen)
    loss = algorithm.actor_losses(t, generator())["policy"]
    # What is left is the critic's term.
    q = chunk[:, 0]
    torch.testing.assert_close(loss, -2.5 * q.mean() / q.abs().mean())


def test_the_auto_encoder_learns_from_actions_that_are_better_than_average() -> None:
    algorithm, t = encoded(CONFIG)
    none, all_of_them = torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)
    rebuilt, divergence = algorithm.vae.rebuilt(t.now, t.chunk, generator())
    error = t.mean((rebuilt - t.chunk) ** 2)
    worst = algorithm.vae_loss(t, none, generator())
    torch.testing.assert_close(worst, 0.5 * divergence.mean())
    torch.testing.assert_close(algorithm.vae_loss(t, all_of_them, generator()), worst + error)
    mean, log_deviation = algorithm.vae.encoded(t.now, t.chunk)
    latents = torch.distributions.Normal(mean, log_deviation.exp())
    standard = torch.distributions.Normal(0.0, 1.0)
    wanted = torch.distributions.kl_divergence(latents, standard).mean(dim=-1)
    torch.testing.assert_close(divergence, wanted)


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="alpha, mask and vae_weight"):
        A2prConfig(mask=-1.0)
