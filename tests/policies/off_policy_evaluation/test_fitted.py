"""Fitted evaluations on a chain whose values are known, and on a coin whose distribution is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.off_policy_evaluation.fitted import (
    EvaluationConfig,
    FittedEvaluation,
    batches_for,
    start_seeds,
)
from policies.off_policy_evaluation.fle import FittedLikelihood
from policies.off_policy_evaluation.fqe import FittedQ
from robolearn.contracts import PolicySpec
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.stats import SignalStats
from robolearn.errors import ConfigError
from robolearn.training.data import TrainingData
from robolearn.training.loop import FitConfig, fit
from robolearn.types import PolicyInput, PolicyOutput
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource

# Places of the chain [m]; who goes right from the last but one is paid 1, and it is over.
PLACES = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
DISCOUNT = 0.8
SMALL = EvaluationConfig(
    discount=DISCOUNT, draws=1, members=2, width=32, depth=2, batch_size=64, lr=3e-3, tau=0.05
)
DATA = DataConfig((TOOL, BLOCK))


def chain(episodes: int = 60, steps: int = 12) -> ArraySource:
    """Goes left and right by chance."""
    rng = np.random.default_rng(0)
    items: list[EpisodeArrays] = []
    for e in range(episodes):
        at, right = [int(rng.integers(0, 4))], rng.random(steps) < 0.5
        reward = np.zeros(steps)
        for k in range(steps):
            reward[k] = float(at[-1] == 3 and right[k])
            at.append(4 if reward[k] else int(np.clip(at[-1] + (1 if right[k] else -1), 0, 4)))
            if reward[k]:
                break
        n = len(at) - 1
        tool = np.stack([PLACES[at[:n]], np.full(n, 0.25)], axis=1)
        action = np.stack([np.where(right[:n], 0.4, 0.1), np.full(n, 0.25)], axis=1)
        action[:, 1] += rng.uniform(-0.05, 0.05, n)
        items.append(
            EpisodeArrays(
                id=f"e{e}",
                observations={TOOL: tool, BLOCK: np.full((n, 3), 0.25)},
                actions=action,
                reward=reward[:n],
                done=reward[:n] > 0,
            )
        )
    return ArraySource(tuple(items))


class Walker:
    """Goes right where ``right`` says so of the place [m], the same for a whole chunk."""

    def __init__(self, right: Callable[[np.ndarray], np.ndarray], execute: int = 1) -> None:
        self.spec = PolicySpec(SPACE, 1, execute, execute)
        self._right = right

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        x = request.observations[TOOL][:, -1, 0]
        actions = np.full((len(x), n, self.spec.horizon, 2), 0.25)
        actions[..., 0] = np.where(self._right(x), 0.4, 0.1)[:, None, None]
        return PolicyOutput(actions, np.zeros((len(x), n)), request.t_ns)


def fitted(
    policy: Any,
    config: EvaluationConfig,
    folder: Path,
    steps: int = 250,
    source: ArraySource | None = None,
) -> tuple[FittedEvaluation, FlatEpisodes]:
    source = source or chain()
    flat = flatten(source)
    data = TrainingData(DATA, batches_for(config, policy.spec), 0, source, flat)
    torch.manual_seed(0)
    kind = FittedQ if config.method == "expected" else FittedLikelihood
    judge = kind(config, policy, data.stats)
    data.propose(judge)
    folder.mkdir(exist_ok=True)
    fit(judge, data.batches(), FitConfig(steps, warmup=10, schedule="linear"), folder, seed=0)
    return judge.eval(), flat


def values_at(judge: FittedEvaluation, places: np.ndarray) -> np.ndarray:
    tool = np.stack([places, np.full(len(places), 0.25)], axis=1)[:, None]
    observations = {
        TOOL: torch.from_numpy(tool.astype(np.float32)),
        BLOCK: torch.full((len(places), 1, 3), 0.25),
    }
    return judge.values(judge.at_starts(observations, start_seeds(len(places)))).mean(0).numpy()


RIGHT = DISCOUNT ** np.arange(3, -1, -1)
"""Of the first four places, for who always goes right."""


@pytest.mark.parametrize("method", ["expected", "distributional"])
def test_values_of_a_chain_are_found(method: Any, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, method=method, bounds=(0.0, 1.0), draws=2)
    judge, _ = fitted(Walker(lambda x: x > 0), config, tmp_path / "right")
    np.testing.assert_allclose(values_at(judge, PLACES[:4]), RIGHT, atol=0.08)


def test_two_policies_are_in_order_and_the_data_s_own_value_is_neither(tmp_path: Path) -> None:
    # Turns back at the third place: never paid below it. The data alone are the same for all.
    back, _ = fitted(Walker(lambda x: x > 0.35), SMALL, tmp_path / "back")
    left, _ = fitted(Walker(lambda x: x < 0), SMALL, tmp_path / "left")
    found = values_at(back, PLACES[:4])
    assert found[3] == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(found[:3], 0.0, atol=0.1)
    assert np.all(values_at(left, PLACES[:4]) < 0.15)


def test_the_stride_is_what_the_policy_executes(tmp_path: Path) -> None:
    judge, _ = fitted(Walker(lambda x: x > 0, execute=2), SMALL, tmp_path / "two")
    assert judge.batch_spec.stride == judge.batch_spec.horizon == 2
    np.testing.assert_allclose(values_at(judge, PLACES[:4]), RIGHT, atol=0.12)


def coin() -> ArraySource:
    """One step: +1 or -1 by chance."""
    rng = np.random.default_rng(0)
    items = tuple(
        EpisodeArrays(
            id=f"e{e}",
            observations={TOOL: rng.uniform(0.1, 0.4, (4, 2)), BLOCK: np.full((4, 3), 0.25)},
            actions=rng.uniform(0.1, 0.4, (4, 2)),
            reward=rng.choice([-1.0, 1.0], 4),
            done=np.ones(4, dtype=np.bool_),
        )
        for e in range(100)
    )
    return ArraySource(items)


def test_the_distribution_is_not_only_its_mean(tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, method="distributional", bounds=(-1.0, 1.0), atoms=21, lr=1e-3
    )
    judge, flat = fitted(Walker(lambda x: x > 0), config, tmp_path / "coin", 160, coin())
    assert isinstance(judge, FittedLikelihood)
    rows = np.asarray(flat.starts[:-1])
    starts = EpisodeDataset(flat, dataclasses.replace(judge.batch_spec, parts=()), 0).gather(rows)
    features = judge.at_starts(starts.observations, start_seeds(len(rows)))
    shares = judge.distribution(features).numpy()
    assert shares[0] + shares[-1] > 0.9
    assert shares[0] == pytest.approx(0.5, abs=0.12)
    assert judge.worst(features) == pytest.approx(-1.0, abs=0.1)


def test_projection_by_hand() -> None:
    config = dataclasses.replace(SMALL, method="distributional", bounds=(0.0, 1.0), atoms=3)
    data = EpisodeDataset(flatten(chain(4)), batches_for(config, Walker(np.isfinite).spec), 0)
    judge = FittedLikelihood(config, Walker(np.isfinite), data.stats())
    # Places 0, .5, 1; values .25 (halfway), 1 (exactly) and 7 (held at 1).
    at = torch.tensor([[0.25, 1.0, 7.0]])
    shares = torch.tensor([[[0.4, 0.5, 0.1]]])
    np.testing.assert_allclose(judge.projected(at, shares).numpy(), [[[0.2, 0.2, 0.6]]], atol=1e-6)
    wanted = (torch.tensor([[[0.2, 0.2, 0.6]]]) * torch.tensor([0.0, 0.5, 1.0])).sum()
    assert wanted == pytest.approx(0.7)


def test_targets_are_held_in_what_is_possible() -> None:
    data = EpisodeDataset(flatten(chain(4)), batches_for(SMALL, Walker(np.isfinite).spec), 0)
    stats = data.stats()
    judge = FittedQ(SMALL, Walker(np.isfinite), stats)
    assert judge.bounds == pytest.approx((0.0, 5.0))  # 1 / (1 - .8)
    costs = dataclasses.replace(stats, reward=_constant(stats.reward, -0.2))
    assert FittedQ(SMALL, Walker(np.isfinite), costs).bounds == pytest.approx((-1.0, 0.0))
    unknown = dataclasses.replace(stats, reward=None)
    assert FittedQ(SMALL, Walker(np.isfinite), unknown).bounds is None
    with pytest.raises(ConfigError, match="range of values"):
        FittedLikelihood(SMALL, Walker(np.isfinite), unknown)


def _constant(stats: SignalStats | None, value: float) -> SignalStats:
    assert stats is not None
    return dataclasses.replace(stats, minimum=(value,), maximum=(value,))


def test_bad_settings_are_explained() -> None:
    for wrong, message in (
        ({"discount": 1.0}, r"discount must be in \(0, 1\)"),
        ({"draws": 0}, "at least 1"),
        ({"bounds": (1.0, 1.0)}, "bounds must rise"),
    ):
        with pytest.raises(ConfigError, match=message):
            EvaluationConfig(**wrong)  # type: ignore[arg-type]
