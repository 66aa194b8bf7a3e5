"""A bandit whose best action is known, and critics that say what a test wants."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.critics.actor_critic import ActorCritic, ActorCriticConfig, Transition
from policies.critics.ensemble import Ensemble
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.training.loop import FitConfig, fit
from tests.learning_mocks import (
    BLOCK,
    SPACE,
    TOOL,
    ArraySource,
    random_episode,
    random_flat,
    random_request,
)

# A constant rate (the default): one that falls to 0 leaves the critic unfinished in 300 updates.
SMALL: dict[str, Any] = {
    "width": 32,
    "depth": 2,
    "batch_size": 128,
    "lr": 3e-3,
    "tau": 0.05,
}
BEST, MEAN = 0.32, 0.25


def bandit() -> FlatEpisodes:
    """Any place between .1 and .4 m is tried once; .32 is the best, and everything ends there."""
    rng = np.random.default_rng(0)
    place = np.stack([rng.uniform(0.1, 0.4, 600), np.full(600, 0.25)], axis=1)
    place[:2] = [[0.1, 0.2], [0.4, 0.3]]
    episode = dataclasses.replace(
        random_episode("e", 600, 0),
        observations={TOOL: np.full((600, 2), 0.25), BLOCK: np.full((600, 3), 0.25)},
        actions=place,
        reward=-(((place[:, 0] - BEST) / 0.15) ** 2),
        done=np.ones(600, dtype=np.bool_),
    )
    return flatten(ArraySource((episode,)))


def learned(
    config: ActorCriticConfig, folder: Path, steps: int, flat: FlatEpisodes | None = None
) -> np.ndarray:
    """How far along the first axis the actor goes, ``[64]``."""
    return answered(config, folder, steps, bandit() if flat is None else flat)[:, 0]


def answered(config: ActorCriticConfig, folder: Path, steps: int, flat: FlatEpisodes) -> np.ndarray:
    """Where the actor goes after so many updates, ``[64, 2]``."""
    torch.manual_seed(0)
    data = EpisodeDataset(flat, config.batches(), 0)
    algorithm = config.build(SPACE, data.stats(), None)
    fit(algorithm, data, FitConfig(steps=steps, warmup=10, clip=10.0), folder, seed=0)
    asked = random_request(64, n_obs=1)
    same = {name: np.full_like(v, 0.25) for name, v in asked.observations.items()}
    request = dataclasses.replace(asked, observations=same)
    return algorithm.policy().sample(request).actions[:, 0, 0]


def says(ensemble: Ensemble, *values: float) -> None:
    """Let every member say one number, whatever it sees."""
    for parameter in ensemble.parameters():
        parameter.data.zero_()
    ensemble.biases[-1].data.copy_(torch.tensor(values).view(-1, 1, 1))


def encoded(
    config: ActorCriticConfig, rows: tuple[int, ...] = (1, 4, 9, 18)
) -> tuple[Any, Transition]:
    """An untrained algorithm, and what it sees of a few rows of random episodes."""
    torch.manual_seed(0)
    data = EpisodeDataset(random_flat(), config.batches(), 0)
    built = config.build(SPACE, dataclasses.replace(data.stats(), reward=None), None)
    assert isinstance(built, ActorCritic)
    return built, built.encoded(data.gather(np.array(rows)), 0, generator())


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def first_number(features: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
    """Two critics by which a chunk is worth its first number, and 1 more."""
    del features
    return torch.stack([chunk[:, 0], chunk[:, 0] + 1.0])
