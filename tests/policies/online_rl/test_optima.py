"""What practises comes to the best there is, where that is known: those without a toy of their own.

Over a parent that stops short of the best place, and from the networks of an offline run. The other
algorithms have theirs in their own files.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.critics.editing.ascent import AscentConfig
from policies.offline_rl.cql import CqlConfig
from policies.offline_rl.idql import IdqlConfig
from policies.online_rl.adversarial import AdversarialConfig
from policies.online_rl.sac import SacConfig
from policies.online_rl.smooth import SmoothConfig
from policies.online_rl.wsrl import WsrlConfig
from policies.registry import policy_config
from robolearn.data.reading.selection import DataConfig
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run
from tests.learning_mocks import BLOCK, TOOL, ArraySource, random_episode
from tests.policies.offline_rl import bandits
from tests.policies.offline_rl.bandits import BEST, bandit
from tests.policies.online_rl.test_origins import in_two
from tests.policies.online_rl.toys import SHORT, SMALL, asked, learned, places

QUICK: dict[str, Any] = bandits.SMALL | {"batch_size": 64, "horizon": 1}


def test_reranking_takes_the_best_of_what_is_proposed(tmp_path: Path) -> None:
    """All of the parent's places are short of the best: the furthest of each four."""
    built = learned(IdqlConfig(**SMALL), tmp_path, 200)
    offered = built.parent.sample(asked(), 4).actions[:, :, 0, 0]
    found = places(built.policy())
    assert (found == offered.max(axis=1)).mean() > 0.95
    assert (found - offered[:, 0]).mean() > 0.005


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("expo", {"beta": 1.0}),
        ("pa_rl", {"retrain": False, "ascent": AscentConfig(keep=2, steps=20, size=0.15)}),
    ],
)
def test_it_goes_where_no_chunk_of_the_parent_goes(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    kind: Any = policy_config(name)
    built = learned(kind(**SMALL, **settings), tmp_path, 200)
    found = places(built.policy())
    assert found.min() > SHORT + 0.03
    assert abs(np.median(found) - BEST) < 0.02


def test_smooth_networks_find_it_too(tmp_path: Path) -> None:
    """RO2O's switch."""
    config = SacConfig(smooth=SmoothConfig(size=0.05), **QUICK)
    assert np.abs(bandits.learned(config, tmp_path, 300) - BEST).max() < 0.025


def test_who_begins_with_what_was_learned_offline_goes_on_to_it(tmp_path: Path) -> None:
    """WSRL from CQL that was stopped on its way."""
    flat = bandit()
    episode = dataclasses.replace(
        random_episode("e", 600, 0),
        observations={TOOL: np.full((600, 2), 0.25), BLOCK: np.full((600, 3), 0.25)},
        actions=flat.actions.astype(np.float64),
        reward=flat.reward.astype(np.float64),
        done=flat.done,
    )
    source, data = ArraySource((episode,)), DataConfig((TOOL, BLOCK))

    def run(name: str, config: Any, steps: int, parent: str = "") -> float:
        fit = FitConfig(steps=steps, warmup=10, clip=10.0, schedule="constant")
        train(
            Experiment(name, data, config, fit),
            source,
            tmp_path / name,
            parent=load_run(tmp_path / parent) if parent else None,
            cache_dir=tmp_path / "cache",
        )
        built = policy_config(name)
        assert built is type(config)
        policy = config.load(load_run(tmp_path / name))
        return float(np.abs(places(policy) - BEST).max())

    begun = run("cql", CqlConfig(n_obs=1, **QUICK), 15)
    fast: dict[str, Any] = QUICK | {"members": 2, "actor_every": 1, "actor_lr": 3e-3}
    ended = run("wsrl", WsrlConfig(n_obs=1, **fast), 300, "cql")
    assert ended < 0.025 < begun


def test_a_window_that_was_demonstrated_is_reward_enough(tmp_path: Path) -> None:
    """SQIL: no discriminator."""
    flat = in_two(bandit(), 300)
    shown = flat.actions.copy()
    shown[300:, 0] = BEST + 0.01 * (np.arange(300) / 150 - 1.0)
    flat = dataclasses.replace(flat, actions=shown, reward=np.zeros_like(flat.reward))
    config = AdversarialConfig(kind="constant", **QUICK)
    assert np.abs(bandits.learned(config, tmp_path, 250, flat) - BEST).max() < 0.04
