"""Every algorithm learns from a store that grows, hands itself over, and acts as it explores."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.registry import explorer_of, load_policy
from robolearn.data.reading.costs import CostConfig
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import DataError
from robolearn.training.experiment import Experiment
from robolearn.training.learner import Learner
from robolearn.training.run_directory import load_run
from robolearn.training.trainer import FitConfig
from robolearn.training.versions import load_version
from tests.growing_store import add_episodes
from tests.learning_mocks import BLOCK, TOOL, random_source
from tests.policies.every import Family, tiny

# Those that know what was demonstrated; the others' batches have no such part.
SHOWN = ("adversarial", "h2o", "hil_serl", "rlpd")
COST = CostConfig("region", {"signal": TOOL, "centre": [0.25, 0.25], "radius": 0.1})
SAMPLED = ("adversarial", "h2o", "hil_serl", "rlpd", "sac", "safe", "wsrl")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    made = Family(tmp_path_factory.mktemp("parents"))
    for name in ("flow", "cql"):
        made.train(name)
    return made


@pytest.mark.parametrize("name", ["filtered_bc", *SAMPLED])
def test_it_practises(name: str, family: Family, tmp_path: Path) -> None:
    parent = load_run(family.folder / ("cql" if name == "wsrl" else "flow"))
    data = DataConfig(
        (TOOL, BLOCK),
        kinds=("online",),
        success=True if name == "filtered_bc" else None,
        reward=RewardConfig(),
        cost=COST if name == "safe" else None,
    )
    config: Any = tiny(name)
    experiment = Experiment(name, data, config, FitConfig(steps=100, warmup=0))
    shown = dataclasses.replace(random_source(seed=50), content_hash="shown")
    more: dict[str, Any] = {}
    if name in SHOWN:
        more = {"demonstrations": shown, "share": 0.5}
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    with Learner(experiment, parent, store, out, **more) as learner:
        assert learner.episodes == (2 if name == "filtered_bc" else 4)
        learner.update(2)
        first = learner.hand_over()
        add_episodes(store, range(4, 6))
        assert learner.take_in().episodes == (1 if name == "filtered_bc" else 2)
        learner.update(2)
        origin = learner.batch(9).origin
        if name in ("adversarial", "h2o"):
            assert origin is not None
            assert origin.tolist() == [0] * 4 + [1] * 4
        version = load_version(out, first)
        learner.finish()
    request = Family(tmp_path).request(2)
    chunks = explorer_of(version).sample(request, 3).actions
    assert np.isfinite(chunks).all()
    assert chunks.std(axis=1).max() > 1e-4
    if name in SAMPLED:
        deployed = load_policy(out).sample(request, 3).actions
        assert deployed.std(axis=1).max() < 1e-9


def test_where_nothing_succeeded_nothing_is_imitated(family: Family, tmp_path: Path) -> None:
    parent = load_run(family.folder / "flow")
    data = DataConfig((TOOL, BLOCK), kinds=("online",), success=True)
    experiment = Experiment("filtered_bc", data, tiny("filtered_bc"), FitConfig(steps=100))
    add_episodes(tmp_path / "store", range(3), success=False)
    with pytest.raises(DataError, match=r"\['online'\] that succeeded yet \(it has 3 in all\)"):
        Learner(experiment, parent, tmp_path / "store", tmp_path / "out")
