"""Latency of a chunk, cost of training, speed of the data path; ratios within this run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from policies.flow import FlowConfig
from policies.registry import policy_config
from robolearn.data.dataset import EpisodeDataset
from robolearn.experiment import load_experiment
from robolearn.learning import BatchSpec
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_flat, random_request

ROOT = Path(__file__).parents[2]
# The size of the Push-T recordings.
EPISODES, STEPS = 206, 125


def rows(long: bool = False) -> list[dict[str, object]]:
    """See ``tests/benchmarks/run.py``."""
    torch.set_num_threads(1)
    repeats = 400 if long else 100
    experiment = load_experiment(ROOT / "configs/train/pusht_flow_demo.yaml", policy_config)
    config = experiment.algorithm
    if not isinstance(config, FlowConfig):
        raise TypeError("the demo trains a flow policy")
    return [*_latency(config, repeats), _train_step(config, repeats // 4), _windows(repeats)]


def _latency(config: FlowConfig, repeats: int) -> list[dict[str, object]]:
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    policy = config.build(SPACE, dataset.stats(), None).policy()
    request = random_request(1, config.n_obs)
    context = policy.context(request)
    x, t = torch.zeros(1, config.horizon, 2), torch.zeros(1)

    def call() -> None:
        with torch.inference_mode():
            policy.field(x, t, context)

    ours, single = _interleaved(lambda: policy.sample(request), call, repeats)
    whole = config.steps * single
    many = random_request(100, config.n_obs)
    batch, _ = _interleaved(lambda: policy.sample(many), call, max(10, repeats // 10))
    return [
        _row(
            f"chunk at batch 1, {config.steps} Euler steps, against as many bare network calls",
            "ms",
            ours * 1e3,
            whole * 1e3,
            ours / whole,
            1.2,
            holds=ours / whole <= 1.2,
            why="features, noise from the request's seed and numpy come on top",
        ),
        _row(
            "chunk for 100 requests at once, per request, against one at a time",
            "ms",
            batch / 100 * 1e3,
            ours * 1e3,
            batch / 100 / ours,
            0.5,
            holds=batch / 100 / ours <= 0.5,
            why="",
        ),
    ]


def _train_step(config: FlowConfig, repeats: int) -> dict[str, object]:
    """Forward, backward, fused AdamW and average against the bare products it needs."""
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    algorithm = config.build(SPACE, dataset.stats(), None)
    optimizer = torch.optim.AdamW(algorithm.model.parameters(), lr=1e-3, fused=True)
    rng = torch.Generator().manual_seed(0)
    step = 0

    def update() -> None:
        nonlocal step
        loss = algorithm(dataset.batch(step), step, rng).by_group["flow"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        algorithm.after_update(step, frozenset({"flow"}))
        step += 1

    weights = [p for p in algorithm.model.parameters() if p.ndim == 2]
    inputs = [torch.randn(config.batch_size, w.shape[1]) for w in weights]

    def products() -> None:
        with torch.inference_mode():
            for w, x in zip(weights, inputs, strict=True):
                y = x @ w.T  # Forward, then the gradients of input and weight.
                y @ w
                y.T @ x

    ours, reference = _interleaved(update, products, repeats)
    return _row(
        f"training step, batch {config.batch_size}, against its bare matrix products",
        "ms",
        ours * 1e3,
        reference * 1e3,
        ours / reference,
        2.0,
        holds=ours / reference <= 2.0,
        why="",
    )


def _windows(repeats: int) -> dict[str, object]:
    flat = random_flat((STEPS,) * EPISODES)
    dataset = EpisodeDataset(flat, BatchSpec("windows", 2, 16, 256), 0)
    rng = np.random.default_rng(0)
    total = len(flat.actions)
    observed = np.concatenate([flat.observations[TOOL], flat.observations[BLOCK]], axis=1)
    step = 0

    def ours() -> None:
        nonlocal step
        dataset.batch(step)
        step += 1

    def plain() -> None:
        t = rng.integers(1, total - 16, 256)
        observed[t[:, None] + np.arange(-1, 1)]
        flat.actions[t[:, None] + np.arange(16)]

    mine, reference = _interleaved(ours, plain, repeats)
    speed, bare = 256 / mine, 256 / reference
    return _row(
        "windows with padding, masks and shuffling, against a bare numpy gather from memory",
        "windows/s",
        speed,
        bare,
        speed / bare,
        0.5,
        holds=speed / bare >= 0.5,
        why="",
    )


def _interleaved(
    ours: Callable[[], object], reference: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Median CPU seconds of both in turns: one thread, so their time on a core of its own."""
    times = np.zeros((repeats, 2))
    for function in (ours, reference) * 5:
        function()
    for i in range(repeats):
        for j, function in enumerate((ours, reference)):
            begin = time.thread_time()
            function()
            times[i, j] = time.thread_time() - begin
    median = np.median(times, axis=0)
    return float(median[0]), float(median[1])


def _row(
    name: str,
    unit: str,
    ours: float,
    reference: float,
    ratio: float,
    floor: float,
    *,
    holds: bool,
    why: str,
) -> dict[str, object]:
    return {
        "name": name,
        "unit": unit,
        "ours": round(ours, 4),
        "reference": round(reference, 4),
        "ratio": round(ratio, 3),
        "floor": floor,
        "holds": holds,
        "why": why,
    }
