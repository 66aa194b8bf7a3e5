"""Corrupted data: exactly the share that was asked for, the same every time, and nothing else."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.offline_rl.riql import RiqlConfig
from robolearn.config import from_dict
from robolearn.data.reading.cache import FlatEpisodes, cached
from robolearn.data.reading.corruption import REWARD_FACTOR, CorruptConfig, corrupted
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import CheckpointError, ConfigError
from robolearn.learning import BatchSpec
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from tests.learning_mocks import BLOCK, TOOL, random_flat, random_source
from tests.policies.every import pictured

PARTS = ("observations", "actions", "rewards", "dynamics")
CHUNKS = BatchSpec(2, 1, 4, ("transition",), 0.9, 1)
FLAT = random_flat((7, 12, 9, 20))


def columns(flat: FlatEpisodes) -> dict[str, np.ndarray]:
    """What each kind of corruption may change, and all else; a number per row or more."""
    seen, follow = (
        np.concatenate([np.asarray(o[n]).reshape(len(flat.actions), -1) for n in (TOOL, BLOCK)], 1)
        for o in (flat.observations, flat.following)
    )
    return {
        "observations": seen,
        "dynamics": follow,
        "actions": np.asarray(flat.actions),
        "rewards": np.asarray(flat.reward)[:, None],
        "rest": np.stack([flat.done, flat.cost, flat.source, flat.intervention, flat.seen], 1),
    }


@settings(max_examples=30, deadline=None)
@given(
    what=st.sets(st.sampled_from(PARTS)),
    rate=st.floats(0.0, 1.0),
    scale=st.floats(0.01, 3.0),
    seed=st.integers(0, 99),
)
def test_the_share_the_range_and_nothing_else(
    what: set[Any], rate: float, scale: float, seed: int
) -> None:
    config = CorruptConfig(tuple(sorted(what)), rate, scale, seed)
    before, after = columns(FLAT), columns(corrupted(FLAT, config))
    again = columns(corrupted(FLAT, config))
    share = round(rate * len(FLAT.actions))
    for name, old in before.items():
        new = after[name]
        np.testing.assert_array_equal(new, again[name])
        changed = (new != old).any(axis=1)
        assert changed.sum() == (share if name in what else 0)
        if name in what and share:
            reward = name == "rewards"
            size = np.abs(new if reward else new - old)[changed] / old.std(axis=0)
            assert size.max() <= scale * (REWARD_FACTOR if reward else 1.0) * (1 + 1e-3)


def test_all_numbers_of_a_row_are_disturbed_evenly_in_the_range() -> None:
    flat = random_flat((900, 600))
    found = columns(corrupted(flat, CorruptConfig(PARTS, 0.5, 2.0)))
    for name, old in columns(flat).items():
        if name == "rest":
            continue
        rows = (found[name] != old).any(axis=1)
        moved = (found[name] - (0.0 if name == "rewards" else old))[rows] / old.std(axis=0)
        size = 2.0 * (REWARD_FACTOR if name == "rewards" else 1.0)
        # A uniform distribution in +- size.
        assert np.abs(moved.mean(axis=0)).max() < 0.08 * size
        np.testing.assert_allclose(moved.std(axis=0), size / 3**0.5, rtol=0.1)


def test_another_seed_corrupts_other_rows_and_kinds_differ_in_theirs() -> None:
    def rows(seed: int, part: Any) -> np.ndarray:
        found = columns(corrupted(FLAT, CorruptConfig(PARTS, 0.3, 1.0, seed)))[part]
        return np.flatnonzero((found != columns(FLAT)[part]).any(axis=1))

    assert not np.array_equal(rows(0, "rewards"), rows(1, "rewards"))
    assert not np.array_equal(rows(0, "rewards"), rows(0, "actions"))
    assert not np.array_equal(rows(0, "observations"), rows(0, "dynamics"))


@pytest.mark.parametrize("part", ["observations", "dynamics"])
def test_a_row_is_wrong_from_one_side_only(part: Any) -> None:
    whole = CorruptConfig((part,), 1.0)
    plain, spoilt = (EpisodeDataset(f, CHUNKS, 0) for f in (FLAT, corrupted(FLAT, whole)))
    rows = plain.windows[:6]
    old, new = plain.gather(rows), spoilt.gather(rows)
    assert old.next_observations is not None
    assert new.next_observations is not None
    for name in (TOOL, BLOCK):
        now = bool((old.observations[name] == new.observations[name]).all())
        then = bool((old.next_observations[name] == new.next_observations[name]).all())
        assert (now, then) == ((False, True) if part == "observations" else (True, False))


def test_other_processes_read_the_same_numbers(tmp_path: Path) -> None:
    flat = cached(random_source(), tmp_path)
    spoilt = corrupted(flat, CorruptConfig(PARTS, 0.4))
    there = copy.copy(spoilt)  # By what a worker is handed.
    for name, values in columns(spoilt).items():
        np.testing.assert_array_equal(columns(there)[name], values)
    assert corrupted(flat, CorruptConfig()) is flat


def test_it_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    data = from_dict(DataConfig, {"observations": [TOOL], "corrupt": {"what": ["rewards"]}}, "data")
    config = RiqlConfig(horizon=2, width=8, depth=1, batch_size=4)
    experiment = Experiment("riql", data, config, FitConfig(steps=1, warmup=0))
    train(experiment, random_source(), tmp_path / "run", cache_dir=tmp_path)
    other = dataclasses.replace(data, corrupt=CorruptConfig(("rewards",), seed=1))
    with pytest.raises(CheckpointError, match=r"data\.corrupt\.seed"):
        train(
            dataclasses.replace(experiment, data=other),
            random_source(),
            tmp_path / "run",
            cache_dir=tmp_path,
            resume=True,
        )


def test_bad_input_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rate must be in \[0, 1\]"):
        CorruptConfig(rate=1.5)
    with pytest.raises(ConfigError, match="scale at least 0"):
        CorruptConfig(scale=float("inf"))
    with pytest.raises(ConfigError, match="name every kind of data once"):
        CorruptConfig(("actions", "actions"))
    with pytest.raises(ConfigError, match="rewards"):
        from_dict(CorruptConfig, {"what": ["reward"]}, "data.corrupt")
    flat = cached(pictured(), tmp_path, images="cache")
    with pytest.raises(ConfigError, match=r"drop \['top/image'\]"):
        corrupted(flat, CorruptConfig(("dynamics",)))
    assert corrupted(flat, CorruptConfig(("actions",))).actions is not flat.actions
