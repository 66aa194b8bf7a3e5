"""HIL-SERL: the arm by a Gaussian, the gripper by a critic that chooses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.online_rl.hil_serl import WIDTH, HilSerlConfig
from policies.online_rl.rlpd import RlpdConfig
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.errors import ConfigError
from robolearn.spec import ActionSpec, SignalSpec
from robolearn.training.loop import FitConfig, fit
from robolearn.types import PolicyInput
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource
from tests.policies.offline_rl.bandits import BEST, generator, says

OPEN = 0.08
GRIPPING = dataclasses.replace(
    SPACE,
    observations=(*SPACE.observations, SignalSpec(WIDTH, (1,), "m", 10.0)),
    actions=(*SPACE.actions, ActionSpec(WIDTH, (1,), "m", 10.0, low=(0.0,), high=(OPEN,))),
)
SMALL: dict[str, Any] = {
    "width": 32,
    "depth": 2,
    "batch_size": 64,
    "lr": 3e-3,
    "tau": 0.05,
    "horizon": 1,
}


def tries(rows: int = 4000) -> FlatEpisodes:
    """Every step is an episode. The tool does best at .32 m; where the block is right of .25 m it
    is worth .5 to close, else to open. A gripper that is half closed was never tried.
    """
    rng = np.random.default_rng(0)
    place = np.stack([rng.uniform(0.1, 0.4, rows), np.full(rows, 0.25)], axis=1)
    place[:2] = [[0.1, 0.2], [0.4, 0.3]]
    block = np.full((rows, 3), 0.25)
    block[:, 0] = rng.uniform(0.1, 0.4, rows)
    closed = rng.random(rows) < 0.5
    width = np.where(closed, 0.0, OPEN)[:, None]
    right = closed == (block[:, 0] > 0.25)
    episode = EpisodeArrays(
        id="e",
        observations={
            TOOL: np.full((rows, 2), 0.25),
            BLOCK: block,
            WIDTH: np.where(rng.random(rows) < 0.5, 0.0, OPEN)[:, None],
        },
        actions=np.concatenate([place, width], axis=1),
        reward=0.5 * right - ((place[:, 0] - BEST) / 0.15) ** 2,
        done=np.ones(rows, dtype=np.bool_),
    )
    return flatten(ArraySource((episode,), task_space=GRIPPING))


def built(config: HilSerlConfig | RlpdConfig) -> tuple[Any, EpisodeDataset]:
    torch.manual_seed(0)
    data = EpisodeDataset(tries(), config.batches(), 0)
    return config.build(GRIPPING, dataclasses.replace(data.stats(), reward=None), None), data


def asked(rows: int = 64) -> PolicyInput:
    """Blocks from left to right; nobody may be nearer than a centimetre to where it changes."""
    x = np.linspace(0.1, 0.4, rows)
    x = np.where(np.abs(x - 0.25) < 0.01, 0.1, x)
    block = np.full((rows, 1, 3), 0.25)
    block[:, 0, 0] = x
    seen = {TOOL: np.full((rows, 1, 2), 0.25), BLOCK: block, WIDTH: np.full((rows, 1, 1), OPEN)}
    numbers = np.arange(rows, dtype=np.int64)
    return PolicyInput(seen, numbers, numbers)


def test_arm_and_gripper_find_what_is_best(tmp_path: Path) -> None:
    algorithm, data = built(HilSerlConfig(**SMALL | {"actor_every": 1, "batch_size": 256}))
    fit(algorithm, data, FitConfig(steps=400, warmup=10, clip=10.0), tmp_path, seed=0)
    request = asked()
    actions = algorithm.policy().sample(request).actions[:, 0, 0]
    assert np.abs(actions[:, 0] - BEST).max() < 0.03
    close = request.observations[BLOCK][:, 0, 0] > 0.25
    np.testing.assert_allclose(actions[:, 2], np.where(close, 0.0, OPEN), atol=1e-6)


def test_the_gripper_learns_by_what_its_choice_led_to() -> None:
    algorithm, data = built(HilSerlConfig(change_cost=0.1, **SMALL))
    t = algorithm.encoded(data.gather(np.arange(8)), 0, generator())
    t = dataclasses.replace(t, bootstrap=torch.full_like(t.bootstrap, 0.5))
    wanted = data.gather(np.arange(8)).actions[:, 0, 2]
    assert algorithm.chosen(t).tolist() == (wanted > OPEN / 2).long().tolist()
    before = data.gather(np.arange(8)).observations[WIDTH][:, -1, 0]
    changes = (before != wanted).float()
    assert algorithm.changes(t, algorithm.chosen(t)).tolist() == changes.tolist()
    # The one that is chosen now is judged by the slow critic, be it the best there or not.
    says(algorithm.actor.grips, 0.0)
    algorithm.actor.grips.biases[-1].data.copy_(torch.tensor([[[1.0, 2.0]]]))
    says(algorithm.slow_grips, 0.0)
    algorithm.slow_grips.biases[-1].data.copy_(torch.tensor([[[5.0, 3.0]]]))
    target = t.reward + 0.5 * 3.0 - 0.1 * changes
    torch.testing.assert_close(algorithm.grip_target(t, algorithm.chosen(t)), target)
    said = torch.where(wanted > OPEN / 2, 2.0, 1.0)
    loss = algorithm.critic_loss(t, generator())["gripper"]
    torch.testing.assert_close(loss, ((said - target) ** 2).mean())


def test_the_arms_critic_and_entropy_know_nothing_of_the_gripper() -> None:
    algorithm, data = built(HilSerlConfig(**SMALL))
    batch = data.gather(np.arange(4))
    t = algorithm.encoded(batch, 0, generator())
    assert not t.chunk[:, 2].any()
    chunk, density = algorithm.actor.draw(t.seen, generator())
    assert not chunk[:, 2].any()
    plain, _ = built(RlpdConfig(members=2, actor_every=2, **SMALL))
    assert (algorithm.entropy, plain.entropy) == (-1.0, -1.5)
    assert density.shape == (4,)
    groups = algorithm.groups()
    assert set(groups) == {"critic", "policy", "entropy", "gripper"}
    mine = {id(p) for p in groups["gripper"].parameters}
    assert not mine & {id(p) for p in groups["policy"].parameters}


def test_what_it_cannot_choose_is_refused() -> None:
    blind = dataclasses.replace(GRIPPING, observations=SPACE.observations)
    stats = EpisodeDataset(tries(), HilSerlConfig(**SMALL).batches(), 0).stats()
    with pytest.raises(ConfigError, match="set change_cost to 0"):
        HilSerlConfig(**SMALL).build(blind, stats, None)
    HilSerlConfig(change_cost=0.0, **SMALL).build(blind, stats, None)
    two = dataclasses.replace(
        GRIPPING,
        actions=(*GRIPPING.actions, ActionSpec(f"left_{WIDTH}", (1,), "m", 10.0)),
    )
    with pytest.raises(ConfigError, match="width of one gripper, got 2"):
        HilSerlConfig(**SMALL).build(two, stats, None)
    with pytest.raises(ConfigError, match="widths must be at least 2"):
        HilSerlConfig(widths=1)
