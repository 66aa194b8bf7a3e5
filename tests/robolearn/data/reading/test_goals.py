"""Goals that are put in recordings: which rows they are, and what chunks are worth for them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.goals import NEVER, FutureRows, hindsight
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import ConfigError, DataError
from robolearn.learning import BatchSpec, FutureSpec
from robolearn.spec import SignalSpec
from robolearn.training.batch_loader import Represented, represented_stats
from robolearn.training.data import TrainingData
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource, random_flat, random_source

GOAL = "goal/block"
AIMED = FutureSpec(geometric=0.5, random=0.3, current=0.2, discount=0.7, goals=((GOAL, BLOCK),))
TD = BatchSpec(2, 4, 32, ("transition", "step_rewards", "next_actions"), 0.9, 3, future=AIMED)


def aimed(lengths: tuple[int, ...] = (9, 14, 11)) -> ArraySource:
    """Episodes with a signal for goals, which says nothing."""
    items = random_source(lengths).items
    space = dataclasses.replace(
        SPACE, observations=(*SPACE.observations, SignalSpec(GOAL, (3,), "m, m, rad", 10.0))
    )
    told = [
        dataclasses.replace(e, observations={**e.observations, GOAL: np.zeros((len(e.actions), 3))})
        for e in items
    ]
    return ArraySource(tuple(told), "aimed", space)


@given(
    st.integers(0, 30),
    st.integers(0, 40),
    st.integers(1, 8),
    st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_what_a_chunk_is_worth_for_a_goal(t: int, goal: int, stride: int, discount: float) -> None:
    found = hindsight(np.array([t]), np.array([goal]), stride, discount)
    row, reward, weight, steps, bootstrap = t, 0.0, 1.0, 0, None
    each = []
    while steps < stride and bootstrap is None:
        if row == goal:
            bootstrap = 0.0
            break
        reward -= weight
        each.append(-1.0)
        weight *= discount
        row, steps = row + 1, steps + 1
    assert found.steps.tolist() == [steps]
    assert found.reward[0] == pytest.approx(reward, rel=1e-6)
    assert found.bootstrap[0] == pytest.approx(weight if bootstrap is None else 0.0, rel=1e-6)
    assert found.step_rewards[0].tolist() == each + [0.0] * (stride - len(each))


@given(
    st.integers(0, 1000),
    st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * 5).filter(any),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_goals_are_where_their_kind_says(
    seed: int, shares: tuple[float, float, float, float, float], lengths: list[int]
) -> None:
    uniform, geometric, current, random, rest = shares
    spec = FutureSpec(uniform, (2, 4), geometric, 0.8, current, random, rest)
    flat = random_flat(tuple(lengths))
    total = sum(lengths)
    chosen = np.arange(lengths[0])
    rows = FutureRows(flat, spec, chosen)
    t = np.arange(total)
    goals = rows.draw(t, np.random.default_rng(seed))
    again = FutureRows(flat, spec, chosen).draw(t, np.random.default_rng(seed))
    np.testing.assert_array_equal(goals, again)
    ends = np.repeat(np.cumsum(lengths) - 1, lengths)
    for row, goal, end in zip(t, goals, ends, strict=True):
        allowed: set[int] = set()
        if uniform:
            allowed |= {min(row + k, end) for k in (2, 3, 4)}
        if geometric or rest:
            allowed |= set(range(min(row + 1, end), end + 1))
        if current:
            allowed.add(row)
        if random:
            allowed |= set(chosen.tolist())
        assert int(goal) in {int(a) for a in allowed}


def test_a_mixture_keeps_its_shares_and_a_geometric_future_its_law() -> None:
    flat = random_flat((400,))
    t = np.full(20_000, 100)
    spec = FutureSpec(geometric=1.0, current=3.0, discount=0.5)
    goals = FutureRows(flat, spec, np.arange(400)).draw(t, np.random.default_rng(0))
    counts = Counter((goals - 100).tolist())
    for ahead, share in ((0, 0.75), (1, 0.125), (2, 0.0625)):
        assert counts[ahead] / 20_000 == pytest.approx(share, abs=0.01)


def test_the_rest_of_an_episode_is_drawn_alike() -> None:
    flat = random_flat((14, 6))
    t = np.full(20_000, 9)
    goals = FutureRows(flat, FutureSpec(rest=1.0), np.arange(20)).draw(t, np.random.default_rng(0))
    counts = Counter(goals.tolist())
    assert set(counts) == {10, 11, 12, 13}
    assert all(count / 20_000 == pytest.approx(0.25, abs=0.01) for count in counts.values())


def test_the_actor_has_goals_of_its_own_and_what_lies_on_the_way() -> None:
    flat = flatten(aimed())
    blocks, ends = np.asarray(flat.observations[BLOCK]), np.cumsum([9, 14, 11]) - 1
    pursued = dataclasses.replace(TD, actor_future=FutureSpec(rest=1.0, random=1.0), waypoint=4)
    data = EpisodeDataset(flat, pursued, 0)
    met: set[str] = set()
    for step in range(4):
        batch, plain = data.batch(step), EpisodeDataset(flat, TD, 0).batch(step)
        assert batch.actor_goals is not None
        assert batch.waypoints is not None
        assert batch.actor_goals.keys() == {GOAL}
        # Rewards, and the goals that they are of, are those of the first draw.
        assert batch.reward is not None
        assert plain.reward is not None
        assert torch.equal(batch.reward, plain.reward)
        assert torch.equal(batch.observations[GOAL], plain.observations[GOAL])
        rows = [row_of(blocks, v) for v in batch.observations[BLOCK][:, -1].numpy()]
        goals = [row_of(blocks, v) for v in batch.actor_goals[GOAL].numpy()]
        way = [row_of(blocks, v) for v in batch.waypoints[BLOCK][:, -1].numpy()]
        for row, goal, found in zip(rows, goals, way, strict=True):
            end = int(ends[np.searchsorted(ends, row)])
            inside = row <= goal <= end
            assert found == min(row + 4, goal if inside else end)
            met |= {"goal" if found == goal else "end" if found == end else "between"}
    assert met == {"goal", "end", "between"}


def test_what_was_not_observed_is_no_goal() -> None:
    flat = random_flat((6, 6))
    seen = np.ones(12, dtype=np.bool_)
    seen[3:6] = False
    flat = dataclasses.replace(flat, seen=seen)
    spec = FutureSpec(uniform=1.0, ahead=(2, 3), random=1.0)
    goals = FutureRows(flat, spec, np.arange(12)).draw(np.arange(3), np.random.default_rng(0))
    assert seen[goals].all()


def test_a_batch_is_that_of_its_goals() -> None:
    flat = flatten(aimed())
    blocks = np.asarray(flat.observations[BLOCK])
    data = EpisodeDataset(flat, TD, 0)
    # The ends of the recordings' own task are no ends for another goal.
    last = np.cumsum([9, 14, 11]) - 1
    assert not set(last) & set(data.windows.tolist())
    for step in range(4):
        batch = data.batch(step)
        assert batch.next_observations is not None
        assert batch.reward is not None
        assert batch.bootstrap is not None
        assert batch.future is None
        goal = batch.observations[GOAL]
        assert torch.equal(goal[:, 0], goal[:, 1])
        assert torch.equal(goal, batch.next_observations[GOAL])
        rows = [row_of(blocks, v) for v in batch.observations[BLOCK][:, -1].numpy()]
        goals = [row_of(blocks, v) for v in goal[:, -1].numpy()]
        worth = hindsight(np.array(rows), np.array(goals), 3, 0.9)
        np.testing.assert_array_equal(batch.reward, worth.reward)
        np.testing.assert_array_equal(batch.bootstrap, worth.bootstrap)
        np.testing.assert_array_equal(batch.step_rewards, worth.step_rewards)
    again = EpisodeDataset(flat, TD, 0).batch(3)
    assert again.reward is not None
    assert torch.equal(again.reward, batch.reward)


def row_of(blocks: np.ndarray, value: np.ndarray) -> int:
    return int(np.flatnonzero((blocks == value).all(axis=1))[0])


def test_statistics_of_a_goal_are_those_of_what_it_becomes() -> None:
    source = aimed()
    config = DataConfig(tuple(s.name for s in source.task_space.observations))
    data = TrainingData(config, TD, 0, source, flatten(source))
    assert data.stats.observations[GOAL] == data.stats.observations[BLOCK]
    assert data.stats.reward is None
    same = represented_stats(data.dataset, data.seen.representation)
    assert same.observations[GOAL] == same.observations[BLOCK]
    seen: Any = Represented(data.dataset, data.seen.representation).batch(0)
    assert torch.equal(seen.observations[GOAL], data.dataset.batch(0).observations[GOAL])


def test_what_cannot_be_a_goal_is_explained() -> None:
    flat = flatten(aimed())

    def made(flat: FlatEpisodes, *pairs: tuple[str, str]) -> EpisodeDataset:
        future = dataclasses.replace(AIMED, goals=pairs)
        return EpisodeDataset(flat, dataclasses.replace(TD, future=future), 0)

    with pytest.raises(DataError, match=r"no observed signal 'goal/block'\..*data.observations"):
        made(random_flat(), (GOAL, BLOCK))
    with pytest.raises(
        DataError, match=r"'goal/block' \(3,\) cannot be what 'tool/xy_table' \(2,\)"
    ):
        made(flat, (GOAL, TOOL))
    with pytest.raises(ConfigError, match="returns to the end are those of the recording"):
        dataclasses.replace(TD, parts=("returns",))
    with pytest.raises(ConfigError, match="before its goal is known"):
        dataclasses.replace(TD, parts=("next_candidates",))
    with pytest.raises(ConfigError, match="would be put over what is observed itself"):
        made(flat, (BLOCK, BLOCK))
    with pytest.raises(ConfigError, match="its goals are those of 'future'"):
        dataclasses.replace(TD, future=FutureSpec(rest=1.0), actor_future=FutureSpec(rest=1.0))
    with pytest.raises(ConfigError, match="waypoint: at least 0, and on the way to a goal"):
        dataclasses.replace(TD, waypoint=2)
    with pytest.raises(ConfigError, match="one above it"):
        FutureSpec()
    with pytest.raises(ConfigError, match="events come after a tick"):
        FutureSpec(uniform=1.0, random=1.0, events="marks")


WANTED, HOLDS = "goal/wanted", "goal/achieved"
PARTS = ("transition", "step_rewards")
ONE_MARK = FutureSpec(rest=0.5, random=0.5, goals=((WANTED, HOLDS),), marks=True)


def marked(lengths: tuple[int, ...], seed: int, count: int = 3) -> ArraySource:
    """Episodes with marks that come and go."""
    rng, width = np.random.default_rng(seed), (count,)
    space = dataclasses.replace(
        SPACE,
        observations=(
            *SPACE.observations,
            SignalSpec(WANTED, width, "1", 10.0),
            SignalSpec(HOLDS, width, "1", 10.0),
        ),
    )
    told: list[Any] = []
    for e in random_source(lengths).items:
        holds = (rng.random((len(e.actions), count)) < 0.2).astype(np.float32)
        more = {WANTED: np.zeros_like(holds), HOLDS: holds}
        told.append(dataclasses.replace(e, observations={**e.observations, **more}))
    return ArraySource(tuple(told), "marked", space)


@given(st.integers(0, 1000), st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_a_goal_of_marks_is_one_mark_at_the_row_where_it_next_newly_holds(
    seed: int, lengths: list[int]
) -> None:
    flat = flatten(marked(tuple(lengths), seed))
    holds, rows = np.asarray(flat.observations[HOLDS]) > 0.5, np.arange(sum(lengths))
    ends, rng = np.repeat(np.cumsum(lengths), lengths), np.random.default_rng(seed)
    firsts = set(np.cumsum([0, *lengths]).tolist())

    def reached(t: int, mark: int) -> int:
        for row in range(t + 1, ends[t]):
            if row not in firsts and holds[row, mark] and not holds[row - 1, mark]:
                return row
        return NEVER

    soonest = dataclasses.replace(ONE_MARK, random=0.0)
    for spec in (ONE_MARK, soonest):
        found = FutureRows(flat, spec, rows).goals(rows, rng)
        told = found.shown[WANTED]
        assert told.sum(axis=1).tolist() == [1.0] * len(rows)
        for t in rows:
            assert found.rows[t] == reached(t, int(told[t].argmax()))
            comes = [row for k in range(3) if (row := reached(t, k)) != NEVER]
            if spec is soonest:
                assert found.rows[t] == min(comes, default=NEVER)


def test_every_mark_is_told_also_where_it_never_comes_and_then_every_step_costs() -> None:
    flat = flatten(marked((40, 40), 3))
    td = dataclasses.replace(TD, future=ONE_MARK, actor_future=FutureSpec(rest=1.0), parts=PARTS)
    batches = [EpisodeDataset(flat, td, 0).batch(step) for step in range(8)]
    told = torch.cat([b.observations[WANTED][:, -1] for b in batches])
    assert told.sum(dim=1).eq(1).all()
    assert all(share > 0.2 for share in told.mean(dim=0).tolist())
    batch = batches[0]
    assert batch.actor_goals is not None
    assert batch.bootstrap is not None
    assert batch.reward is not None
    over = batch.bootstrap == 0.0
    assert over.any()
    assert (batch.reward[~over] == batch.reward.min()).all()
    assert batch.next_observations is not None
    assert torch.equal(batch.next_observations[WANTED][:, -1], batch.observations[WANTED][:, -1])


def test_goals_of_marks_that_are_none_are_refused() -> None:
    flat = flatten(marked((9,), 0))
    half = {**flat.observations, HOLDS: 0.5 * np.asarray(flat.observations[HOLDS])}
    with pytest.raises(DataError, match=r"one number per mark, 0 or 1.*from 0 to 0\.5"):
        FutureRows(dataclasses.replace(flat, observations=half), ONE_MARK, np.arange(9))
    for wrong in ({"geometric": 1.0}, {"events": HOLDS, "random": 0.0}, {"goals": ()}):
        with pytest.raises(ConfigError, match="marks: expected one pair of goals"):
            dataclasses.replace(ONE_MARK, **wrong)
