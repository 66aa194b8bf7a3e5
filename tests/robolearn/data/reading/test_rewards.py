"""What steps are worth: every relabelling against a slow obvious version, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.config import from_dict
from robolearn.data.episode import Episode
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.rewards import (
    REWARDS,
    RewardConfig,
    Rewarded,
    require_informative,
    rewarded,
)
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.learning import BatchSpec
from robolearn.training.data import TrainingData
from tests.episodes import TOOL, small_episode
from tests.learning_mocks import ArraySource, random_source

DRIVERS = ("policy", "policy:flow", "human", "human:spacemouse", "hold", "scripted")


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What episodes of this test differ in; lists, for shapes are not checked while drawing."""

    reward: list[float]
    progress: list[float]
    place: list[float]
    source: list[str]
    terminal: bool

    def episode(self) -> Episode:
        steps = len(self.reward)
        plain = small_episode(steps=steps)
        streams = dict(plain.streams)
        place = np.array(self.place).reshape(steps, 2)
        streams[TOOL] = dataclasses.replace(streams[TOOL], value=place)
        return dataclasses.replace(
            plain,
            streams=streams,
            reward=np.array(self.reward),
            progress=np.array(self.progress),
            source=tuple(self.source),
            terminal=np.arange(steps) == (steps - 1 if self.terminal else -1),
        )


@st.composite
def recorded(draw: st.DrawFn) -> Drawn:
    """Every kind of progress and every kind of driver."""
    n = draw(st.integers(1, 12))

    def many(values: st.SearchStrategy[Any], count: int = n) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    return Drawn(
        many(st.floats(-3, 3, width=32)),
        many(st.sampled_from([0.0, 0.5, 0.94, 1.0])),
        many(st.sampled_from([0.0, 0.3, 0.6]), 2 * n),
        many(st.sampled_from(DRIVERS)),
        draw(st.booleans()),
    )


def relabelled(episode: Episode, task: str, success: bool = True, **params: Any) -> Rewarded:
    return rewarded(episode, RewardConfig(task, params), success)


@given(recorded(), st.floats(-2, 2), st.floats(0.1, 3), st.booleans())
def test_recorded_and_progress_are_what_they_say(
    drawn: Drawn, shift: float, scale: float, gain: bool
) -> None:
    episode = drawn.episode()
    plain = relabelled(episode, "recorded")
    np.testing.assert_array_equal(plain.reward, episode.reward)
    np.testing.assert_array_equal(plain.done, episode.terminal)
    moved = relabelled(episode, "recorded", shift=shift, scale=scale)
    np.testing.assert_allclose(moved.reward, [scale * (r + shift) for r in episode.reward])
    progress = relabelled(episode, "progress", gain=gain)
    np.testing.assert_array_equal(progress.done, episode.terminal)
    before = 0.0
    for t, value in enumerate(episode.progress):
        before = value if t == 0 else before
        assert progress.reward[t] == (value - before if gain else value)
        before = value


@given(recorded(), st.booleans(), st.sampled_from([0.5, 0.9, 1.0]), st.floats(0.5, 0.99))
def test_success_costs_a_step_until_it_is_there(
    drawn: Drawn, success: bool, threshold: float, discount: float
) -> None:
    episode = drawn.episode()
    found = relabelled(episode, "success", success, threshold=threshold, discount=discount)
    solved = [success and value >= threshold for value in episode.progress]
    if success and not any(solved):
        solved[-1] = True
    for t, there in enumerate(solved):
        assert found.done[t] == there
        assert found.reward[t] == (0.0 if there else discount - 1.0)
    # Taken as one chunk, s steps cost 1 - g^s: values stay in [-1, 0].
    until = solved.index(True) if True in solved else len(solved)
    cost = sum(discount**k * found.reward[k] for k in range(until))
    assert cost == pytest.approx(discount**until - 1.0)
    plain = relabelled(episode, "success", success, threshold=threshold)
    assert set(plain.reward.tolist()) <= {0.0, -1.0}


@given(recorded())
def test_parts_that_are_reached(drawn: Drawn) -> None:
    episode = drawn.episode()
    parts = [
        {"signal": TOOL, "value": [0.3, 0.3], "tolerance": 0.31},
        {"signal": TOOL, "value": [0.6], "tolerance": 0.05, "index": [1]},
    ]
    found = relabelled(episode, "reached", parts=parts)
    seen = episode.observed(TOOL)
    for t in range(episode.steps):
        x, y = seen[min(t + 1, episode.steps - 1)]
        held = [np.hypot(x - 0.3, y - 0.3) <= 0.31, abs(y - 0.6) <= 0.05]
        assert found.reward[t] == sum(held) - 2
        assert found.done[t] == all(held)


@given(recorded(), st.sampled_from(["before", "first"]), st.sampled_from([1.0, 0.5, 3.0]))
def test_where_a_person_took_over(drawn: Drawn, at: str, penalty: float) -> None:
    episode = drawn.episode()
    found = relabelled(episode, "taken_over", at=at, penalty=penalty)
    np.testing.assert_array_equal(found.done, episode.terminal)
    # Whoever pauses and goes on has not taken over again: no policy has driven in between.
    policy_drives = False
    wanted = np.zeros(episode.steps)
    for t, name in enumerate(episode.source):
        if policy_drives and name.startswith("human"):
            wanted[t - 1 if at == "before" else t] = -penalty
            policy_drives = False
        policy_drives = policy_drives or name.startswith("policy")
    np.testing.assert_array_equal(found.reward, wanted)


