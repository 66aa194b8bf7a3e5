"""A residual within a trust region: its score, its limit, and what the metric is cheap along."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.offline_rl.generative.deflow import Deflow, DeflowConfig, score
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from robolearn.training.loop import FitConfig, fit
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource, random_episode, random_flat


@pytest.mark.parametrize("time", [0.3, 0.8, 0.95])
def test_the_score_of_a_gaussian(time: float) -> None:
    """Of A ~ N(m, s^2) the velocity is known, and so is the density of (1 - t) z + t A."""
    m, s = 0.4, 0.3
    x = torch.linspace(-2, 2, 9)[:, None]
    variance = time**2 * s**2 + (1 - time) ** 2
    apart = (x - time * m) / variance
    velocity = (m + time * s**2 * apart) - (1 - time) * apart
    torch.testing.assert_close(score(velocity, x, time), -apart, rtol=1e-4, atol=1e-4)


def upwards(spread: float = 0.03) -> EpisodeDataset:
    """One step that is worth how far to the right it goes; behaviour stays near .25 m."""
    rng = np.random.default_rng(0)
    place = np.stack([rng.normal(0.25, spread, 400), np.full(400, 0.25)], axis=1)
    place[:2] = [[0.0, 0.2], [0.5, 0.3]]  # What scaling is made of: 1 is .25 m.
    episode = dataclasses.replace(
        random_episode("e", 400, 0),
        observations={TOOL: np.full((400, 2), 0.25), BLOCK: np.full((400, 3), 0.25)},
        actions=place,
        reward=(place[:, 0] - 0.25) / 0.03,
        done=np.ones(400, dtype=np.bool_),
    )
    return EpisodeDataset(flatten(ArraySource((episode,))), CONFIG.batches(), 0)


CONFIG = DeflowConfig(
    divergence=0.02,
    multiplier_lr=0.05,
    flow_steps=4,
    horizon=1,
    width=32,
    depth=2,
    batch_size=128,
    lr=3e-3,
    tau=0.05,
)


def test_the_divergence_is_held_where_the_best_lies_outside(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = upwards()
    algorithm: Any = CONFIG.build(SPACE, data.stats(), None)
    fit(algorithm, data, FitConfig(steps=300, warmup=10, clip=10.0), tmp_path, seed=0)
    rng = torch.Generator().manual_seed(1)
    t = algorithm.encoded(data.batch(0), 1, rng)
    with torch.no_grad():
        base = algorithm.actor.base(torch.randn(t.chunk.shape, generator=rng), t.seen)
        delta = algorithm.actor.delta(base, t.seen)
    assert float(delta.square().mean()) == pytest.approx(CONFIG.divergence, rel=0.3)
    # All of it the way that is worth something: sqrt(2 * .02) of normalised actions to the right.
    assert float(delta[:, 0].mean()) == pytest.approx(0.2, rel=0.25)


def test_what_behaviour_varies_along_is_cheaper_by_scores() -> None:
    """Scores are small along what varies much: a residual there costs less than across it."""
    data = EpisodeDataset(random_flat(), CONFIG.batches(), 0)
    config = dataclasses.replace(CONFIG, metric="fisher")
    found: Any = config.build(SPACE, data.stats(), None)
    algorithm: Deflow = found
    spread = torch.tensor([0.5, 0.01])

    def drawn(x: Any, context: Any, steps: int) -> Any:
        return x * spread

    def velocity(x: Any, time: Any, context: Any) -> Any:
        variance = time**2 * spread**2 + (1 - time) ** 2
        return (time * spread**2 - (1 - time)) * x / variance

    flow: Any = algorithm.actor.flow
    flow.sample, flow.velocity = drawn, velocity
    context = torch.zeros(400, algorithm.actor.observed.size)
    rng = torch.Generator().manual_seed(0)
    along, across = (
        float(algorithm.divergence(torch.tensor([way]).expand(400, 2), context, rng).mean())
        for way in ([0.1, 0.0], [0.0, 0.1])
    )
    assert along < across / 5
    # Whatever behaviour is, a residual in any direction costs as much as by the plain metric.
    assert along + across == pytest.approx(2 * 0.1**2 / 2, rel=0.05)


def test_nothing_but_behaviour_moves_the_flow() -> None:
    data = EpisodeDataset(random_flat(), CONFIG.batches(), 0)
    algorithm: Any = CONFIG.build(SPACE, data.stats(), None)
    t = algorithm.encoded(data.batch(0), 1, torch.Generator().manual_seed(0))
    losses = algorithm.actor_losses(t, torch.Generator().manual_seed(0))
    flow = tuple(algorithm.actor.flow.parameters())
    grads = torch.autograd.grad(losses["policy"], flow, allow_unused=True)
    assert all(g is None for g in grads)


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="divergence and multiplier_lr must be above 0"):
        DeflowConfig(divergence=0.0)
