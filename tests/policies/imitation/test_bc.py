"""The baselines: regression, mixture of a recurrent network, ACT, and the energy-based policy."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.chunks.base import ChunkConfig
from policies.imitation.act import ActConfig, ActModel, normal_divergence
from policies.imitation.bc import BcConfig
from policies.imitation.bc_rnn import BcRnnConfig, BcRnnModel, Mixture
from policies.imitation.ebt import EbtConfig, EbtModel
from robolearn.contracts import Policy
from robolearn.errors import ConfigError
from tests.contracts import PolicyContract
from tests.learning_mocks import BLOCK, random_request
from tests.policies.family import a_batch, learn, mode_shares, pointing, two_modes, untrained

BC = BcConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)
RNN = BcRnnConfig(n_obs=3, horizon=4, execute=2, width=32, blocks=1, batch_size=16, spread=1.0)
ACT = ActConfig(
    n_obs=2, horizon=4, execute=2, width=32, blocks=1, batch_size=16, latent=11, spread=1.0
)
EBT = EbtConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)


class DeterministicContract(PolicyContract):
    def test_another_seed_gives_another_chunk(self) -> None:
        """It does not, here."""
        policy = self.make()
        request = random_request(2, policy.spec.n_obs)
        other = dataclasses.replace(request, seed=request.seed + 1)
        np.testing.assert_array_equal(policy.sample(request).actions, policy.sample(other).actions)


class TestBcContract(DeterministicContract):
    def make(self) -> Policy:
        return untrained(BC).policy()


class TestBcRnnContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(RNN).policy()


class TestActContract(DeterministicContract):
    def make(self) -> Policy:
        return untrained(dataclasses.replace(ACT, spread=0.0)).policy()


class TestSpreadActContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(ACT).policy()


class TestEbtContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(EBT).policy()


def test_the_density_of_a_mixture_against_torch() -> None:
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 5, generator=rng).log_softmax(dim=1)
    mean, std = torch.randn(2, 3, 5, 4, 2, generator=rng)
    std = std.exp()
    actions = torch.randn(3, 4, 2, generator=rng)
    parts = torch.distributions.Independent(torch.distributions.Normal(mean, std), 2)
    reference = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=weight), parts
    )
    found = Mixture(weight, mean, std).log_density(actions, torch.ones(3, 4, 1, dtype=torch.bool))
    torch.testing.assert_close(found, reference.log_prob(actions))
    mask = torch.ones(3, 4, 1, dtype=torch.bool)
    mask[:, 2:] = False
    far = actions.clone()
    far[:, 2:] = 100.0
    mixture = Mixture(weight, mean, std)
    torch.testing.assert_close(mixture.log_density(far, mask), mixture.log_density(actions, mask))


def test_components_are_drawn_with_their_weights() -> None:
    model = untrained(RNN).ema
    assert isinstance(model, BcRnnModel)
    means = torch.arange(5.0)[None, :, None, None].expand(4000, 5, 4, 2)
    weight = torch.tensor([0.1, 0.0, 0.5, 0.15, 0.25]).clamp_min(1e-12).log().expand(4000, 5)
    model.mixture = lambda _: Mixture(weight, means, torch.ones_like(means))  # type: ignore[method-assign,assignment]
    model.spread = 0.0
    noise = torch.randn(4000, 2, 4, 2, generator=torch.Generator().manual_seed(0))
    drawn = model.generate(noise, noise.flatten(1))
    shares = [(drawn[:, 0, 0] == k).float().mean().item() for k in range(5)]
    assert shares == pytest.approx([0.1, 0.0, 0.5, 0.15, 0.25], abs=0.03)


def test_divergence_by_hand() -> None:
    assert normal_divergence(torch.zeros(1, 3), torch.zeros(1, 3)).item() == 0
    found = normal_divergence(torch.tensor([[2.0]]), torch.tensor([[math.log(4.0)]]))
    assert found.item() == pytest.approx(0.5 * (4 + 4 - 1 - math.log(4)))


def test_regression_loss_by_hand() -> None:
    for kind, power in (("squared", 2), ("absolute", 1)):
        config = dataclasses.replace(BC, loss=kind)  # type: ignore[arg-type]
        built = untrained(config)
        for parameter in built.model.parameters():
            parameter.data.zero_()
        batch = a_batch(config)
        loss = built(batch, 0, torch.Generator().manual_seed(0)).by_group["bc"]
        actions = built.model.codec.encode(batch.actions, batch.observations)
        torch.testing.assert_close(loss, (actions.abs() ** power)[batch.action_mask].mean())


def test_padding_does_not_reach_the_posterior() -> None:
    built = untrained(ACT)
    assert isinstance(built.model, ActModel)
    batch = a_batch(ACT)
    mask = torch.ones_like(batch.action_mask)
    mask[:, 2:] = False
    masked = dataclasses.replace(batch, action_mask=mask)
    far = batch.actions.clone()
    far[:, 2:] += 100
    losses = [
        built(dataclasses.replace(masked, actions=a), 0, torch.Generator().manual_seed(0))
        for a in (batch.actions, far)
    ]
    torch.testing.assert_close(losses[0].by_group["act"], losses[1].by_group["act"])


SEEN = {
    "n_obs": 1,
    "horizon": 1,
    "execute": 1,
    "width": 32,
    "lr": 3e-3,
    "batch_size": 64,
    "ema": 0.97,
}


@pytest.mark.parametrize(
    "config",
    [
        BcConfig(**SEEN, blocks=2),
        BcRnnConfig(**SEEN, blocks=1),
        ActConfig(**SEEN, blocks=1, beta=1.0, latent=4),
        EbtConfig(**SEEN, blocks=2),
    ],
    ids=["bc", "bc_rnn", "act", "ebt"],
)
def test_learns_what_is_seen(config: ChunkConfig, tmp_path: Path) -> None:
    """The first action of each chunk is where the block is."""
    policy = learn(config, pointing(), tmp_path, 120)
    request = random_request(32, n_obs=config.n_obs)
    error = policy.sample(request).actions[:, 0, 0] - request.observations[BLOCK][:, -1, :2]
    assert np.abs(error).mean() < 0.03


TOY = {
    "n_obs": 1,
    "horizon": 2,
    "execute": 1,
    "width": 32,
    "lr": 3e-3,
    "batch_size": 64,
    "ema": 0.97,
}


@pytest.mark.parametrize(
    ("config", "both"),
    [
        (BcRnnConfig(**TOY, blocks=1), True),
        (EbtConfig(**TOY, blocks=2, sampler_steps=12), True),
        (BcConfig(**TOY, blocks=1), False),
    ],
    ids=["bc_rnn", "ebt", "bc"],
)
def test_two_modes(config: ChunkConfig, both: bool, tmp_path: Path) -> None:
    """A mixture and an energy have both; a regression does neither."""
    left, right = mode_shares(learn(config, two_modes(), tmp_path, 100))
    if both:
        assert min(left, right) > 0.2
        assert left + right > 0.6
    else:
        assert left + right < 0.1


def test_low_energy_is_near_the_data(tmp_path: Path) -> None:
    config = EbtConfig(n_obs=1, horizon=1, execute=1, width=32, blocks=2, lr=3e-3, batch_size=64)
    policy = learn(config, pointing(), tmp_path, 120)
    request = random_request(16, 1)
    out = policy.sample(request, n=6)
    model = policy.model  # type: ignore[attr-defined]
    assert isinstance(model, EbtModel)
    seen = {k: torch.as_tensor(v, dtype=torch.float32) for k, v in request.observations.items()}
    place = seen[BLOCK][:, -1:, :2]
    context = model.context(seen)
    there = model.energy(model.codec.encode(place, seen), context)
    away = model.energy(model.codec.encode(place + 0.1, seen), context)
    assert (there < away).float().mean().item() > 0.9
    assert (np.diff(out.scores, axis=1) <= 0).all()
    assert np.ptp(out.scores) > 0


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ActConfig, {"width": 30, "heads": 4}, "multiple of heads"),
        (ActConfig, {"beta": -1.0}, "at least 0"),
        (BcRnnConfig, {"components": 0}, "components must be"),
        (EbtConfig, {"rate": 0.0}, "rate positive"),
        (BcConfig, {"execute": 17}, "execute must be in 1..horizon=16"),
    ],
)
def test_bad_configurations_are_explained(
    kind: type[ChunkConfig], values: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**values)  # type: ignore[arg-type]
