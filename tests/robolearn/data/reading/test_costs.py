"""What steps cost: where it is decided, what it counts in, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.data.reading.cache import flatten
from robolearn.data.reading.costs import CostConfig, costs
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.learning import BatchSpec
from robolearn.training.data import TrainingData
from tests.episodes import TOOL, small_episode
from tests.learning_mocks import ArraySource, random_source

LEFT: dict[str, Any] = {"signal": TOOL, "low": [0.0, 0.0], "high": [0.5, 1.0]}
SPEC = BatchSpec(1, 4, 8, parts=("transition", "cost"))


def test_a_step_costs_what_it_leads_to() -> None:
    episode = small_episode(steps=12)
    found = costs(episode, CostConfig("region", LEFT))
    inside = episode.observed(TOOL)[:, 0] <= 0.5
    assert found.tolist() == [float(v) for v in (*inside[1:], inside[-1])]
    assert 0 < found.sum() < 12
    recorded = costs(episode, CostConfig("recorded", {"signal": TOOL, "index": 1}))
    np.testing.assert_array_equal(recorded, episode.observed(TOOL)[:, 1])


def test_costs_belong_to_the_data_and_its_identity(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        for k in range(2):
            writer.append(small_episode(seed=k))

    def source(**cost: Any) -> StoreSource:
        return StoreSource(store, DataConfig((TOOL,), cost=CostConfig(**cost) if cost else None))

    moved = LEFT | {"high": [0.6, 1.0]}
    hashes = {
        source().content_hash,
        source(task="region", params=LEFT).content_hash,
        source(task="region", params=moved).content_hash,
    }
    assert len(hashes) == 3
    wanted = [costs(store.read(i.id, [TOOL]), CostConfig("region", LEFT)) for i in store.list()]
    found = flatten(source(task="region", params=LEFT)).cost
    np.testing.assert_array_equal(found, np.concatenate(wanted))
    assert not flatten(source()).cost.any()


def test_the_end_of_a_labelled_failure_costs_and_nothing_else_does(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    stopped = small_episode(seed=2, steps=12)
    outcome = dataclasses.replace(stopped.meta.outcome, success=False, reason="safety_stop")
    stopped = dataclasses.replace(stopped, meta=dataclasses.replace(stopped.meta, outcome=outcome))
    rate_hz = stopped.meta.embodiment.rate_hz
    wanted = CostConfig("failure", {"reasons": ["spilled", "safety_stop"], "before_s": 3 / rate_hz})

    def found() -> list[float]:
        source = StoreSource(store, DataConfig((TOOL,), cost=wanted))
        return flatten(source).cost.reshape(3, 12).sum(axis=1).tolist()

    with store.writer() as writer:
        plain, spilled = (writer.append(small_episode(seed=k, steps=12)) for k in range(2))
        writer.append(stopped)
    # A supervisor's word counts as it was recorded.
    assert found() == [0.0, 0.0, 3.0]
    hashed = StoreSource(store, DataConfig((TOOL,), cost=wanted)).content_hash
    with store.writer() as writer:
        said = writer.annotate(Annotation((spilled,), "anna", success=False, reason="spilled"))
        writer.annotate(Annotation((plain,), "anna", success=False, reason="slow"))
    assert found() == [0.0, 3.0, 3.0]
    assert StoreSource(store, DataConfig((TOOL,), cost=wanted)).content_hash != hashed
    assert costs(store.read(spilled), wanted).tolist() == [0.0] * 9 + [1.0] * 3
    # Of a shorter time than a step it is the last one.
    last = CostConfig("failure", {"reasons": ["spilled"]})
    assert costs(store.read(spilled), last).tolist() == [0.0] * 11 + [1.0]
    with store.writer() as writer:
        writer.annotate(Annotation((spilled,), "anna", undoes=said))
    assert found() == [0.0, 0.0, 3.0]


def test_what_cannot_be_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.cost: no cost 'regin'\. Did you mean 'region'"):
        CostConfig("regin")
    with pytest.raises(ConfigError, match=r"data\.cost: region: unknown key 'tolerance'"):
        CostConfig("region", LEFT | {"tolerance": 0.1})
    with pytest.raises(ConfigError, match="reasons: name at least one"):
        CostConfig("failure", {"reasons": [" "]})
    with pytest.raises(ConfigError, match="before_s must be at least 0 s, got -1"):
        CostConfig("failure", {"reasons": ["spilled"], "before_s": -1.0})
    with pytest.raises(ConfigError, match="low and high must be of one length"):
        CostConfig("region", LEFT | {"high": [1.0]})
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        writer.append(small_episode())
    other = CostConfig("recorded", {"signal": "tool/xy_tabel"})
    with pytest.raises(DataError, match=r"data\.cost 'recorded' looks at.*Did you mean"):
        StoreSource(store, DataConfig((TOOL,), cost=other))
    with pytest.raises(DataError, match=r"has 2 numbers.*asks for number 2"):
        costs(small_episode(), CostConfig("recorded", {"signal": TOOL, "index": 2}))
    low = small_episode()
    block = dataclasses.replace(low.streams[TOOL], value=low.streams[TOOL].value - 1.0)
    below = dataclasses.replace(low, streams={**low.streams, TOOL: block})
    with pytest.raises(DataError, match="finite and at least 0"):
        costs(below, CostConfig("recorded", {"signal": TOOL}))


def test_without_costs_nothing_can_be_kept_away_from() -> None:
    plain = random_source((9, 9))
    config = DataConfig(tuple(s.name for s in plain.task_space.observations))

    def built(config: DataConfig, cost: float | None) -> TrainingData:
        items = [
            dataclasses.replace(e, cost=None if cost is None else np.full(9, cost))
            for e in plain.items
        ]
        source = ArraySource(tuple(items))
        return TrainingData(config, SPEC, 0, source, flatten(source))

    with pytest.raises(ConfigError, match=r"nothing says what a step costs: set data\.cost"):
        built(config, None)
    told = dataclasses.replace(config, cost=CostConfig("region", LEFT))
    with pytest.raises(DataError, match=r"data\.cost 'region' no step of these 18 costs"):
        built(told, 0.0)
    with pytest.raises(DataError, match=r"every step of these 18 costs"):
        built(told, 1.0)
    some = dataclasses.replace(plain.items[0], cost=np.arange(9) % 2.0)
    source = ArraySource((some, plain.items[1]))
    TrainingData(told, SPEC, 0, source, flatten(source))
