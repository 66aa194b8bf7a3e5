"""AWAC: weights compare what was done with what the policy would do."""

from __future__ import annotations

import pytest
import torch

from policies.offline_rl.awac import AwacConfig
from robolearn.errors import ConfigError
from tests.policies.offline_rl.bandits import encoded, first_number, generator


def test_weights_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, t = encoded(AwacConfig(temperature=0.5, horizon=2, width=8, depth=1))
    monkeypatch.setattr(algorithm.critic, "q_values", first_number)
    own = algorithm.actor.draw(t.seen, generator(3))[:, 0]
    wanted = ((t.chunk[:, 0] - own) / 0.5).exp().clamp(max=100.0).detach()
    weight = algorithm.weight(t, generator(3))
    torch.testing.assert_close(weight, wanted)
    assert weight.std() > 0.1


def test_who_does_what_was_done_weighs_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, t = encoded(AwacConfig(temperature=0.01, horizon=2, width=8, depth=1))
    monkeypatch.setattr(algorithm.critic, "q_values", first_number)
    monkeypatch.setattr(algorithm.actor, "draw", lambda *_: t.chunk)
    assert algorithm.weight(t, generator()).tolist() == [1.0] * 4
    monkeypatch.setattr(algorithm.actor, "draw", lambda *_: t.chunk - 1.0)
    assert algorithm.weight(t, generator()).tolist() == [100.0] * 4
    assert algorithm.more_figures(t, generator())["weights_clipped"].item() == 1.0


def test_the_density_is_a_gaussians() -> None:
    algorithm, t = encoded(AwacConfig(horizon=2, width=8, depth=1))
    actor = algorithm.actor
    gaussian = torch.distributions.Normal(actor.chunk(t.seen), actor.log_deviation.exp())
    found = actor.log_density(t.chunk, t.seen)
    torch.testing.assert_close(found, gaussian.log_prob(t.chunk))
    assert algorithm.groups()["policy"].parameters[0].requires_grad


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="temperature must be above 0"):
        AwacConfig(temperature=0.0)
