"""Latency of a chunk, cost of training, speed of the data path; ratios within this run."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from policies.imitation.diffusion import DiffusionConfig
from policies.imitation.flow import FlowConfig
from policies.nets.chunk_net import ConvConfig
from policies.registry import policy_config
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.inference.onnx import OnnxPolicy, export_onnx
from robolearn.learning import Algorithm, BatchSpec
from robolearn.training.experiment import load_experiment
from tests.benchmarks.turns import interleaved
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
    return [
        *_latency(config, repeats),
        _onnx(config, repeats),
        _train_step(config, repeats // 4),
        *_against_unet(config, batch=256 if long else 16, repeats=5 if long else 2),
        _contended(config, repeats // 4),
        _windows(repeats),
        _data_share(config, repeats),
    ]


def _latency(config: FlowConfig, repeats: int) -> list[dict[str, object]]:
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    policy = config.build(SPACE, dataset.stats(), None).policy()
    request = random_request(1, config.n_obs)
    context = policy.context(request)
    x, t = torch.zeros(1, config.horizon, 2), torch.zeros(1)

    def call() -> None:
        with torch.inference_mode():
            policy.field(x, t, context)

    ours, single = interleaved(lambda: policy.sample(request), call, repeats)
    whole = config.sampler_steps * single
    many = random_request(100, config.n_obs)
    batch, _ = interleaved(lambda: policy.sample(many), call, max(10, repeats // 10))
    return [
        _row(
            f"chunk at batch 1, {config.sampler_steps} Euler steps, against as many network calls",
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


def _onnx(config: FlowConfig, repeats: int) -> dict[str, object]:
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    policy = config.build(SPACE, dataset.stats(), None).policy()
    for parameter in policy.model.parameters():
        # Untrained networks say nothing, and then any two agree.
        parameter.data.add_(0.02 * torch.randn(parameter.shape))
    with tempfile.TemporaryDirectory() as folder:
        done = export_onnx(policy, Path(folder) / "x.onnx", "")
        graph = OnnxPolicy.load(done.path)
    request = random_request(1, config.n_obs)
    ours, reference = interleaved(
        lambda: graph.sample(request), lambda: policy.sample(request), repeats
    )
    return _row(
        "chunk at batch 1 by ONNX Runtime, against torch",
        "ms",
        ours * 1e3,
        reference * 1e3,
        ours / reference,
        0.5,
        holds=ours / reference <= 0.5,
        why=f"graph and policy differ by at most {done.difference:.1g}",
    )


def _against_unet(config: FlowConfig, batch: int, repeats: int) -> list[dict[str, object]]:
    """Against Diffusion Policy's low-dimensional network (65.8 M parameters) with 16 DDIM steps."""
    paper = DiffusionConfig(
        net="unet",
        conv=ConvConfig((256, 512, 1024), kernel=5),
        width=256,
        prediction="epsilon",
        sampler="ddim",
        sampler_steps=16,
        clip=1.0,
        batch_size=batch,
    )
    small = dataclasses.replace(config, batch_size=batch)
    dataset = EpisodeDataset(random_flat((100, 100)), small.batches(), 0)
    ours, theirs = (c.build(SPACE, dataset.stats(), None) for c in (small, paper))
    millions = sum(p.numel() for p in theirs.groups()["diffusion"].parameters) / 1e6
    request = random_request(1, config.n_obs)
    mine = _p50_p99(lambda: ours.policy().sample(request), 100)
    reference = _p50_p99(lambda: theirs.policy().sample(request), repeats)[0]
    step_ours, step_theirs = interleaved(
        _updates(ours, dataset, "flow"), _updates(theirs, dataset, "diffusion"), repeats, warm=1
    )
    return [
        _row(
            f"chunk at batch 1, against a UNet of {millions:.1f} M parameters with 16 DDIM steps",
            "ms",
            mine[0] * 1e3,
            reference * 1e3,
            mine[0] / reference,
            0.01,
            holds=mine[0] / reference <= 0.01 and mine[0] <= 0.01,
            why=f"CPU time; p99 {mine[1] * 1e3:.1f} ms; at most 10 ms as well",
        ),
        _row(
            f"training step, batch {batch}, against the same UNet's",
            "ms",
            step_ours * 1e3,
            step_theirs * 1e3,
            step_ours / step_theirs,
            0.05,
            holds=step_ours / step_theirs <= 0.05,
            why="CPU time",
        ),
    ]


