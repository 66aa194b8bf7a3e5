"""Values of prefixes: what they see, their targets by hand, a chain whose returns are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.prefix_values import PrefixEnsemble
from policies.offline_rl.chained.co_rft import CoRft, CoRftConfig
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from robolearn.learning import BatchSpec
from robolearn.training.loop import FitConfig, fit
from tests.learning_mocks import (
    BLOCK,
    SPACE,
    TOOL,
    ArraySource,
    random_episode,
    random_flat,
)

CONFIG = CoRftConfig(horizon=3, discount=0.5, width=8, depth=1, batch_size=4)


def built(config: CoRftConfig, flat: FlatEpisodes) -> tuple[CoRft, EpisodeDataset]:
    torch.manual_seed(0)
    data = EpisodeDataset(flat, config.batches(), 0)
    algorithm = config.build(SPACE, dataclasses.replace(data.stats(), reward=None), None)
    assert isinstance(algorithm, CoRft)
    return algorithm, data


def prefixes(algorithm: CoRft) -> PrefixEnsemble:
    q = algorithm.critic.q
    assert isinstance(q, PrefixEnsemble)
    return q


def says(q: Any, *values: float) -> None:
    for parameter in q.parameters():
        parameter.data.zero_()
    q.biases[-1].data.copy_(torch.tensor(values).view(-1, 1, 1))


def test_a_prefix_is_judged_without_what_comes_after_it() -> None:
    algorithm, _ = built(CONFIG, random_flat())
    q, features = prefixes(algorithm), torch.randn(5, algorithm.critic.observed.size)
    chunk = torch.randn(5, 6)
    values = q.prefixes(features, chunk)
    assert values.shape == (2, 5, 3)
    for step in range(3):
        other = chunk.clone()
        other[:, 2 * step : 2 * step + 2] += 1.0
        changed = (q.prefixes(features, other) - values).abs().amax(dim=(0, 1))
        assert (changed[:step] == 0).all()
        assert (changed[step:] > 0).all()
    whole = q(torch.cat([features, chunk], dim=-1))
    torch.testing.assert_close(whole, values[..., -1])


def test_what_each_step_leads_to_is_that_of_shorter_chunks() -> None:
    flat = random_flat()
    parts: Any = ("transition", "step_rewards", "step_observations")
    rows = np.array([1, 8, 16])  # Row 18 is the last step of a terminal episode.
    batch = EpisodeDataset(flat, BatchSpec(2, 3, 4, parts, 0.5, 3), 0).gather(rows)
    assert batch.step_observations is not None
    assert batch.step_bootstrap is not None
    assert batch.step_rewards is not None
    for steps in (1, 2, 3):
        spec = BatchSpec(2, 3, 4, ("transition",), 0.5, steps)
        short = EpisodeDataset(flat, spec, 0).gather(rows)
        assert short.reward is not None
        assert short.bootstrap is not None
        assert short.next_observations is not None
        torch.testing.assert_close(batch.step_bootstrap[:, steps - 1], short.bootstrap)
        powers = 0.5 ** torch.arange(steps)
        reward = (batch.step_rewards[:, :steps] * powers).sum(dim=1)
        torch.testing.assert_close(reward, short.reward)
        going = short.bootstrap > 0
        for name, value in short.next_observations.items():
            assert torch.equal(batch.step_observations[name][going, steps - 1], value[going])
    assert batch.step_bootstrap[2].tolist() == [0.5, 0.25, 0.0]


def test_targets_by_hand() -> None:
    config = dataclasses.replace(CONFIG, bounds=(-1.0, 1.6))
    algorithm, data = built(config, random_flat())
    says(algorithm.critic.q, 1.0, 0.0)
    says(algorithm.target, 5.0, 2.0)
    batch = data.gather(np.array([1, 17]))
    loss = algorithm(batch, 0, torch.Generator().manual_seed(0)).by_group["critic"]
    r = data.flat.reward
    one = [r[1] + 0.5 * 2.0, r[1] + 0.5 * r[2] + 0.25 * 2.0]
    one.append(r[1] + 0.5 * r[2] + 0.25 * r[3] + 0.125 * 2.0)
    # Row 17 is the last step but one: the third action of its chunk was never done.
    two = [r[17] + 0.5 * 2.0, r[17] + 0.5 * r[18]]
    targets = np.clip([*one, *two], -1.0, 1.6)
    assert loss.item() == pytest.approx(float(np.mean([(1 - targets) ** 2, targets**2])), rel=1e-5)


def chain() -> FlatEpisodes:
    """From anywhere the tool goes right by .05 m a step; each costs .1, and at .4 m all is over."""
    episodes = []
    for k in range(8):
        place = np.arange(0.05 + 0.005 * k, 0.4, 0.05)
        episode = random_episode(f"e{k}", len(place), k)
        y = np.full(len(place), 0.25)
        episodes.append(
            dataclasses.replace(
                episode,
                observations={
                    TOOL: np.stack([place, y], axis=1),
                    BLOCK: np.full((len(place), 3), 0.25),
                },
                actions=np.stack([place + 0.05, y], axis=1),
                reward=np.full(len(place), -0.1),
                done=np.arange(len(place)) == len(place) - 1,
            )
        )
    return flatten(ArraySource(tuple(episodes)))


def test_values_of_every_prefix_are_the_returns_of_a_chain(tmp_path: Path) -> None:
    """Behaviour alone is done, so that every prefix is worth what is still to be paid."""
    config = CoRftConfig(
        horizon=3,
        discount=0.9,
        width=32,
        depth=2,
        batch_size=32,
        lr=3e-3,
        tau=0.1,
        greed=0.0,
        noise=0.0,
    )
    flat = chain()
    algorithm, data = built(config, flat)
    fit(algorithm, data, FitConfig(steps=300, warmup=10, clip=10.0), tmp_path, seed=0)
    rows = data.windows
    batch = data.gather(rows)
    left = np.array([np.flatnonzero(flat.done[row:])[0] + 1 for row in rows])
    known = torch.tensor(-0.1 * (1 - 0.9**left) / 0.1, dtype=torch.float32)
    features = algorithm.critic.observed(batch.observations)
    chunk = algorithm.critic.chunk(batch.actions, batch.observations)
    with torch.no_grad():
        values = prefixes(algorithm).prefixes(features, chunk).mean(dim=0)
    done = batch.action_mask.float()
    apart = ((values - known[:, None]).abs() * done).sum() / done.sum()
    assert float(apart) < 0.05
    assert float(known.max() - known.min()) > 0.4


def test_the_floor_is_the_return() -> None:
    """Cal-QL: what the policy does is not pushed below what was got from there on."""
    config = dataclasses.replace(CONFIG, conservative=0.5, contrast=2)
    algorithm, data = built(config, random_flat())
    says(algorithm.critic.q, 1.0, 0.0)
    says(algorithm.target, 0.0, 0.0)
    plain, _ = built(CONFIG, random_flat())
    says(plain.critic.q, 1.0, 0.0)
    says(plain.target, 0.0, 0.0)
    batch = dataclasses.replace(data.gather(np.array([1, 8])), returns=torch.full((2,), 3.0))
    found = [
        built(batch, 1, torch.Generator().manual_seed(0)).by_group["critic"].item()
        for built in (algorithm, plain)
    ]
    above = [np.log(np.exp(3.0) + 2 * np.exp(q)) - q for q in (1.0, 0.0)]
    assert found[0] - found[1] == pytest.approx(0.5 * float(np.mean(above)), rel=1e-5)


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        CoRftConfig(greed=-1.0)
    with pytest.raises(ConfigError, match="actor_every"):
        CoRftConfig(actor_every=0)
    algorithm, data = built(CONFIG, random_flat())
    batch = dataclasses.replace(data.batch(0), step_observations=None)
    with pytest.raises(ConfigError, match="what each step of a chunk gave and led to"):
        algorithm(batch, 0, torch.Generator().manual_seed(0))