@given(recorded(), st.sampled_from(sorted(set(REWARDS) - {"reached"})), st.booleans())
def test_every_reward_is_finite_and_one_per_step(drawn: Drawn, task: str, success: bool) -> None:
    episode = drawn.episode()
    found = relabelled(episode, task, success)
    assert found.reward.shape == found.done.shape == (episode.steps,)
    assert np.isfinite(found.reward).all()
    assert found.done.dtype == np.bool_


def store_of(folder: Path, *episodes: Episode) -> EpisodeStore:
    store = EpisodeStore.create(folder / "store")
    with store.writer() as writer:
        for episode in episodes:
            writer.append(episode)
    return store


def test_it_counts_in_the_identity_of_the_data(tmp_path: Path) -> None:
    store = store_of(tmp_path, small_episode(0), small_episode(1))
    plain = DataConfig((TOOL,))

    def source(**reward: Any) -> StoreSource:
        config = dataclasses.replace(plain, reward=from_dict(RewardConfig, reward))
        return StoreSource(EpisodeStore.open(store.path), config)

    before = StoreSource(store, plain).content_hash
    assert source(task="recorded").content_hash == before
    hashes = {
        before,
        source(task="success").content_hash,
        source(task="success", params={"discount": 0.9}).content_hash,
        source(task="progress").content_hash,
    }
    assert len(hashes) == 4
    flat = flatten(source(task="success", params={"step": -2.0}))
    assert set(flat.reward.tolist()) == {-2.0, 0.0}
    assert flat.done.sum() == 2
    # What a person says of an episode later counts too, but only where it is looked at.
    progress, success = (source(task=t).content_hash for t in ("progress", "success"))
    with store.writer() as writer:
        writer.annotate(Annotation((store.list()[0].id,), "me", success=False))
    assert source(task="progress").content_hash == progress
    assert source(task="success").content_hash != success
    assert flatten(source(task="success")).done.sum() == 1


def test_what_cannot_be_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no reward 'progres5'\. Did you mean 'progress'"):
        RewardConfig("progres5")
    with pytest.raises(ConfigError, match=r"data\.reward: success: unknown key 'shift'"):
        RewardConfig("success", {"shift": 1.0})
    with pytest.raises(ConfigError, match="step must be below 0"):
        RewardConfig("success", {"step": 0.0})
    with pytest.raises(ConfigError, match="scale not 0"):
        RewardConfig("recorded", {"scale": 0.0})
    with pytest.raises(ConfigError, match="name at least one part"):
        RewardConfig("reached", {"parts": []})
    part = {"signal": "tool/xy_tabel", "value": [0.1], "tolerance": 0.1}
    store = store_of(tmp_path, small_episode())
    config = DataConfig((TOOL,), reward=RewardConfig("reached", {"parts": [part]}))
    with pytest.raises(DataError, match=r"looks at 'tool/xy_tabel'.*Did you mean 'tool/xy_table'"):
        StoreSource(store, config)
    with pytest.raises(DataError, match="has 2 numbers, the goal names 1"):
        relabelled(small_episode(), "reached", parts=[part | {"signal": TOOL}])
    unknown = dataclasses.replace(small_episode(), source=("policy", "", *("human",) * 10))
    with pytest.raises(DataError, match="nothing says who drove step 1 of 12"):
        relabelled(unknown, "taken_over")


def test_rewards_that_say_nothing_are_refused() -> None:
    plain = random_source((9, 9))
    same = [dataclasses.replace(e, reward=np.full(9, -1.0), done=None) for e in plain.items]
    source = ArraySource(tuple(same))
    config = DataConfig(tuple(s.name for s in source.task_space.observations))
    spec = BatchSpec(1, 4, 8, parts=("transition",))
    with pytest.raises(DataError, match=r"no success in these 18 steps.*'recorded'.*worth -1"):
        TrainingData(config, spec, 0, source, flatten(source))
    # Who imitates needs none.
    TrainingData(config, BatchSpec(1, 4, 8), 0, source, flatten(source))
    ends = np.arange(18) == 17
    require_informative(np.full(18, -1.0), ends, config.reward)
    with pytest.raises(DataError, match=r"no reward in these 18 steps.*none ends the task"):
        require_informative(np.zeros(18), ends & False, config.reward)
    # Where nothing pays, it is all the same where it ends.
    with pytest.raises(DataError, match=r"no reward in these 18 steps.*is worth 0, so every"):
        require_informative(np.zeros(18), ends, config.reward)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rewards_beyond_single_precision_are_refused(value: float) -> None:
    episode = dataclasses.replace(small_episode(), reward=np.full(12, value))
    with pytest.raises(DataError, match=r"'recorded' is .* at step 0, expected finite numbers of"):
        relabelled(episode, "recorded")


def test_statistics_of_rewards_are_kept_where_they_are_learned_from() -> None:
    source = random_source((9, 12))
    config = DataConfig(tuple(s.name for s in source.task_space.observations))
    flat = flatten(source)
    found = TrainingData(config, BatchSpec(1, 4, 8, parts=("transition",)), 0, source, flat).stats
    assert found.reward is not None
    assert found.reward.count == 21
    assert found.reward.mean[0] == pytest.approx(float(flat.reward.mean()))
    assert TrainingData(config, BatchSpec(1, 4, 8), 0, source, flat).stats.reward is None
