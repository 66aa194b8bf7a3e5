"""Algorithms with an actor and a critic: a bandit whose best action is known, losses by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.actor_critic import ActorCritic, ActorCriticConfig
from policies.offline_rl.a2pr import A2prConfig
from policies.offline_rl.awac import AwacConfig
from policies.offline_rl.chained.co_rft import CoRftConfig
from policies.offline_rl.cocoa import CocoaConfig
from policies.offline_rl.cql import CqlConfig
from policies.offline_rl.dvl import DvlConfig
from policies.offline_rl.fql import FqlConfig
from policies.offline_rl.generative.consistency_ac import ConsistencyAcConfig
from policies.offline_rl.generative.deflow import DeflowConfig
from policies.offline_rl.generative.diffusion_ql import DiffusionQlConfig
from policies.offline_rl.generative.ofql import OfqlConfig
from policies.offline_rl.iql import IqlConfig
from policies.offline_rl.qc import QcConfig
from policies.offline_rl.rebrac import RebracConfig
from policies.offline_rl.riql import RiqlConfig
from policies.offline_rl.td3_bc import Td3BcConfig
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError, TrainingError
from robolearn.learning import Batch
from tests.learning_mocks import SPACE, random_flat
from tests.policies.offline_rl.bandits import BEST, MEAN, SMALL, learned, says

# As near to the critic's best as they get, and what stays of behaviour else.
GREEDY = {
    "co_rft": CoRftConfig(greed=100.0, horizon=1, actor_every=1, **SMALL),
    "consistency_ac": ConsistencyAcConfig(
        eta=10.0, candidates=8, boundaries=(2, 16), growth=200, actor_tau=0.05, horizon=1, **SMALL
    ),
    "deflow": DeflowConfig(divergence=1.0, flow_steps=4, horizon=1, **SMALL),
    "deflow-fisher": DeflowConfig(
        metric="fisher", divergence=1.0, flow_steps=4, horizon=1, **SMALL
    ),
    "ofql": OfqlConfig(eta=10.0, horizon=1, **SMALL),
    "diffusion_ql": DiffusionQlConfig(eta=30.0, slow_after=0, slow_every=1, horizon=1, **SMALL),
    "fql": FqlConfig(alpha=0.03, horizon=1, **SMALL),
    "qc": QcConfig(candidates=16, flow_steps=4, horizon=1, **SMALL),
    "rebrac": RebracConfig(actor_penalty=0.01, horizon=1, actor_every=1, **SMALL),
    "iql": IqlConfig(beta=30.0, horizon=1, **SMALL),
    "td3_bc": Td3BcConfig(alpha=1.0, horizon=1, actor_every=4, **SMALL),
    "cql": CqlConfig(alpha=0.05, samples=2, horizon=1, **SMALL),
    "cql-calibrated": CqlConfig(calibrated=True, alpha=0.05, samples=2, horizon=1, **SMALL),
    "awac": AwacConfig(temperature=0.1, horizon=1, **SMALL),
    "dvl": DvlConfig(beta=30.0, balance=0.9, horizon=1, **SMALL),
    "a2pr": A2prConfig(alpha=1.0, horizon=1, actor_every=4, **SMALL),
    "riql": RiqlConfig(beta=30.0, expectile=0.9, horizon=1, **SMALL),
    "iql-gradient": IqlConfig(extraction="gradient", alpha=0.03, horizon=1, **SMALL),
}
CAUTIOUS = {
    "consistency_ac": dataclasses.replace(GREEDY["consistency_ac"], eta=0.0, candidates=1),  # type: ignore[call-arg]
    "ofql": dataclasses.replace(GREEDY["ofql"], eta=0.0),  # type: ignore[call-arg]
    "diffusion_ql": dataclasses.replace(GREEDY["diffusion_ql"], eta=0.0, candidates=1),  # type: ignore[call-arg]
    "fql": dataclasses.replace(GREEDY["fql"], alpha=1e4),  # type: ignore[call-arg]
    "rebrac": dataclasses.replace(GREEDY["rebrac"], actor_penalty=1e4),  # type: ignore[call-arg]
    "iql": dataclasses.replace(GREEDY["iql"], beta=0.0),  # type: ignore[call-arg]
    "td3_bc": dataclasses.replace(GREEDY["td3_bc"], alpha=0.0),  # type: ignore[call-arg]
}


# Those that need fewer updates once targets follow faster: {name: (updates, rate of the targets)}.
QUICK = {
    "a2pr": (200, 0.1),
    "awac": (150, 0.2),
    "co_rft": (200, 0.1),
    "consistency_ac": (150, 0.15),
    "cql": (150, 0.2),
    "cql-calibrated": (150, 0.2),
    "deflow": (150, 0.15),
    "deflow-fisher": (150, 0.15),
    "dvl": (200, 0.1),
    "iql": (150, 0.15),
    "ofql": (150, 0.15),
    "qc": (150, 0.2),
    "riql": (150, 0.15),
    "td3_bc": (200, 0.1),
}


@pytest.mark.parametrize("name", sorted(GREEDY))
def test_the_best_action_of_a_bandit_is_found(name: str, tmp_path: Path) -> None:
    steps, tau = QUICK.get(name, (300, SMALL["tau"]))
    config = dataclasses.replace(GREEDY[name], tau=tau)  # type: ignore[call-arg]
    places = learned(config, tmp_path, steps)
    assert places.mean() == pytest.approx(BEST, abs=0.025)
    assert np.abs(places - BEST).mean() < 0.04


@pytest.mark.parametrize("name", sorted(CAUTIOUS))
def test_who_stays_near_behaviour_does_what_it_did(name: str, tmp_path: Path) -> None:
    places = learned(CAUTIOUS[name], tmp_path, 200)
    assert places.mean() == pytest.approx(MEAN, abs=0.03)
    if name == "fql":  # All of it, not its mean alone.
        assert places.std() == pytest.approx(0.3 / 12**0.5, abs=0.03)


@pytest.mark.parametrize(
    ("config", "following"),
    [
        (FqlConfig(), 3.5),
        (FqlConfig(following="min"), 2.0),
        (QcConfig(), 3.5),
        (DeflowConfig(), 3.5),
        (DiffusionQlConfig(), 2.0),
        (ConsistencyAcConfig(), 2.0),
        (OfqlConfig(), 2.0),
        (RebracConfig(critic_penalty=0.0), 2.0),
        (IqlConfig(), 4.0),
        (CocoaConfig(), 4.0),
        (DvlConfig(), 4.0),
        (Td3BcConfig(), 2.0),
        (A2prConfig(), 2.0),
        (AwacConfig(), 2.0),
        (CqlConfig(alpha=0.0, following=3), 2.0),
    ],
    ids=lambda value: value.algorithm().name if isinstance(value, ActorCriticConfig) else "",
)
def test_targets_by_hand(config: ActorCriticConfig, following: float) -> None:
    config = dataclasses.replace(
        config, horizon=2, discount=0.5, width=8, depth=1, bounds=(-1.0, 1.7), batch_size=4
    )
    flat = random_flat()
    data = EpisodeDataset(flat, config.batches(), 0)
    stats = dataclasses.replace(data.stats(), reward=None)
    built = config.build(SPACE, stats, None)
    assert isinstance(built, ActorCritic)
    says(built.critic.q, 1.0, 0.0)
    says(built.target, 5.0, 2.0)
    if built.critic.v is not None:
        says(built.critic.v, 4.0)
    # Row 18 is the last step of a terminal episode.
    losses = built(data.gather(np.array([1, 18])), 0, torch.Generator().manual_seed(0)).by_group
    r = flat.reward
    targets = np.clip([r[1] + 0.5 * r[2] + 0.25 * following, r[18]], -1.0, 1.7)
    wanted = np.mean([(1.0 - targets) ** 2, targets**2])
    assert losses["critic"].item() == pytest.approx(float(wanted), rel=1e-5)
    if isinstance(config, IqlConfig):
        # The least of the target critics is below what V says: that counts 1 - expectile.
        assert losses["value"].item() == pytest.approx(0.1 * (2.0 - 4.0) ** 2, rel=1e-5)


def test_the_next_recorded_chunk_pulls_the_target_down() -> None:
    flat = random_flat()
    found: list[float] = []
    for penalty in (0.0, 2.0):
        config = RebracConfig(
            critic_penalty=penalty, noise=0.0, horizon=2, discount=0.5, width=8, depth=1
        )
        torch.manual_seed(0)
        data = EpisodeDataset(flat, config.batches(), 0)
        built: Any = config.build(SPACE, data.stats(), None)
        says(built.critic.q, 0.0, 0.0)
        says(built.target, 0.0, 0.0)
        batch = data.gather(np.array([8]))
        loss = built(batch, 0, torch.Generator().manual_seed(0)).by_group["critic"]
        found.append(loss.item())
    follow = batch.next_observations
    chunk = built.slow_actor.chunk(built.slow_actor.context(follow))
    done = built.critic.chunk(batch.next_actions, follow)
    apart = float((chunk - done).view(2, 2).square().sum(dim=1).mean())
    reward = float(flat.reward[8] + 0.5 * flat.reward[9])
    assert found[0] == pytest.approx(reward**2, rel=1e-5)
    assert found[1] == pytest.approx((reward - 0.25 * 2.0 * apart) ** 2, rel=1e-4)


@pytest.mark.parametrize("name", sorted(set(GREEDY) - {"iql-gradient"}))
def test_gradients_stay_in_their_group(name: str) -> None:
    config = dataclasses.replace(GREEDY[name], horizon=2, batch_size=8)
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    built = config.build(SPACE, data.stats(), None)
    losses = built(data.batch(0), 0, torch.Generator().manual_seed(0)).by_group
    groups = built.groups()
    assert set(losses) == set(groups)
    owned = [id(p) for group in groups.values() for p in group.parameters]
    assert len(owned) == len(set(owned))
    for group in groups.values():
        assert all(p.requires_grad for p in group.parameters)


def test_bad_input_is_explained(tmp_path: Path) -> None:
    for kind in (FqlConfig, QcConfig, RebracConfig, IqlConfig):
        with pytest.raises(ConfigError, match="horizon"):
            kind(horizon=0)
        with pytest.raises(ConfigError, match="bounds must rise"):
            kind(bounds=(1.0, 0.0))
    with pytest.raises(ConfigError, match="alpha must be at least 0"):
        FqlConfig(alpha=-1.0)
    with pytest.raises(ConfigError, match="penalties"):
        RebracConfig(actor_penalty=-0.1)
    with pytest.raises(ConfigError, match="noise and noise_clip"):
        RebracConfig(noise=-0.1)
    config = FqlConfig(horizon=2, width=8, depth=1, batch_size=8)
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    built: Any = config.build(SPACE, data.stats(), None)
    batch = data.batch(0)
    windows = Batch(batch.observations, batch.actions, batch.action_mask)
    with pytest.raises(ConfigError, match="fql is fed with chunked transitions"):
        built(windows, 0, torch.Generator())
    cut = dataclasses.replace(config, bounds=(-1.0, 0.0))
    with pytest.raises(ConfigError, match=r"rewards are in \[0, 1\]"):
        cut.build(SPACE, data.stats(), None)
    says(built.target, 1e5, 0.0)
    with pytest.raises(TrainingError, match="values diverge"):
        built(batch, 0, torch.Generator().manual_seed(0))
