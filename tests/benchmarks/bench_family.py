"""Every policy at its default size beside the default flow: a chunk, and a training step's work."""

from __future__ import annotations

from collections.abc import Callable

import torch

from policies.chunk import ChunkAlgorithm, ChunkConfig
from policies.flow import FlowConfig
from policies.registry import PolicyConfig, policy_config
from robolearn.data.dataset import EpisodeDataset
from tests.benchmarks.turns import interleaved
from tests.learning_mocks import SPACE, random_flat, random_request

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
    return found


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