def _updates(algorithm: Algorithm, dataset: EpisodeDataset, name: str) -> Callable[[], None]:
    """One training step after the other: forward, backward, fused AdamW, average."""
    parameters = algorithm.groups()[name].parameters
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    rng = torch.Generator().manual_seed(0)
    step = 0

    def update() -> None:
        nonlocal step
        loss = algorithm(dataset.batch(step), step, rng).by_group[name]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        algorithm.after_update(step, frozenset({name}))
        step += 1

    return update


def _contended(config: FlowConfig, repeats: int) -> dict[str, object]:
    """Wall time of a step with two threads while another process keeps one core busy, against one
    thread on the machine as it is. The barriers of OpenMP must not spin for that.
    """
    name = "training step, two threads beside a busy core, against one thread without it"
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if load > 0.5 * cores:
        why = f"not measured: load average {load:.1f} on {cores} cores"
        return _row(name, "ms", 0.0, 0.0, 0.0, 1.5, holds=None, why=why)
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    update = _updates(config.build(SPACE, dataset.stats(), None), dataset, "flow")
    alone = _wall(update, repeats)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        torch.set_num_threads(2)
        beside = _wall(update, repeats)
    finally:
        torch.set_num_threads(1)
        busy.kill()
        busy.wait()
    ratio = beside / alone
    why = f"OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', '')}"
    return _row(name, "ms", beside * 1e3, alone * 1e3, ratio, 1.5, holds=ratio <= 1.5, why=why)


def _wall(function: Callable[[], object], repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats + 3):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[3:]))


def _data_share(config: FlowConfig, repeats: int) -> dict[str, object]:
    """Steps per second of the loop, against the same steps with batches that are there already."""
    dataset = EpisodeDataset(random_flat((STEPS,) * EPISODES), config.batches(), 0)
    update = _updates(config.build(SPACE, dataset.stats(), None), dataset, "flow")
    step = 0

    def gather() -> None:
        nonlocal step
        dataset.batch(step)
        step += 1

    whole, data = interleaved(update, gather, max(10, repeats // 4))
    share = (whole - data) / whole
    return _row(
        "what the optimiser could take that the data path delivers",
        "steps/s",
        1 / whole,
        1 / (whole - data),
        share,
        0.95,
        holds=share >= 0.95,
        why="CPU time",
    )


def _p50_p99(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and 99th percentile of CPU seconds."""
    function()
    times: list[float] = []
    for _ in range(repeats):
        begin = time.thread_time()
        function()
        times.append(time.thread_time() - begin)
    return float(np.median(times)), float(np.quantile(times, 0.99))


def _train_step(config: FlowConfig, repeats: int) -> dict[str, object]:
    """Forward, backward, fused AdamW and average against the bare products it needs."""
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    algorithm = config.build(SPACE, dataset.stats(), None)
    update = _updates(algorithm, dataset, "flow")
    weights = [p for p in algorithm.model.parameters() if p.ndim == 2]
    inputs = [torch.randn(config.batch_size, w.shape[1]) for w in weights]

    def products() -> None:
        with torch.inference_mode():
            for w, x in zip(weights, inputs, strict=True):
                y = x @ w.T  # Forward, then the gradients of input and weight.
                y @ w
                y.T @ x

    ours, reference = interleaved(update, products, repeats)
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
    dataset = EpisodeDataset(flat, BatchSpec(2, 16, 256), 0)
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

    mine, reference = interleaved(ours, plain, repeats)
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


def _row(
    name: str,
    unit: str,
    ours: float,
    reference: float,
    ratio: float,
    floor: float,
    *,
    holds: bool | None,
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
