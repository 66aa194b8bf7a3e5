"""Writes a store whose rows are spoilt as ``data.corrupt`` spoils what is read, to mend them.

    python -m tests.benchmarks.spoilt_store STORE OUT rewards RECIPE

The same rows by the same amounts as a training of that recipe (a file of configs/train) sees them
with ``--data.corrupt.what``; ``robolearn data denoise OUT`` is what then stands for ADG. Actions
that leave the range that the arm's model allows are held at its border: a store refuses others.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

from policies.registry import policy_config
from robolearn.data.episode import Episode
from robolearn.data.reading.cache import cached
from robolearn.data.reading.corruption import CorruptConfig, corrupted
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.edit import derive_store
from robolearn.operations.train import source_of
from robolearn.training.experiment import load_experiment


def spoil(store: Path, out: Path, what: str, recipe: Path) -> int:
    """Write ``out``; returns the number of rows that were changed. ``what``: rewards or actions."""
    experiment = load_experiment(recipe, policy_config)
    source = source_of(experiment, store)
    flat = cached(source)
    spoilt = corrupted(flat, CorruptConfig(what=(what,)))  # pyright: ignore[reportArgumentType]
    rewards, actions = spoilt.reward - flat.reward, spoilt.actions - flat.actions
    changed = int(((rewards != 0) | (actions != 0).any(axis=1)).sum())
    names = [(a.name, a.size, a.low, a.high) for a in flat.task_space.actions]
    rows = {e: slice(*flat.starts[k : k + 2]) for k, e in enumerate(flat.ids)}
    order = iter(flat.ids)

    def change(episode: Episode) -> Episode:
        at, begin, action = rows[next(order)], 0, dict[str, np.ndarray]()
        for name, size, low, high in names:
            told = episode.action[name] + actions[at, begin : begin + size]
            action[name] = np.clip(told, low or -np.inf, high or np.inf)
            begin += size
        return dataclasses.replace(episode, reward=episode.reward + rewards[at], action=action)

    derive_store(EpisodeStore.open(store), flat.ids, out, change)
    return changed


if __name__ == "__main__":
    _store, _out, _what, _recipe = sys.argv[1:]
    print(spoil(Path(_store), Path(_out), _what, Path(_recipe)), "rows spoilt")
