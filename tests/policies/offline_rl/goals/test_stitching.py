"""What no single recording shows: the way that is put together of two of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from policies.critics.hindsight import HindsightConfig
from policies.imitation.bc import BcConfig
from policies.imitation.beso import BesoConfig
from policies.offline_rl.goals.gciql import GciqlConfig
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError, DataError
from robolearn.learning import FutureSpec
from tests.learning_mocks import TOOL, random_flat
from tests.policies.offline_rl.goals.crossroads import (
    GOAL,
    GOALS,
    ROADS,
    SMALL,
    learned,
    recordings,
    walked,
)

REACHING = {"gciql": GciqlConfig(extraction="weighted", beta=10.0, **SMALL)}
CLONED = BcConfig(
    n_obs=1,
    horizon=1,
    execute=1,
    width=32,
    blocks=1,
    batch_size=128,
    lr=3e-3,
    ema=0.9,
    future=FutureSpec(rest=1.0, goals=((GOAL, TOOL),)),
)


@pytest.mark.parametrize("name", sorted(REACHING))
def test_a_goal_is_reached_over_two_recordings(name: str, tmp_path: Path) -> None:
    policy = learned(REACHING[name], tmp_path, 250).policy()
    assert walked(policy, "A", "C") == "ABC"
    assert walked(policy, "A", "E") == "ABE"
    assert walked(policy, "A", "U") == "AU"


def test_cloned_behaviour_reaches_what_one_recording_reached(tmp_path: Path) -> None:
    policy = learned(CLONED, tmp_path, 250).policy()
    assert walked(policy, "A", "E") == "ABE"
    assert walked(policy, "B", "C") == "BC"
    assert walked(policy, "A", "C") == "AUUUU"


def test_the_actor_is_asked_for_goals_of_its_own() -> None:
    """Another draw for the actor changes its loss, and no other."""
    torch.manual_seed(0)
    config = REACHING["gciql"]
    data = EpisodeDataset(flatten(recordings()), config.batches(), 0)
    built = config.build(ROADS, data.stats(), None)
    batch = data.batch(0)
    assert batch.actor_goals is not None
    moved = {name: value + 0.1 for name, value in batch.actor_goals.items()}
    other = dataclasses.replace(batch, actor_goals=moved)
    one, two = (built(b, 1, torch.Generator().manual_seed(0)).by_group for b in (batch, other))
    assert {name for name in one if one[name] != two[name]} == {"policy"}


def test_what_lacks_goals_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"gciql learns to reach goals: name them"):
        GciqlConfig()
    with pytest.raises(ConfigError, match=r"goals.signals: name pairs"):
        HindsightConfig(())
    with pytest.raises(ConfigError, match=r"goals.actor says which rows are drawn"):
        dataclasses.replace(GOALS, actor=FutureSpec(rest=1.0, goals=((GOAL, TOOL),)))
    with pytest.raises(ConfigError, match=r"put over what is observed itself"):
        HindsightConfig(((TOOL, TOOL),))
    with pytest.raises(ConfigError, match=r"future: name the goals that it is for"):
        BcConfig(future=FutureSpec(rest=1.0))
    with pytest.raises(ConfigError, match="beso makes goals by 'hindsight'"):
        BesoConfig(future=CLONED.future)
    # Costs of every step lead to values that these bounds would cut.
    cut = dataclasses.replace(REACHING["gciql"], bounds=(-1.0, 0.0))
    stats = EpisodeDataset(flatten(recordings()), cut.batches(), 0).stats()
    with pytest.raises(ConfigError, match=r"rewards are in \[-1, 0\]"):
        cut.build(ROADS, stats, None)
    with pytest.raises(DataError, match="no observed signal 'goal/tool'"):
        EpisodeDataset(random_flat(), cut.batches(), 0)
