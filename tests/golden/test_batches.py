"""What training is fed with: windows, chunked transitions, weights, futures, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robolearn.data.reading.dataset import EpisodeDataset, split_episodes
from robolearn.data.reading.transitions import done_at, td_batch, td_starts
from robolearn.learning import BatchSpec, FutureSpec
from tests.golden.golden import Golden
from tests.learning_mocks import random_flat

# Gathering and adding up a few numbers: other platforms differ in the last bits of float32.
RTOL = 1e-6
WINDOWS = BatchSpec(n_obs=2, horizon=4, batch_size=16)
FUTURE = BatchSpec(n_obs=2, horizon=4, batch_size=16, future=FutureSpec(uniform=1.0, ahead=(2, 6)))
TRANSITIONS = BatchSpec(
    n_obs=2, horizon=4, batch_size=16, parts=("transition",), discount=0.9, stride=3
)


@pytest.mark.parametrize(
    ("name", "spec"), [("windows", WINDOWS), ("future", FUTURE), ("transitions", TRANSITIONS)]
)
def test_batches_of_two_epochs(name: str, spec: BatchSpec, golden: Golden) -> None:
    data = EpisodeDataset(random_flat(), spec, seed=3)
    found = {"count": len(data), "rows": data.windows, "first": data.batch(0)}
    golden.check(f"batches/{name}", found | {"next": data.batch(5)}, rtol=RTOL, rests_on=())


def test_weighted_windows_of_some_episodes(golden: Golden) -> None:
    flat = random_flat()
    weights = np.random.default_rng(1).uniform(0.0, 2.0, int(flat.starts[-1]))
    kept, held_out = split_episodes(len(flat.ids), 0.25, seed=5)
    data = EpisodeDataset(flat, WINDOWS, 3, episodes=kept, weights=weights)
    found = {"kept": kept, "held_out": held_out, "batch": data.batch(2), "stats": data.stats()}
    golden.check("batches/weighted", found, rtol=RTOL, rests_on=())


def test_transitions_by_hand(golden: Golden) -> None:
    starts = np.array([0, 5, 9])
    done = np.arange(9) == 8
    t = td_starts(starts, done, 2)
    episode = np.searchsorted(starts, t, side="right") - 1
    reward = np.random.default_rng(2).normal(size=9)
    td: Any = td_batch(reward, t, starts[episode + 1] - 1, done_at(starts, done)[t], 2, 0.9)
    golden.check("batches/td", {"t": t, "td": td}, rtol=RTOL, rests_on=())
