"""Windows, order, chunked transitions: against plain loops."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.data.episode import taken_over
from robolearn.data.reading.cache import FlatEpisodes, cached, flatten
from robolearn.data.reading.dataset import EpisodeDataset, split_episodes
from robolearn.errors import DataError
from robolearn.learning import BatchSpec
from tests.learning_mocks import BLOCK, TOOL, random_flat, random_source, rows_shown

WINDOWS = BatchSpec(n_obs=3, horizon=5, batch_size=8)


def rows_of(flat: FlatEpisodes, episode: int) -> range:
    return range(int(flat.starts[episode]), int(flat.starts[episode + 1]))


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 6))
def test_windows_equal_a_plain_loop(lengths: list[int], n_obs: int, horizon: int) -> None:
    flat = random_flat(tuple(lengths))
    dataset = EpisodeDataset(flat, BatchSpec(n_obs, horizon, 4), 0)
    t = np.arange(len(dataset))
    batch = dataset.gather(t)
    for e in range(len(lengths)):
        rows = rows_of(flat, e)
        for i in rows:
            seen = [max(i - n_obs + 1 + k, rows[0]) for k in range(n_obs)]
            ahead = [min(i + k, rows[-1]) for k in range(horizon)]
            assert torch.equal(
                batch.observations[BLOCK][i], torch.tensor(flat.observations[BLOCK][seen])
            )
            assert torch.equal(batch.actions[i], torch.tensor(flat.actions[ahead]))
            assert batch.action_mask[i].tolist() == [i + k <= rows[-1] for k in range(horizon)]


@settings(max_examples=25)
@given(st.lists(st.integers(4, 9), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 3))
def test_windows_begin_at_every_few_steps(lengths: list[int], every: int, stride: int) -> None:
    flat = random_flat(tuple(lengths))
    ended = list(np.flatnonzero(flat.done))
    spec = BatchSpec(1, 4, 8, ("transition", "next_candidates"), stride=stride)
    whole = EpisodeDataset(flat, spec, seed=0)
    few = EpisodeDataset(flat, dataclasses.replace(spec, every=every), seed=0)
    first = {t: b for b, e in pairwise(flat.starts.tolist()) for t in range(b, e)}
    assert few.windows.tolist() == [t for t in whole.windows if (t - first[t]) % every == 0]
    # A value follows where nothing is done within the stride.
    assert few.proposed_rows().tolist() == [
        t + stride for t in few.windows.tolist() if not any(t <= e < t + stride for e in ended)
    ]
    both = dataclasses.replace(spec, every=every, parts=(*spec.parts, "candidates"))
    assert EpisodeDataset(flat, both, seed=0).proposed_rows().tolist() == sorted(
        {*few.proposed_rows().tolist(), *few.windows.tolist()}
    )
    plain = EpisodeDataset(flat, BatchSpec(1, 4, 8, every=every), seed=0)
    assert plain.windows.tolist() == [t for t in first if (t - first[t]) % every == 0]
    assert plain.proposed_rows().size == 0


def test_every_window_comes_once_per_epoch_and_epochs_differ() -> None:
    flat = random_flat((5, 7))
    dataset = EpisodeDataset(flat, BatchSpec(1, 2, 6), 3)
    rows = np.concatenate([rows_shown(flat, dataset.batch(k)) for k in range(4)])
    first, second = rows[:12], rows[12:]
    assert sorted(first) == sorted(second) == list(range(12))
    assert list(first) != list(second)


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    flat = random_flat((30,))
    dataset = EpisodeDataset(flat, WINDOWS, 1)
    later = dataset.batch(9)
    dataset.batch(2)
    again = EpisodeDataset(flat, WINDOWS, 1).batch(9)
    assert torch.equal(later.actions, again.actions)
    other = EpisodeDataset(flat, WINDOWS, 2).batch(9)
    assert not torch.equal(later.actions, other.actions)


def test_a_batch_larger_than_the_data_goes_round() -> None:
    flat = random_flat((3,))
    rows = rows_shown(flat, EpisodeDataset(flat, BatchSpec(1, 2, 8), 0).batch(0))
    assert sorted(np.bincount(rows)) == [2, 3, 3]


def test_transitions_by_hand() -> None:
    flat = random_flat((5, 6))  # The second episode ends the task.
    dataset = EpisodeDataset(flat, BatchSpec(2, 4, 4, ("transition",), discount=0.5, stride=3), 0)
    assert len(dataset) == 2 + 6
    batch = dataset.gather(np.array([1, 9]))
    assert batch.reward is not None
    assert batch.next_observations is not None
    assert batch.bootstrap is not None
    r = flat.reward
    assert batch.reward[0].item() == pytest.approx(r[1] + 0.5 * r[2] + 0.25 * r[3])
    assert batch.reward[1].item() == pytest.approx(r[9] + 0.5 * r[10])
    assert batch.bootstrap.tolist() == [0.125, 0.0]
    assert torch.equal(
        batch.next_observations[TOOL][0], torch.tensor(flat.observations[TOOL][[3, 4]])
    )
    assert batch.action_mask[1].tolist() == [True, True, False, False]


def test_chunks_longer_than_every_episode_are_explained() -> None:
    flat = random_flat((4,))
    with pytest.raises(DataError, match="longer than the stride of 9 steps"):
        EpisodeDataset(flat, BatchSpec(1, 9, 4, ("transition",), 0.9, 9), 0)


def test_split_is_disjoint_complete_and_seeded() -> None:
    keep, out = split_episodes(20, 0.25, 0)
    assert len(out) == 5
    assert sorted([*keep, *out]) == list(range(20))
    assert split_episodes(20, 0.25, 0)[1].tolist() == out.tolist()
    assert split_episodes(20, 0.25, 1)[1].tolist() != out.tolist()


@pytest.mark.parametrize("held_out", [1.0, -0.1])
def test_bad_splits_are_explained(held_out: float) -> None:
    with pytest.raises(DataError, match="held_out must be in"):
        split_episodes(4, held_out, 0)


def test_an_empty_split_is_explained() -> None:
    with pytest.raises(DataError, match="nothing left to train on"):
        split_episodes(1, 0.9, 0)
    with pytest.raises(DataError, match="no episodes"):
        EpisodeDataset(random_flat(), WINDOWS, 0, np.zeros(0, dtype=np.int64))


def test_stats_are_of_the_chosen_episodes() -> None:
    flat = random_flat((5, 6))
    stats = EpisodeDataset(flat, WINDOWS, 0, np.array([1])).stats()
    assert stats.observations[TOOL].count == 6
    np.testing.assert_allclose(
        stats.actions[TOOL].mean, flat.actions[5:].astype(np.float64).mean(axis=0)
    )


@settings(max_examples=25)
@given(st.lists(st.floats(0.0, 5.0), min_size=12, max_size=12), st.integers(0, 99))
def test_weights_decide_how_often_a_window_comes(weights: list[float], seed: int) -> None:
    w = np.array(weights)
    w[seed % 12] = 1.0
    flat = random_flat((5, 7))
    dataset = EpisodeDataset(flat, WINDOWS, seed, weights=w)
    # Two epochs of 12.
    rows = np.concatenate([rows_shown(flat, dataset.batch(k)) for k in range(3)])
    for epoch in (rows[:12], rows[12:]):
        counts = np.bincount(epoch, minlength=12)
        assert np.abs(counts - 12 * w / w.sum()).max() < 1 + 1e-9
        assert not counts[w == 0].any()


def test_equal_weights_change_nothing_and_weighted_batches_resume() -> None:
    flat = random_flat((5, 7))
    plain = EpisodeDataset(flat, WINDOWS, 1)
    equal = EpisodeDataset(flat, WINDOWS, 1, weights=np.full(12, 0.3))
    for k in range(5):
        assert rows_shown(flat, plain.batch(k)) == rows_shown(flat, equal.batch(k))
    per_episode = flat.per_row(np.array([1.0, 4.0]))
    weighted = EpisodeDataset(flat, WINDOWS, 1, weights=per_episode)
    later = weighted.batch(7)
    again = EpisodeDataset(flat, WINDOWS, 1, weights=per_episode)
    assert torch.equal(again.batch(7).actions, later.actions)


def test_wrong_weights_are_explained() -> None:
    flat = random_flat((5, 7))
    with pytest.raises(DataError, match=r"one weight per row, \(12,\), got \(2,\)"):
        EpisodeDataset(flat, WINDOWS, 1, weights=np.ones(2))
    for bad in (-1.0, np.nan):
        with pytest.raises(DataError, match="finite, at least 0"):
            EpisodeDataset(flat, WINDOWS, 1, weights=np.r_[np.ones(11), bad])
    with pytest.raises(DataError, match="above 0 for some window"):
        EpisodeDataset(flat, WINDOWS, 1, weights=np.zeros(12))


def test_who_drove_each_step_is_in_the_batch(tmp_path: Path) -> None:
    driven = {
        "e0": ("policy", "policy", "hold", "human:browser", "human:browser", "policy:b", "human"),
        "e1": ("human:browser", "human", "policy", "scripted", "replay"),
        "e2": (),
    }
    taken = [0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    source = random_source((7, 5, 3))
    items = tuple(dataclasses.replace(e, source=driven[e.id]) for e in source.items)
    source = dataclasses.replace(source, items=items)
    for flat in (flatten(source), cached(source, tmp_path)):
        assert flat.intervention.astype(int).tolist() == taken
        names = [flat.labels[code] for code in flat.source]
        assert names == [*driven["e0"], *driven["e1"], "", "", ""]
        spec = BatchSpec(1, 3, 2)
        batch = EpisodeDataset(flat, spec, 0).gather(np.array([2, 5]))
        assert batch.intervention is not None
        assert batch.intervention.tolist() == [[False, True, True], [False, True, True]]
        often = np.where(flat.intervention, 5.0, 0.0)
        rows = rows_shown(flat, EpisodeDataset(flat, spec, 0, weights=often).batch(0))
        assert set(rows) <= {3, 4, 6}


@given(st.lists(st.sampled_from(["policy", "human:x", "hold"]), max_size=9))
def test_taken_over_is_human_after_policy(source: list[str]) -> None:
    expected = [
        name == "human:x" and "policy" in source[:index] for index, name in enumerate(source)
    ]
    assert taken_over(source).tolist() == expected


def test_no_window_shows_a_missing_observation(tmp_path: Path) -> None:
    source = random_source((6, 7))
    tool = np.array(source.items[1].observations[TOOL])
    tool[3] = np.nan
    gap = np.arange(7) != 3
    second = dataclasses.replace(
        source.items[1], seen=gap, observations={**source.items[1].observations, TOOL: tool}
    )
    source = dataclasses.replace(source, items=(source.items[0], second))
    for flat in (flatten(source), cached(source, tmp_path)):
        assert flat.seen.tolist() == [True] * 6 + gap.tolist()
        dataset = EpisodeDataset(flat, BatchSpec(2, 3, 4), 0)
        assert sorted(dataset.windows) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12]
        assert dataset.stats().observations[TOOL].count == 12
        chunks = EpisodeDataset(flat, BatchSpec(1, 2, 4, ("transition",), 0.9, 2), 0)
        # Row 7 would bootstrap from row 9, which is the missing one.
        assert sorted(chunks.windows) == [0, 1, 2, 3, 6, 8, 10, 11, 12]
    nothing = dataclasses.replace(second, seen=np.zeros(7, dtype=np.bool_))
    with pytest.raises(DataError, match="missing in every window"):
        EpisodeDataset(flatten(dataclasses.replace(source, items=(nothing,))), WINDOWS, 0)
