"""Updates of offline RL against the matrix products that they consist of, measured in this run.

The products are counted (PyTorch's flop counter, one whole update) and put against the rate of a
plain product of the batch with a hidden layer's weights; a ratio of .55 says that 55 % of the time
is spent on what cannot be avoided. Networks of the paper's size are measured with ``--long``.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from policies.critics.actor_critic import ActorCriticConfig
from policies.offline_rl.fql import FqlConfig
from policies.offline_rl.iql import IqlConfig
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.training.loop import FitConfig, fit
from tests.benchmarks.turns import interleaved
from tests.learning_mocks import SPACE, random_flat

FLOOR = 0.55
# Updates that are timed together, with one line of the log and one checkpoint: more often than a
# training has them.
UPDATES = 60


def rows(long: bool = False) -> list[dict[str, object]]:
    """See ``tests/benchmarks/run.py``."""
    torch.set_num_threads(1)
    repeats = 9 if long else 3
    sizes = ((128, 3), (256, 4), (512, 4)) if long else ((128, 3), (256, 4))
    shapes = [{"n_obs": 1, "horizon": 1, "width": w, "depth": d} for w, d in sizes]
    kinds = (FqlConfig, IqlConfig)
    return [_row(kind(**shape), repeats) for shape in shapes for kind in kinds]


def _row(config: ActorCriticConfig, repeats: int) -> dict[str, object]:
    dataset = EpisodeDataset(random_flat((100, 100)), config.batches(), 0)
    algorithm = config.build(SPACE, dataset.stats(), None)
    with tempfile.TemporaryDirectory() as folder:
        turn = itertools.count()

        def update(steps: int = UPDATES) -> None:
            """As a training is carried out: batches, updates, a line of the log, a checkpoint."""
            plan = FitConfig(steps=steps, warmup=0, schedule="constant", log_every=steps, clip=0.0)
            run = Path(folder) / str(next(turn))
            run.mkdir()
            fit(algorithm, dataset, plan, run, seed=0)

        def flops(steps: int) -> int:
            with FlopCounterMode(display=False) as counter:
                update(steps)
            return counter.get_total_flops()

        # The first update of all has passes more, for figures that are looked at now and then.
        first = flops(1)
        counted = first + (UPDATES - 1) * (flops(2) - first)
        batch, weights = torch.randn(256, config.width), torch.randn(config.width, config.width)
        products = round(counted / (2 * batch.numel() * config.width))

        def bare() -> None:
            with torch.inference_mode():
                for _ in range(products):
                    batch @ weights

        ours_s, bare_s = interleaved(update, bare, repeats, warm=1)
    ratio, whole = bare_s / ours_s, config.width >= 256
    return {
        "name": f"{config.algorithm().name} {config.depth}x{config.width}: updates against bare"
        " matrix products",
        "unit": "1/s",
        "ours": round(UPDATES / ours_s, 2),
        "reference": round(UPDATES / bare_s, 2),
        "ratio": round(ratio, 3),
        "floor": FLOOR if whole else 0.0,
        "holds": ratio >= FLOOR if whole else None,
        "why": "" if whole else "small networks: what is around the products takes as long",
    }
