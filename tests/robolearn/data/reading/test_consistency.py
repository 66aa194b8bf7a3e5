"""Recordings that contradict themselves are not learned from."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.consistency import (
    require_agreeing_outcomes,
    require_one_end,
    require_possible_actions,
)
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.reading.weighting import EpisodeQuality
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_flat
from tests.robolearn.cli.learning.test_train import add

ALL = np.arange(4)


def test_flags_of_ticks_and_outcome_agree(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    add(store, "e0", "demonstration", 0)
    episode = store.read(store.ids()[0])
    require_one_end(episode)
    flipped = ~episode.terminal[-1:]
    terminal = np.concatenate([episode.terminal[:-1], flipped])
    with pytest.raises(DataError, match=r"ep_000000 contradicts itself: its last step is.*data rm"):
        require_one_end(dataclasses.replace(episode, terminal=terminal))
    early = np.arange(episode.steps) == 1
    with pytest.raises(DataError, match="goes on after a terminal step"):
        require_one_end(dataclasses.replace(episode, terminal=early))


@pytest.mark.parametrize(("value", "number"), [(0.6, 0), (-0.01, 1)])
def test_impossible_actions_are_refused_or_told(
    value: float, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    flat = random_flat()
    require_possible_actions(flat, ALL, refuse=True)
    actions = flat.actions.copy()
    actions[9, number] = value
    broken = dataclasses.replace(flat, actions=actions)
    said = rf"1 of 48 steps .* '{TOOL}\[{number}\]' is {value} at step 2 of episode e1, expected 0"
    with pytest.raises(DataError, match=said):
        require_possible_actions(broken, ALL, refuse=True)
    # Held out, it teaches nothing.
    require_possible_actions(broken, np.array([0, 2, 3]), refuse=True)
    with caplog.at_level(logging.WARNING):
        require_possible_actions(broken, ALL, refuse=False)
    assert "held within" in caplog.text


def test_a_limit_that_was_rounded_is_no_mistake() -> None:
    flat = random_flat()
    actions = flat.actions.copy()
    actions[0] = np.float32(0.512) + np.float32(1e-6)
    require_possible_actions(dataclasses.replace(flat, actions=actions), ALL, refuse=True)
    boundless = dataclasses.replace(SPACE.actions[0], low=(), high=())
    space = dataclasses.replace(SPACE, actions=(boundless,))
    wide = dataclasses.replace(flat, actions=100 * actions, task_space=space)
    require_possible_actions(wide, ALL, refuse=True)


def test_an_annotated_failure_is_no_recorded_success() -> None:
    flat = random_flat()  # the second and the fourth episode end the task
    agreed = [EpisodeQuality(k % 2 == 1, 1.0, k % 2 == 1) for k in range(4)]
    recorded, judged = RewardConfig(), RewardConfig("success")
    require_agreeing_outcomes(flat, ALL, agreed, recorded)
    denied = [*agreed[:3], EpisodeQuality(success=False, score=1.0, recorded=True)]
    with pytest.raises(DataError, match=r"1 of 4 episodes contradict .*, e3.*task: success"):
        require_agreeing_outcomes(flat, ALL, denied, recorded)
    require_agreeing_outcomes(flat, ALL, denied, judged)
    require_agreeing_outcomes(flat, ALL[:3], denied, recorded)
    # Who fell has ended the task, too.
    fallen = [EpisodeQuality(success=False, score=0.0, recorded=False)] * 4
    require_agreeing_outcomes(flat, ALL, fallen, recorded)


def test_a_store_says_what_was_recorded_and_what_was_annotated(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    add(store, "e0", "demonstration", 0)
    before = store.list()[0].success
    with store.writer() as writer:
        writer.annotate(Annotation(store.ids(), "somebody", success=not before))
    found = StoreSource(EpisodeStore.open(store.path), DataConfig((TOOL, BLOCK))).qualities
    assert (found[0].success, found[0].recorded) == (not before, before)


def limited(lengths: tuple[int, ...], ended: int) -> FlatEpisodes:
    flat = random_flat(lengths)
    done = np.zeros(len(flat.done), dtype=np.bool_)
    done[flat.starts[1:][:ended] - 1] = True
    return dataclasses.replace(flat, done=done)


@pytest.mark.parametrize(
    ("lengths", "ended", "success", "told"),
    [
        ((9,) * 6, 6, False, True),
        ((9,) * 6 + (5,), 6, False, True),
        ((9,) * 6, 6, True, False),
        ((9,) * 4, 4, False, False),
        ((9,) * 6 + (12,), 6, False, False),
    ],
)
def test_time_limits_written_as_ends_are_told(
    lengths: tuple[int, ...],
    ended: int,
    success: bool,
    told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    qualities = [EpisodeQuality(success, 0.0)] * len(lengths)
    flat = limited(lengths, ended)
    with caplog.at_level(logging.WARNING):
        require_agreeing_outcomes(flat, np.arange(len(lengths)), qualities, RewardConfig())
    assert ("time limit" in caplog.text) == told


def test_play_that_passes_by_its_goal_ends_by_no_time_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flat = limited((9,) * 6, 6)
    done = flat.done.copy()
    done[4] = True
    passing = dataclasses.replace(flat, done=done)
    qualities = [EpisodeQuality(success=False, score=0.0)] * 6
    with caplog.at_level(logging.WARNING):
        require_agreeing_outcomes(passing, np.arange(6), qualities, RewardConfig())
    assert not caplog.text
