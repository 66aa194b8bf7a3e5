"""Episodes are drawn by what they were worth, as the equations say, and by nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreChoice
from robolearn.data.reading.trajectories import trajectory_weights, value_without_itself
from robolearn.data.reading.weighting import (
    EpisodeQuality,
    IdleConfig,
    QualityConfig,
    row_weights,
)
from robolearn.errors import ConfigError, DataError
from robolearn.learning import BatchSpec
from tests.learning_mocks import TOOL, random_flat

QUALITIES = [EpisodeQuality(k % 2 == 0, 1.0) for k in range(4)]


def worth(flat: FlatEpisodes, returns: Sequence[float]) -> FlatEpisodes:
    """The episodes with these returns, all of it in the last reward."""
    reward = np.zeros(len(flat.reward), dtype=np.float32)
    reward[flat.starts[1:] - 1] = returns
    return dataclasses.replace(flat, reward=reward)


def weights_of(
    flat: FlatEpisodes, quality: QualityConfig, qualities: Sequence[EpisodeQuality] = QUALITIES
) -> np.ndarray:
    found = row_weights(
        flat,
        np.arange(len(flat.actions)),
        stores=None,
        quality=quality,
        qualities=qualities,
        idle=IdleConfig(),
    )
    assert found is not None
    return found


def drawn(flat: FlatEpisodes, weights: np.ndarray) -> np.ndarray:
    """How often each row is drawn in one pass."""
    rows = len(flat.actions)
    actions = EpisodeDataset(flat, BatchSpec(1, 1, rows), 0, None, weights).batch(0).actions
    same = (flat.actions[None] == actions[:, 0].numpy()[:, None]).all(axis=2)
    return same.sum(axis=0)


@settings(max_examples=40, deadline=None)
@given(
    returns=st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4),
    temperature=st.floats(0.05, 3.0),
    shift=st.floats(-5, 5),
    scale=st.floats(0.1, 10),
)
def test_weights_are_the_softmax_of_normalised_returns(
    returns: list[float], temperature: float, shift: float, scale: float
) -> None:
    flat = worth(random_flat((7, 12, 9, 20)), returns)
    if not any(returns) or np.ptp(returns) < 1e-3:
        return
    chosen = np.arange(4)
    weights = trajectory_weights(flat, chosen, by_advantage=False, temperature=temperature)
    normalised = (np.array(returns) - min(returns)) / np.ptp(returns)
    expected = np.exp(normalised / temperature)
    np.testing.assert_allclose(weights / weights.sum(), expected / expected.sum(), rtol=1e-3)
    # What rewards are measured in has no influence: it is the normalised return that counts.
    other = worth(flat, [scale * r + shift for r in returns])
    again = trajectory_weights(other, chosen, by_advantage=False, temperature=temperature)
    np.testing.assert_allclose(again, weights, rtol=0.05, atol=1e-6)


def test_windows_are_drawn_as_often_as_their_episodes_weigh() -> None:
    lengths = (300, 500, 400, 200)
    flat = worth(random_flat(lengths), [0.0, 1.0, 0.5, 1.0])
    config = QualityConfig(by="return", temperature=0.5)
    weights = weights_of(flat, config)
    counts = drawn(flat, weights)
    shares = np.add.reduceat(counts, flat.starts[:-1]) / counts.sum()
    expected = np.array(lengths) * np.exp(np.array([0.0, 1.0, 0.5, 1.0]) / 0.5)
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.01)


@pytest.mark.parametrize("by", ["return", "advantage"])
def test_equal_returns_change_nothing(by: str) -> None:
    flat = worth(random_flat((7, 12, 9, 20)), [0.3, 0.3, 0.3, 0.3])
    assert (weights_of(flat, QualityConfig(by=by)) == 1.0).all()  # type: ignore[arg-type]


def test_an_easy_start_is_no_skill() -> None:
    """The return is what the start promises, but for one episode that did worse than that."""
    flat = random_flat((5,) * 30)
    first = np.linspace(0.1, 0.5, 30)
    tool = np.array(flat.observations[TOOL])
    tool[flat.starts[:-1], 0] = first
    returns = 10.0 * first
    returns[-1] -= 3.0
    flat = dataclasses.replace(flat, observations=dict(flat.observations) | {TOOL: tool})
    flat = worth(flat, returns.tolist())
    chosen = np.arange(30)
    by_return, by_advantage = (
        trajectory_weights(flat, chosen, by_advantage=way, temperature=0.1) for way in (False, True)
    )
    assert by_return[0] == by_return.min()
    assert by_advantage[-1] == by_advantage.min()
    assert np.median(by_advantage) > 100 * by_advantage[-1]
    assert by_return[-2] > 100 * by_return[0]


def test_an_episode_does_not_explain_itself() -> None:
    """With as many numbers as episodes a regression would fit every return, and find no skill."""
    rng = np.random.default_rng(0)
    starts, value = rng.normal(size=(12, 20)), rng.normal(size=12)
    expected = value_without_itself(starts, value)
    spread, mean = starts.std(axis=0), starts.mean(axis=0)
    for k in range(3):
        rest = np.arange(12) != k
        x = np.concatenate([np.ones((12, 1)), (starts - mean) / spread], axis=1)
        penalty = np.diag([0.0] + [1.0] * 20)
        inner = x[rest].T @ x[rest] + penalty
        slow = x[k] @ np.linalg.solve(inner, x[rest].T @ value[rest])
        assert expected[k] == pytest.approx(slow)
    assert np.abs(value - expected).mean() > 0.5


def test_only_the_chosen_episodes_count() -> None:
    """The worst and the best episode are held out: they set no scale."""
    flat = worth(random_flat((5, 5, 5, 5)), [-100.0, 1.0, 2.0, 100.0])
    windows = np.arange(5, 15)
    found = row_weights(
        flat,
        windows,
        stores=None,
        quality=QualityConfig(by="return", temperature=1.0),
        qualities=QUALITIES,
        idle=IdleConfig(),
    )
    assert found is not None
    assert found[[0, 5, 10, 15]] == pytest.approx([0.0, np.exp(-1.0), 1.0, 0.0])


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(3, 40), min_size=2, max_size=6),
    share=st.floats(0.05, 0.95),
    power=st.floats(0.0, 2.0),
)
def test_successes_have_their_share(lengths: list[int], share: float, power: float) -> None:
    flat = random_flat(tuple(lengths))
    qualities = [EpisodeQuality(k % 2 == 0, 0.5 + 0.1 * k) for k in range(len(lengths))]
    quality = QualityConfig(success_share=share, score_power=power)
    weights = weights_of(flat, quality, qualities)
    succeeded = flat.per_row(np.array([q.success for q in qualities]))
    assert weights[succeeded].sum() / weights.sum() == pytest.approx(share)
    # Among successes the rest of data.quality counts as ever.
    firsts = weights[flat.starts[:-1]][::2]
    expected = np.array([q.score for q in qualities[::2]]) ** power
    np.testing.assert_allclose(firsts / firsts[0], expected / expected[0])


def test_what_is_not_there_is_said() -> None:
    flat = random_flat((7, 12, 9, 20))
    silent = dataclasses.replace(flat, reward=np.zeros_like(flat.reward))
    with pytest.raises(DataError, match=r"has the reward 0.*data\.reward"):
        weights_of(silent, QualityConfig(by="advantage"))
    for success, missing in ((True, "failed"), (False, "succeeded")):
        with pytest.raises(DataError, match=f"no window is left of an episode that {missing}"):
            weights_of(flat, QualityConfig(success_share=0.5), [EpisodeQuality(success, 1.0)] * 4)
    with pytest.raises(DataError, match="does not say how its episodes ended"):
        weights_of(flat, QualityConfig(success_share=0.5), [])


def test_contradictions_of_a_configuration_are_said() -> None:
    with pytest.raises(ConfigError, match="success_share must be in"):
        QualityConfig(success_share=1.0)
    with pytest.raises(ConfigError, match="leave one out"):
        QualityConfig(success_share=0.5, success=3.0)
    with pytest.raises(ConfigError, match=r"temperature must be at least 0.01"):
        QualityConfig(temperature=0.0)
    stores = (StoreChoice("a", weight=1.0), StoreChoice("b", weight=1.0))
    with pytest.raises(ConfigError, match="both say how batches are divided"):
        DataConfig((TOOL,), stores=stores, quality=QualityConfig(success_share=0.5))
