"""Histories are encoded as far apart as their rewards and what follows them are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.actor_critic import ActorCriticConfig
from policies.critics.hindsight import HindsightConfig
from policies.nets.bisimulation import BisimulationConfig, HistoryEncoder, bisimulation_loss
from policies.offline_rl.cocoa import CocoaConfig
from policies.offline_rl.fql import FqlConfig
from policies.offline_rl.generative.fisor import FisorConfig
from policies.offline_rl.goals.gcivl import GcivlConfig
from policies.offline_rl.iql import IqlConfig
from policies.offline_rl.qc import QcConfig
from policies.offline_rl.rebrac import RebracConfig
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from tests.learning_mocks import BLOCK, SPACE, random_flat
from tests.policies.every import costly, random_source

TINY: dict[str, Any] = {"n_obs": 2, "horizon": 2, "width": 8, "depth": 1, "batch_size": 8}
SMALL = BisimulationConfig(size=4, width=8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ring(
    count: int, rng: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """States 0, 1, 2 come in turn, 2 pays 1 and ends the task. A history of two observations shows
    the state twice, each time with four numbers that say nothing.
    """
    state = torch.randint(0, 3, (count,), generator=rng)
    shown = (seen(s, rng) for s in (state, (state + 1) % 3))
    return *shown, (state == 2).float(), 0.5 * (state != 2).float()


def seen(state: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    own = torch.nn.functional.one_hot(state, 3).float()
    return torch.cat(
        [torch.cat([own, torch.randn(len(own), 4, generator=rng)], dim=1) for _ in range(2)], dim=1
    )


@pytest.mark.parametrize("learns", [True, False])
def test_distractions_are_forgotten_and_futures_kept(learns: bool) -> None:
    torch.manual_seed(0)
    rng = generator()
    encoder = HistoryEncoder(14, BisimulationConfig(size=8, width=32))
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.01)
    for _ in range(200 if learns else 0):
        now, follow, reward, bootstrap = ring(64, rng)
        optimiser.zero_grad()
        bisimulation_loss(encoder(now), encoder(follow), reward, bootstrap).backward()
        optimiser.step()
    states = torch.arange(3).repeat_interleave(100)
    with torch.no_grad():
        z = encoder(seen(states, rng)).unflatten(0, (3, 100))
    same = (z[:, :50] - z[:, 50:]).abs().sum(dim=-1).mean()
    other = torch.stack([(z[i] - z[j]).abs().sum(dim=-1).mean() for i, j in ((0, 1), (1, 2))])
    assert bool(same < 0.25 * other.min()) == learns


def test_the_loss_by_hand() -> None:
    now = torch.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)
    follow = torch.tensor([[1.0, 1.0], [4.0, 1.0]], requires_grad=True)
    reward, bootstrap = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 0.0])
    loss = bisimulation_loss(now, follow, reward, bootstrap)
    # Apart by 3; rewards by 2; what follows by |(.5, .5) - the end|.
    assert loss.item() == pytest.approx((3.0 - 2.0 - 1.0) ** 2)
    loss = bisimulation_loss(now, follow, 2.0 * reward, torch.tensor([0.5, 0.5]))
    assert loss.item() == pytest.approx((3.0 - 4.0 - 1.5) ** 2)
    slope, none = torch.autograd.grad(loss, (now, follow), allow_unused=True)
    assert slope.abs().sum() > 0
    assert none is None


@pytest.mark.parametrize(
    ("config", "group"),
    [
        (IqlConfig(**TINY), "policy"),
        (FqlConfig(**TINY), "flow"),
        (QcConfig(flow_steps=2, candidates=2, **TINY), "flow"),
        (FisorConfig(diffusion_steps=2, candidates=2, **TINY), "policy"),
        (RebracConfig(**TINY), "policy"),
    ],
    ids=lambda value: value.algorithm().name if isinstance(value, ActorCriticConfig) else "",
)
def test_both_encoders_learn_from_it(config: ActorCriticConfig, group: str) -> None:
    losses: list[dict[str, torch.Tensor]] = []
    for weight in (0.0, 3.0):
        told = dataclasses.replace(config, bisimulation=dataclasses.replace(SMALL, weight=weight))
        torch.manual_seed(0)
        data = EpisodeDataset(flatten(costly(random_source())), told.batches(), 0)
        built: Any = told.build(SPACE, dataclasses.replace(data.stats(), reward=None), None)
        batch = data.batch(0)
        losses.append(dict(built(batch, 0, generator()).by_group))
    t = built.encoded(batch, 0, generator())
    assert t.now.shape[1] == built.actor.observed.size == 4
    wanted = {
        "critic": bisimulation_loss(t.now, t.follow, t.reward, t.bootstrap),
        group: bisimulation_loss(t.seen[:, :4], t.next_seen[:, :4], t.reward, t.bootstrap),
    }
    for name, plain in losses[0].items():
        more = 3.0 * wanted[name] if name in wanted else torch.zeros(())
        torch.testing.assert_close(losses[1][name] - plain, more, rtol=1e-3, atol=1e-5)
    owners = {id(p): name for name, found in built.groups().items() for p in found.parameters}
    learnt = {id(p) for p in built.parameters() if p.requires_grad}
    assert learnt == set(owners)
    for name, observed in (("critic", built.critic.observed), (group, built.actor.observed)):
        assert {owners[id(p)] for p in observed.history.parameters()} == {name}
        found = torch.autograd.grad(
            losses[1][name], [*observed.history.parameters()], retain_graph=True
        )
        assert all(bool(slope.abs().sum() > 0) for slope in found)


def test_it_is_kept_in_the_policy() -> None:
    config = IqlConfig(bisimulation=SMALL, **TINY)
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    built: Any = config.build(SPACE, data.stats(), None)
    names = [n for n in built.policy_weights() if ".history." in n]
    assert len(names) == 4
    plain: Any = IqlConfig(**TINY).build(SPACE, data.stats(), None)
    assert plain.actor.observed.history is None
    assert not [n for n in plain.policy_weights() if "history" in n]


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="weight must be at least 0"):
        BisimulationConfig(weight=float(np.nan))
    with pytest.raises(ConfigError, match="cocoa takes observations apart"):
        CocoaConfig(bisimulation=SMALL)
    with pytest.raises(ConfigError, match="values of goals alone"):
        GcivlConfig(goals=HindsightConfig((("goal/block", BLOCK),)), bisimulation=SMALL)
