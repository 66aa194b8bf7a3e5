"""Records of a policy: its episodes as they come, failures included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.agents.easing import EasingConfig
from robolearn.agents.take_over import TakeOverConfig
from robolearn.cli.main import main
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.pusht import BLOCK, TOOL
from robolearn.seeding import child_seed
from robolearn.training.run_directory import policy_hash
from tests.two_runs import two_runs

WORLD = CollectConfig("pusht_reference", max_steps=12, seed=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one"


def test_rollouts_are_kept_failures_included_and_the_same_again(run: Path, tmp_path: Path) -> None:
    found = collect(WORLD, tmp_path / "a", CollectOptions(policy=run, episodes=2))
    assert (found.agent, len(found.saved), found.successes) == ("policy", 2, 0)
    more = collect(WORLD, tmp_path / "a", CollectOptions(policy=run, episodes=1))
    collect(WORLD, tmp_path / "b", CollectOptions(policy=run, episodes=3))
    store, other = (EpisodeStore.open(tmp_path / name) for name in "ab")
    assert store.ids() == (*found.saved, *more.saved)
    starts: list[np.ndarray] = []
    for number, (mine, same) in enumerate(zip(store.ids(), other.ids(), strict=True)):
        episode, again = store.read(mine), other.read(same)
        assert (episode.meta.kind, episode.meta.agent) == ("rollout", "one")
        assert set(episode.source) == {"policy"}
        assert not episode.meta.outcome.success
        told = episode.meta.provenance
        assert (told["policy_hash"], told["number"]) == (policy_hash(run), number)
        np.testing.assert_array_equal(episode.action[TOOL], again.action[TOOL])
        starts.append(episode.observed(BLOCK)[0])
    assert len({tuple(start) for start in starts}) == 3


def test_one_acts_at_a_time(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either a policy acts or the agent 'scripted'"):
        collect(WORLD, tmp_path / "a", CollectOptions(policy=run, agent="scripted"))
    with pytest.raises(ConfigError, match="noise is for the agents"):
        collect(WORLD, tmp_path / "a", CollectOptions(policy=run, noise=0.5))
    assert not (tmp_path / "a").exists()


def test_a_policy_that_cannot_act_there_leaves_no_store(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SpecMismatchError):
        collect(CollectConfig("drawer"), tmp_path / "a", CollectOptions(policy=run))
    gone = str(run.parent / "onne")
    words = ["collect", "--env", "pusht_reference", "--policy", gone, "--out", str(tmp_path / "a")]
    assert main(words) == 2
    assert "Did you mean 'one'" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_an_expert_takes_over_from_a_policy_that_is_lost(run: Path, tmp_path: Path) -> None:
    touch = TakeOverConfig(hold_s=0.3, easing=EasingConfig(speed_m_s=0.1))
    world = CollectConfig("pusht_reference", max_steps=60, seed=3, takeover=touch)
    corrected = CollectOptions(policy=run, corrected_by="scripted", episodes=1)
    found = collect(world, tmp_path / "a", corrected)
    assert found.agent == "corrected"
    store = EpisodeStore.open(tmp_path / "a")
    episode = store.read(found.saved[0])
    assert episode.meta.kind == "corrected"
    # Data say what counted as a touch.
    told = episode.meta.provenance["config"]["takeover"]
    assert (told["hold_s"], told["dead_zone"]) == (0.3, 0.1)
    assert told["easing"]["speed_m_s"] == 0.1
    assert episode.meta.agent == "one corrected by operator:scripted:pusht"
    assert {"policy", "script"} <= set(episode.drivers) <= {"policy", "script", "nobody"}
    assert episode.intervention.tolist() == [d == "script" for d in episode.drivers]
    # No demonstration of this configuration began there.
    assert episode.meta.condition.seed == child_seed(3, "corrected", 0)
    again = collect(world, tmp_path / "b", corrected)
    same = EpisodeStore.open(tmp_path / "b").read(again.saved[0])
    np.testing.assert_array_equal(episode.action[TOOL], same.action[TOOL])
    with pytest.raises(ConfigError, match="who is corrected"):
        collect(world, tmp_path / "c", CollectOptions(corrected_by="scripted"))
    with pytest.raises(ConfigError, match="nobody is called 'ann'"):
        collect(world, tmp_path / "c", CollectOptions(policy=run, corrected_by="ann"))
