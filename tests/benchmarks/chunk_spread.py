"""Measures what a choice among chunks can change: how far apart those of a policy are.

    python -m tests.benchmarks.chunk_spread STORE PRACTISED RUN...

At the same observations, drawn from the episodes of STORE, and from the same noise, every RUN is
asked for eight chunks; the critics of PRACTISED (a run of re-ranking) judge them all alike. Told
per run, as means over episodes with their bootstrap interval (95 %):

    path    distance of what is executed from the mean of the eight, RMS over chunks and steps [mm]
    end     distance between two of them at the last step that is executed [mm]
    chosen  that between the chunk of the highest value and the first one [mm]
    gain    value of that chunk less the mean of the eight, and the deviation among the eight
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from eval.statistics.intervals import mean_bootstrap
from policies.critics.candidates import draw_chunks
from policies.critics.chunk_critic import judged_part, least
from policies.critics.reranked import RerankedPolicy
from policies.registry import load_policy
from robolearn.contracts import Policy
from robolearn.data.episode import EpisodeKind
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.learning import BatchSpec

CHUNKS, OBSERVATIONS, BATCH = 8, 1000, 100
MM = 1000.0
Numbers = NDArray[np.float64]


def spread(flat: FlatEpisodes, policy: Policy, critic: Any, rows: int) -> Mapping[str, Numbers]:
    """What the module says of ``policy`` at ``rows`` observations: by name, one number for each
    episode that they are of.
    """
    spec = BatchSpec(policy.spec.n_obs, policy.spec.horizon, BATCH)
    dataset = EpisodeDataset(flat, spec, 0)
    drawn = np.random.default_rng(0).choice(dataset.windows, rows, replace=False)
    found: dict[str, list[Numbers]] = {}
    for first in range(0, rows, BATCH):
        t = drawn[first : first + BATCH].astype(np.int64)
        seen = dataset.gather(t).observations
        chunks = draw_chunks(policy, seen, t, CHUNKS)
        with torch.no_grad():
            features = critic.observed(seen)
            value = least(critic.q, features, judged_part(critic, chunks, seen)).numpy()
        for name, numbers in figures(chunks.double().numpy(), value, policy.spec.execute).items():
            found.setdefault(name, []).append(numbers)
    episode = np.searchsorted(flat.starts, drawn, side="right")
    groups = [np.flatnonzero(episode == e) for e in np.unique(episode)]
    whole = {name: np.concatenate(parts) for name, parts in found.items()}
    return {name: np.array([v[g].mean() for g in groups]) for name, v in whole.items()}


def figures(chunks: Numbers, value: Numbers, execute: int) -> Mapping[str, Numbers]:
    """Of chunks ``[b, k, h, a]`` in m and their values ``[b, k]``, by name ``[b]``."""
    done = MM * chunks[:, :, :execute]
    off = np.linalg.norm(done - done.mean(axis=1, keepdims=True), axis=-1)
    end, best = done[:, :, -1], value.argmax(axis=1)
    pairs = itertools.combinations(range(end.shape[1]), 2)
    apart = [np.linalg.norm(end[:, i] - end[:, j], axis=-1) for i, j in pairs]
    chosen = end[np.arange(len(end)), best]
    return {
        "path": np.sqrt((off**2).mean(axis=(1, 2))),
        "end": np.mean(apart, axis=0),
        "chosen": np.linalg.norm(chosen - end[:, 0], axis=-1),
        "gain": value.max(axis=1) - value.mean(axis=1),
        "deviation": value.std(axis=1),
    }


def main(store: Path, practised: Path, runs: Sequence[Path]) -> None:
    """Print a line for every run."""
    judge = load_policy(practised)
    if not isinstance(judge, RerankedPolicy):
        raise SystemExit(f"'{practised}' does not choose among chunks: give a run of re-ranking")
    names = tuple(s.name for s in judge.spec.task_space.observations)
    every = DataConfig(names, kinds=get_args(EpisodeKind))
    flat = flatten(StoreSource(EpisodeStore.open(store), every))
    for run in runs:
        found = spread(flat, load_policy(run), judge.critic, OBSERVATIONS)
        means = {name: mean_bootstrap(v) for name, v in found.items()}
        told = [f"{name} {m.value:.4g} [{m.low:.4g}, {m.high:.4g}]" for name, m in means.items()]
        where = f"{OBSERVATIONS} observations of {len(found['end'])} episodes"
        print(f"{run}, {where}: {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(run) for run in sys.argv[3:]])
