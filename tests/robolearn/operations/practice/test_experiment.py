"""What practice takes from its file, and what from the parent."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from policies.chunks.mirror import MirrorConfig
from policies.critics.gaussian.soft import SoftConfig
from policies.offline_rl.cql import CqlConfig
from policies.offline_rl.idql import IdqlConfig
from policies.online_rl.filtered_bc import FilteredBcConfig
from policies.online_rl.reinflow import ReinflowConfig
from policies.online_rl.sac import SacConfig
from policies.registry import POLICIES, policy_config
from robolearn.config import to_dict
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import ConfigError
from robolearn.operations.practice.experiment import practice_experiment, recorded_kinds
from robolearn.operations.practice.options import PracticeConfig
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.run_directory import Run, load_run
from tests.two_runs import two_runs

CONFIGS = Path(__file__).parents[4] / "configs" / "practice"
# What practises, but for those that re-rank and edit and are of offline RL, too.
ONLINE = [n for n in POLICIES if policy_config(n).__module__.startswith("policies.online_rl.")]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs")
    return load_run(two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one")


def test_without_a_file_the_parents_chunks_are_reranked(parent: Run) -> None:
    found = practice_experiment(parent)
    inner = found.experiment
    assert inner.policy == "idql"
    config = inner.algorithm
    assert isinstance(config, IdqlConfig)
    assert (config.n_obs, config.horizon, config.stride, config.every) == (2, 8, 4, 4)
    assert config.discount**4 == pytest.approx(0.98)
    assert config.backup == "candidates"
    assert inner.data.kinds == ("online",)
    assert inner.data.observations == (TOOL, BLOCK)
    # What a step costs and how the future is discounted belong together.
    assert inner.data.reward.params == {"discount": config.discount}
    assert found.practice == PracticeConfig()
    assert found.plain()["practice"]["lanes"] == found.practice.lanes
    assert recorded_kinds(parent) == ("demonstration",)


def test_the_file_and_settings_come_first(parent: Run, tmp_path: Path) -> None:
    file = tmp_path / "practice.yaml"
    file.write_text(
        "algorithm: {candidates: 3, discount: 0.9}\n"
        "data: {observations: [block/pose]}\n"
        "fit: {steps: 70}\n"
        "practice: {lanes: 2, warmup_episodes: 4}\n"
    )
    found = practice_experiment(parent, file, {"practice.lanes": 6, "fit.steps": 80})
    config = found.experiment.algorithm
    assert isinstance(config, IdqlConfig)
    assert (config.candidates, config.discount, config.stride) == (3, 0.9, 4)
    assert found.experiment.data.observations == (BLOCK,)
    assert found.experiment.data.reward.params == {"discount": 0.9}
    assert (found.practice.lanes, found.practice.warmup_episodes) == (6, 4)
    assert found.experiment.fit.steps == 80


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda f: f.stem)
def test_every_file_is_valid(parent: Run, file: Path) -> None:
    found = practice_experiment(parent, file)
    assert found.practice.lanes >= 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("practice: {lane: 2}", "unknown key 'lane'. Did you mean 'lanes'"),
        ("practice: {lanes: 0}", "practice.lanes must be at least 1"),
        ("practice: {lanes: 2, parent_share: 0.9}", "nothing would be practised"),
        ("practice: {demonstrations: 1.0}", "something has to be practised"),
        ("practice: {max_minutes: 0}", "max_minutes must be positive"),
        ("fit: {steps: 9, max_minutes: 3}", "say practice.max_minutes"),
        ("policy: idqll", "idql"),
    ],
)
def test_what_cannot_be_is_refused(parent: Run, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "practice.yaml"
    file.write_text(f"{text}\n")
    with pytest.raises(ConfigError, match=words):
        practice_experiment(parent, file)


def test_actor_critics_act_by_whole_chunks_and_say_their_share(parent: Run, tmp_path: Path) -> None:
    file = tmp_path / "practice.yaml"
    for name, share in (("sac", 0.0), ("rlpd", 0.5)):
        file.write_text(f"policy: {name}\n")
        found = practice_experiment(parent, file)
        config = found.experiment.algorithm
        assert isinstance(config, SacConfig)
        assert (config.n_obs, config.horizon, config.start) == (2, 4, "scratch")
        assert config.discount**4 == pytest.approx(0.98)
        assert found.experiment.data.reward.params == {"discount": config.discount}
        assert found.practice.demonstrations == share
    given = practice_experiment(parent, file, {"practice.demonstrations": 0.25})
    assert given.practice.demonstrations == 0.25


def test_an_algorithm_says_how_it_practises(parent: Run, tmp_path: Path) -> None:
    """Rounds that are all there is to learn from are large; what the file says counts more."""
    file = tmp_path / "practice.yaml"
    file.write_text("policy: reinflow\nalgorithm: {passes: 3, batch_size: 60}\n")
    found = practice_experiment(parent, file).practice
    assert (found.lanes, found.parents_of(found.lanes), found.updates_per_decision) == (64, 8, 0.05)
    assert practice_experiment(parent, file, {"practice.lanes": 8}).practice.lanes == 8
    algorithm = practice_experiment(parent, file).experiment.algorithm
    assert isinstance(algorithm, ReinflowConfig)
    assert (algorithm.horizon, algorithm.stride) == (8, 4)


@pytest.mark.parametrize("name", ["idql", "expo", "pa_rl", *ONLINE])
def test_the_line_that_names_it_is_enough_over_a_parent_that_mirrors(
    parent: Run, tmp_path: Path, name: str
) -> None:
    mirror = MirrorConfig((0.0, 0.0), 0.0, 0.0, positions=(TOOL,), poses=(BLOCK,))
    theirs = {**parent.config["algorithm"], "mirror": to_dict(mirror)}
    mirrored = dataclasses.replace(parent, config={**parent.config, "algorithm": theirs})
    file = tmp_path / "practice.yaml"
    file.write_text(f"policy: {name}\n")
    found = practice_experiment(mirrored, file).experiment.algorithm
    known = {f.name for f in dataclasses.fields(cast("Any", found))}
    taken = getattr(found, "mirror", None)
    # Which noise makes a reflected chunk is not known to dsrl.
    assert taken == (mirror if "mirror" in known and name != "dsrl" else None)


def test_filtered_cloning_takes_in_what_succeeded(parent: Run, tmp_path: Path) -> None:
    file = tmp_path / "practice.yaml"
    file.write_text("policy: filtered_bc\n")
    found = practice_experiment(parent, file).experiment
    assert found.data.success is True
    assert isinstance(found.algorithm, FilteredBcConfig)
    assert (found.algorithm.n_obs, found.algorithm.horizon) == (2, 8)


def test_who_goes_on_from_networks_has_them_and_their_rewards(parent: Run, tmp_path: Path) -> None:
    offline = to_dict(CqlConfig(horizon=4, members=3, width=48, discount=0.9, calibrated=True))
    reward = {"task": "recorded", "params": {"shift": -1.0}}
    config = {
        "policy": "cql",
        "algorithm": offline,
        "data": {**parent.config["data"], "reward": reward},
    }
    run = dataclasses.replace(parent, config=config)
    file = tmp_path / "practice.yaml"
    for name in ("wsrl", "cql", "rlpd"):
        file.write_text(f"policy: {name}\nalgorithm: {{batch_size: 32}}\n")
        found = practice_experiment(run, file).experiment
        inner, kept = found.algorithm, name != "rlpd"
        assert isinstance(inner, SoftConfig)
        assert inner.batch_size == 32
        assert ((inner.members, inner.width, inner.discount) == (3, 48, 0.9)) == kept
        assert (found.data.reward.task == "recorded") == kept
        assert getattr(inner, "calibrated", True)
    file.write_text("policy: rlpd\nalgorithm: {start: parent, members: 4}\n")
    inner = practice_experiment(run, file).experiment.algorithm
    assert isinstance(inner, SoftConfig)
    assert (inner.members, inner.width) == (4, 48)
