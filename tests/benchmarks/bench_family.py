"""Every policy at its default size beside the default flow: a chunk, and a training step's work."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from policies.chunks.base import ChunkAlgorithm, ChunkConfig
from policies.chunks.policy import ChunkPolicy
from policies.imitation.distilled import DistilledConfig, DistilledModel
from policies.imitation.flow import FlowConfig
from policies.registry import PolicyConfig, policy_config
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.inference.onnx import OnnxPolicy, export_onnx
from robolearn.training.experiment import load_experiment
from tests.benchmarks.turns import in_turns, interleaved
from tests.learning_mocks import SPACE, random_flat, random_request

ROOT = Path(__file__).parents[2]
NAMES = ("diffusion", "mean_flow", "shortcut", "beso", "act", "bc", "bc_rnn", "ebt")
NETS = ("mixer", "dit", "unet")
# Calls per chunk that differ from flow's four decide what to expect of the others.
ONE_STEP = ("mean_flow", "shortcut")


def rows(long: bool = False) -> list[dict[str, object]]:
    """See ``tests/benchmarks/run.py``."""
    torch.set_num_threads(1)
    repeats = 200 if long else 30
    reference = FlowConfig()
    found: list[dict[str, object]] = []
    others: list[tuple[str, object]] = [(name, policy_config(name)()) for name in NAMES]
    others += [(f"flow, {net}", FlowConfig(net=net)) for net in NETS]
    for name, config in others:
        if not isinstance(config, ChunkConfig):
            raise TypeError(f"{name} is not one of the family")
        ours, flow = interleaved(_chunk(config), _chunk(reference), repeats, warm=2)
        floor = 0.6 if name in ONE_STEP else None
        found.append(_row(f"{name}: chunk at batch 1, against flow's", ours, flow, floor))
        step, flow_step = interleaved(
            _step(config), _step(reference), max(3, repeats // 10), warm=2
        )
        found.append(_row(f"{name}: forward and backward, batch 256", step, flow_step, None))
    return [*_recipes(repeats * 3), *found]


def _recipes(repeats: int) -> list[dict[str, object]]:
    """The one-step recipe of Push-T beside the four steps that it is learned from, on torch and on
    ONNX Runtime.
    """
    four, one = (
        load_experiment(ROOT / f"configs/train/{name}.yaml", policy_config).algorithm
        for name in ("pusht_flow", "pusht_distilled")
    )
    if not isinstance(four, FlowConfig) or not isinstance(one, DistilledConfig):
        raise TypeError("the recipes are not what they are named after")
    stats = EpisodeDataset(random_flat((100, 100)), four.batches(), 0).stats()
    spec = four.policy_spec(SPACE)
    slow = four.build(SPACE, stats, None).policy()
    fast = ChunkPolicy(DistilledModel(one, spec, stats).eval(), spec)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.onnx" for name in ("fast", "slow")]
        for policy, path in zip((fast, slow), paths, strict=True):
            export_onnx(policy, path, "")
        graphs = [OnnxPolicy.load(path) for path in paths]
    request = random_request(1, four.n_obs)
    rows: list[dict[str, object]] = []
    for runtime, pair in (("torch", (fast, slow)), ("ONNX Runtime", graphs)):
        for own, when in ((20, "call after call"), (0, "weights out of the caches")):
            calls = [partial(p.sample, request) for p in pair]
            times = in_turns(calls, repeats // 3 if own else repeats, own=own)
            ours, flow = np.median(times, axis=0)
            late = np.quantile(times, 0.99, axis=0) * 1e3
            name = f"pusht_distilled: chunk at batch 1, against pusht_flow's, {runtime}, {when}"
            why = f"CPU time; p99 {late[0]:.2f} and {late[1]:.2f} ms"
            rows.append(_row(name, float(ours), float(flow), 1 / 3) | {"why": why})
    return rows


def _built(config: ChunkConfig) -> tuple[ChunkAlgorithm, EpisodeDataset]:
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    torch.manual_seed(0)
    if not isinstance(config, PolicyConfig):
        raise TypeError("not a policy's configuration")
    algorithm = config.build(SPACE, dataset.stats(), None)
    if not isinstance(algorithm, ChunkAlgorithm):
        raise TypeError("not one of the family")
    return algorithm, dataset


def _chunk(config: ChunkConfig) -> Callable[[], object]:
    policy = _built(config)[0].policy()
    request = random_request(1, config.n_obs)
    return lambda: policy.sample(request)


def _step(config: ChunkConfig) -> Callable[[], object]:
    algorithm, dataset = _built(config)
    batch, rng = dataset.batch(0), torch.Generator().manual_seed(0)

    def update() -> None:
        (loss,) = algorithm(batch, 0, rng).by_group.values()
        loss.backward()

    return update


def _row(name: str, ours: float, reference: float, floor: float | None) -> dict[str, object]:
    ratio = ours / reference
    return {
        "name": name,
        "unit": "ms",
        "ours": round(ours * 1e3, 3),
        "reference": round(reference * 1e3, 3),
        "ratio": round(ratio, 3),
        "floor": "" if floor is None else floor,
        "holds": floor is None or ratio <= floor,
        "why": "" if floor is None else "one network call instead of four, and the same features",
    }
