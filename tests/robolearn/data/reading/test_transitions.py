"""What follows a row, against a loop that is plain to see."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.transitions import (
    NEVER,
    done_at,
    returns_to_go,
    step_values,
    td_batch,
    td_starts,
)
from robolearn.errors import DataError
from robolearn.learning import BatchSpec
from tests.learning_mocks import TOOL, ArraySource, random_episode


@dataclass
class Seen:
    """What a loop over one chunk finds."""

    rewards: list[float] = field(default_factory=list)
    end: bool = False
    cut_off: bool = False


def follow(reward: list[float], done: list[bool], i: int, stride: int) -> Seen:
    """Step by step from tick ``i`` of one episode."""
    seen = Seen()
    for k in range(i, i + stride):
        if k == len(reward):
            seen.cut_off = True
            return seen
        seen.rewards.append(reward[k])
        if done[k]:
            seen.end = True
            return seen
    seen.cut_off = i + stride == len(reward)
    return seen


EPISODES = st.lists(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([False, False, False, True])),
             min_size=1, max_size=12),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=150)
@given(EPISODES, st.integers(1, 6), st.floats(0.5, 1.0))
def test_chunks_equal_a_plain_loop(
    episodes: list[list[tuple[int, bool]]], stride: int, discount: float
) -> None:
    starts = np.concatenate([[0], np.cumsum([len(e) for e in episodes])]).astype(np.int64)
    reward = np.array([r for e in episodes for r, _ in e], dtype=np.float32)
    done = np.array([d for e in episodes for _, d in e])
    t = td_starts(starts, done, stride)
    episode = np.searchsorted(starts, t, side="right") - 1
    last = starts[episode + 1] - 1
    got = td_batch(reward, t, last, done_at(starts, done)[t], stride, discount)
    each = step_values(reward, t, last, got.steps, stride)
    k = 0
    for first, steps in zip(starts[:-1].tolist(), episodes, strict=True):
        for i in range(len(steps)):
            seen = follow([r for r, _ in steps], [d for _, d in steps], i, stride)
            if seen.cut_off:
                continue  # Unknown future: neither a reward nor a value can be given.
            n = len(seen.rewards)
            assert t[k] == first + i
            total = sum(discount**j * r for j, r in enumerate(seen.rewards))
            assert got.reward[k] == pytest.approx(total, abs=1e-4)
            assert got.steps[k] == n
            assert got.bootstrap[k] == pytest.approx(0.0 if seen.end else discount**n)
            assert each[k].tolist() == seen.rewards + [0.0] * (stride - n)
            if not seen.end:
                assert got.next_index[k] == t[k] + stride
            k += 1
    assert k == len(t)


@settings(max_examples=150)
@given(EPISODES, st.floats(0.5, 1.0))
def test_returns_equal_a_plain_loop(
    episodes: list[list[tuple[int, bool]]], discount: float
) -> None:
    starts = np.concatenate([[0], np.cumsum([len(e) for e in episodes])]).astype(np.int64)
    reward = np.array([r for e in episodes for r, _ in e], dtype=np.float32)
    done = np.array([d for e in episodes for _, d in e])
    got = returns_to_go(starts, done, reward, discount)
    for first, steps in zip(starts[:-1].tolist(), episodes, strict=True):
        for i in range(len(steps)):
            seen = follow([r for r, _ in steps], [d for _, d in steps], i, len(steps) - i)
            total = sum(discount**j * r for j, r in enumerate(seen.rewards))
            assert got.value[first + i] == pytest.approx(total, abs=1e-4)
            assert got.whole[first + i] == seen.end


def test_what_is_done_in_the_next_episode_is_not_done_in_this_one() -> None:
    starts = np.array([0, 2, 4])
    assert done_at(starts, np.array([False, False, True, False])).tolist() == [
        NEVER,
        NEVER,
        2,
        NEVER,
    ]


def test_a_chunk_across_the_end_of_a_recording_is_refused() -> None:
    t = np.array([3])
    with pytest.raises(DataError, match="crosses the end"):
        td_batch(np.zeros(5), t, np.array([4]), np.array([NEVER]), 2, 0.9)


def play() -> ArraySource:
    """Seven steps; what was wanted is done at the fourth, and the recording goes on."""
    one = random_episode("play", 7, 0)
    done = np.arange(7) == 3
    cost = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    return ArraySource(
        (EpisodeArrays(one.id, one.observations, one.actions, one.reward, done, cost=cost),)
    )


PARTS = ("transition", "step_rewards", "next_actions", "returns", "cost")


def test_every_part_of_a_batch_by_hand() -> None:
    flat = flatten(play())
    dataset = EpisodeDataset(flat, BatchSpec(1, 4, 4, PARTS, discount=0.5, stride=2), 0)
    assert dataset.windows.tolist() == [0, 1, 2, 3, 4]
    batch = dataset.gather(np.array([1, 3, 4]))
    r = flat.reward
    assert batch.reward is not None
    assert batch.bootstrap is not None
    assert batch.step_rewards is not None
    assert batch.next_actions is not None
    assert batch.next_action_mask is not None
    assert batch.next_observations is not None
    assert batch.returns is not None
    assert batch.returns_whole is not None
    assert batch.cost is not None
    np.testing.assert_allclose(batch.reward, [r[1] + 0.5 * r[2], r[3], r[4] + 0.5 * r[5]])
    assert batch.bootstrap.tolist() == [0.25, 0.0, 0.25]
    np.testing.assert_allclose(batch.step_rewards, [[r[1], r[2]], [r[3], 0.0], [r[4], r[5]]])
    np.testing.assert_array_equal(batch.next_actions[0], flat.actions[3:7])
    np.testing.assert_array_equal(batch.next_actions[2, 0], flat.actions[6])
    assert batch.next_action_mask.tolist()[2] == [True, False, False, False]
    np.testing.assert_array_equal(batch.next_observations[TOOL][0, 0], flat.observations[TOOL][3])
    np.testing.assert_allclose(batch.returns[0], r[1] + 0.5 * r[2] + 0.25 * r[3])
    assert batch.returns_whole.tolist() == [True, True, False]
    assert batch.worst_cost is not None
    assert batch.cost.tolist() == [1.0, 0.0, 0.5]
    # A step behind the end of the task does not count.
    assert batch.worst_cost.tolist() == [1.0, 0.0, 1.0]


def test_long_chunks_cost_a_one_step_batch_one_row_of_a_recording() -> None:
    flat = flatten(ArraySource((random_episode("cut off", 9, 0),)))
    assert len(EpisodeDataset(flat, BatchSpec(1, 8, 4, ("transition",)), 0)) == 8
    assert len(EpisodeDataset(flat, BatchSpec(1, 8, 4, ("returns",)), 0)) == 9
    assert len(EpisodeDataset(flat, BatchSpec(1, 8, 4, ("transition",), stride=8), 0)) == 1


def test_windows_alone_carry_nothing_else() -> None:
    batch = EpisodeDataset(flatten(play()), BatchSpec(1, 4, 4), 0).batch(0)
    given = {
        k for k in ("reward", "returns", "cost", "next_actions") if getattr(batch, k) is not None
    }
    assert not given
    assert torch.isfinite(batch.actions).all()
