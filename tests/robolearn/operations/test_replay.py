"""Replaying and identifying as functions: what they return, tell and refuse; nothing is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.data.importers.diffusion_policy import import_diffusion_policy
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.identify import identify
from robolearn.operations.replay import replay, replay_states, sets_states
from sim.identification.replay import summarize_after, summarize_final


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "store"
    import_diffusion_policy(pusht_demonstrations_path(), EpisodeStore.create(path), limit=2)
    return path


def test_a_replay_returns_its_errors_and_tells_how_far_it_is(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[int, int]] = []
    found = replay(store, "pusht_reference", on_replayed=lambda done, of: told.append((done, of)))
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert (found.scene, found.diverged) == ("pusht_reference", ())
    assert tuple(e.episode for e in found.errors) == EpisodeStore.open(store).ids()
    assert found.final() == summarize_final(found.errors)
    assert found.after(5.0) == summarize_after(found.errors, 5.0)
    assert found.final().position_p90_mm < 5.0
    assert len(replay(store, "pusht_reference", episodes=1).errors) == 1
    assert capsys.readouterr() == ("", "")


def test_a_replay_refuses_what_it_cannot_do(store: Path, tmp_path: Path) -> None:
    EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(DataError, match="holds no episodes"):
        replay(tmp_path / "empty", "pusht_reference")
    with pytest.raises(ConfigError, match="at least 1"):
        replay(store, "pusht_reference", episodes=0)
    assert sets_states("robosuite/Lift")
    assert not sets_states("pusht_reference")
    with pytest.raises(ConfigError, match="'pusht_reference' is not a robosuite world"):
        replay_states(store, "pusht_reference")


def test_identification_needs_demonstrations_to_fit_and_to_check(
    store: Path, tmp_path: Path
) -> None:
    EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(ConfigError, match="has 0"):
        identify(tmp_path / "empty", tmp_path / "scene")
    with pytest.raises(ConfigError, match="at least 2"):
        identify(store, tmp_path / "scene", episodes=1)
    assert not (tmp_path / "scene").exists()
