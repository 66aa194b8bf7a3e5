"""What the tests of all policies share: untrained ones, and toys that they learn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from policies.chunks.base import ChunkAlgorithm, ChunkConfig
from policies.registry import POLICIES, PolicyConfig, load_policy
from robolearn.contracts import Policy
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig
from robolearn.learning import Batch
from robolearn.training.experiment import Experiment
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import (
    WEIGHTS,
    Run,
    copy_run,
    seal_run,
    write_json,
    write_run,
    write_tensors,
)
from tests.learning_mocks import (
    BLOCK,
    SPACE,
    TOOL,
    ArraySource,
    random_flat,
    random_request,
    random_source,
)

# Where the two-mode toy's actions are [m].
LEFT, RIGHT = 0.1, 0.4


def untrained(config: ChunkConfig, spread: float = 0.05) -> ChunkAlgorithm:
    """An algorithm whose policy is not the zero function, which would hide mistakes."""
    torch.manual_seed(0)
    stats = EpisodeDataset(random_flat((30, 30)), config.batches(), 0).stats()
    if not isinstance(config, PolicyConfig):
        raise TypeError("not a policy's configuration")
    built = config.build(SPACE, stats, None)
    if not isinstance(built, ChunkAlgorithm):
        raise TypeError("not one of the family")
    for parameter in built.ema.parameters():
        parameter.data.add_(spread * torch.randn(parameter.shape))
    return built


def a_batch(config: ChunkConfig) -> Batch:
    return EpisodeDataset(random_flat((30, 30)), config.batches(), 0).batch(0)


def two_modes(episodes: int = 8, steps: int = 40) -> ArraySource:
    """Nothing can be learned from what is seen; half of the episodes stay left and half right."""
    items = random_source((steps,) * episodes).items
    changed = [
        dataclasses.replace(
            e,
            observations={TOOL: np.full((steps, 2), 0.25), BLOCK: np.full((steps, 3), 0.25)},
            actions=np.tile([(LEFT, RIGHT)[i % 2], 0.25], (steps, 1)),
        )
        for i, e in enumerate(items)
    ]
    return ArraySource(tuple(changed))


def pointing() -> ArraySource:
    """The action is where the block is."""
    items = random_source((40, 40)).items
    return ArraySource(
        tuple(dataclasses.replace(e, actions=e.observations[BLOCK][:, :2]) for e in items)
    )


def learn(
    config: ChunkConfig,
    source: ArraySource,
    folder: Path,
    steps: int,
    parent: Run | None = None,
) -> Policy:
    """Train without the loop's bookkeeping, and load what a run directory then holds."""
    name = next(n for n in POLICIES if POLICIES.find(n) is type(config))
    torch.manual_seed(0)
    dataset = EpisodeDataset(flatten(source), config.batches(), 0)
    stats = dataset.stats()
    assert isinstance(config, PolicyConfig)
    built = config.build(SPACE, stats, parent)
    (group,) = built.groups().values()
    optimizer = torch.optim.AdamW(group.parameters, lr=group.lr, fused=True)
    rng = torch.Generator().manual_seed(0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = group.lr * min(1.0, 2 * (1 - step / steps))
        (loss,) = built(dataset.batch(step), step, rng).by_group.values()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        built.after_update(step, frozenset())
    run = folder / name
    experiment = Experiment(name, DataConfig((TOOL, BLOCK)), config, FitConfig(steps))
    write_run(run, experiment.plain(), built.policy().spec, stats)
    write_tensors(run / WEIGHTS, built.policy_weights(), {})
    write_json(run / "provenance.json", {})
    if parent is not None:
        copy_run(parent.path, run / "parent")
    seal_run(run)
    return load_policy(run)


def mode_shares(policy: Policy, count: int = 128) -> tuple[float, float]:
    """Shares of the samples within 4 cm of the left and of the right mode."""
    request = random_request(count, policy.spec.n_obs, seed=5)
    same = {k: np.full_like(v, 0.25) for k, v in request.observations.items()}
    x = policy.sample(dataclasses.replace(request, observations=same)).actions[:, 0, :, 0]
    left = (np.abs(x - LEFT) < 0.04).all(axis=1).mean()
    right = (np.abs(x - RIGHT) < 0.04).all(axis=1).mean()
    return float(left), float(right)
