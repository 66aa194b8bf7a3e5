"""RIQL: what its loss, quantile and scaling say, and that corruption does not mislead it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.offline_rl.iql import IqlConfig
from policies.offline_rl.riql import RiqlConfig
from robolearn.data.reading.corruption import CorruptConfig, corrupted
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_flat
from tests.policies.offline_rl.bandits import (
    BEST,
    SMALL,
    bandit,
    encoded,
    generator,
    learned,
    says,
)


def built(config: RiqlConfig) -> tuple[Any, EpisodeDataset]:
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    stats = dataclasses.replace(data.stats(), reward=None)
    return config.build(SPACE, stats, None), data


def test_outliers_count_by_their_size_and_the_rest_by_its_square() -> None:
    algorithm, _ = built(RiqlConfig(huber=0.5, width=8, depth=1))
    error = torch.tensor([[0.0, 0.25, -0.25, 0.5, 1.0, -10.0]])
    wanted = [0.0, 0.0625, 0.0625, 0.25, 0.75, 9.75]
    assert algorithm.td_loss(error)[0].tolist() == pytest.approx(wanted)


def test_values_by_a_quantile_of_the_members() -> None:
    config = RiqlConfig(quantile=0.25, expectile=0.7, horizon=2, width=8, depth=1)
    algorithm, data = built(config)
    says(algorithm.critic.q, *[0.0] * 5)
    # The least is -90: one critic that was misled does not decide.
    says(algorithm.target, 3.0, -90.0, 1.0, 2.0, 4.0)
    says(algorithm.critic.v, 0.0)
    batch = data.gather(np.array([1]))
    losses = algorithm(batch, 0, torch.Generator().manual_seed(0)).by_group
    assert losses["value"].item() == pytest.approx(0.7 * 1.0**2)
    chunk = algorithm.actor.chunk(algorithm.actor.context(batch.observations))
    there = algorithm.critic.chunk(batch.actions, batch.observations)
    unlikely = 0.5 * (chunk - there).detach().square().sum().item()
    assert losses["policy"].item() == pytest.approx(np.exp(3.0 * 1.0) * unlikely, rel=1e-4)


def test_the_diagnosed_error_is_in_the_unit_of_values() -> None:
    algorithm, t = encoded(RiqlConfig(huber=100.0, horizon=2, width=8, depth=1))
    target = algorithm.td_target(t, algorithm.value(t.follow))
    wanted = ((algorithm.critic.q_values(t.now, t.chunk) - target) ** 2).mean()
    torch.testing.assert_close(algorithm.mean_td_loss(t, generator()), wanted)


def test_observations_are_standardised_and_actions_are_not() -> None:
    algorithm, data = built(RiqlConfig(horizon=2, width=8, depth=1))
    flat = data.flat
    features = algorithm.critic.observed.encoder(
        {n: torch.from_numpy(np.asarray(flat.observations[n]))[None] for n in (TOOL, BLOCK)}
    )[0]
    torch.testing.assert_close(features[:, :4].std(0, correction=0), torch.ones(4))
    chunk = algorithm.critic.codec.encode(torch.from_numpy(flat.actions)[None], {})[0]
    torch.testing.assert_close(chunk.amax(0), torch.ones(2))


def test_corrupted_rewards_mislead_the_square_and_not_hubers_loss(tmp_path: Path) -> None:
    """30 % of the rewards are drawn from +- 30 of their deviations: of the two, one finds the best
    action of the bandit as well as ever.
    """
    spoilt = corrupted(bandit(), CorruptConfig(("rewards",), 0.3))
    shared: dict[str, Any] = {**SMALL, "horizon": 1, "beta": 30.0, "expectile": 0.9}
    far: list[float] = []
    for name, config in (
        ("riql", RiqlConfig(huber=0.1, **shared)),
        ("iql", IqlConfig(**shared, members=5)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        places = learned(config, folder, 300, spoilt)
        far.append(float(np.abs(places - BEST).mean()))
    assert far[0] < 0.03
    assert far[1] > 2.0 * far[0]


def test_bad_input_is_explained() -> None:
    for more, what in (
        ({"quantile": 1.5}, "quantile in"),
        ({"expectile": 0.0}, "expectile must be"),
        ({"huber": 0.0}, "huber must be above 0"),
        ({"beta": -1.0}, "beta and alpha"),
    ):
        with pytest.raises(ConfigError, match=what):
            RiqlConfig(**more)  # type: ignore[arg-type]
