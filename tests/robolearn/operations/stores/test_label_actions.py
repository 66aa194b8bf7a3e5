"""Actions are inferred from what was seen, as well as is said; what cannot be told is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from policies.data_models.options import InverseDynamicsConfig
from robolearn.cli.main import main
from robolearn.data.episode import Episode, no_sent
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.operations.stores.label_actions import label_actions
from tests.episodes import ACTION_SPEC, TOOL, small_episode

SMALL = InverseDynamicsConfig(width=32, depth=1, members=2, updates=150, batch_size=64, lr=1e-2)


def _followed(seed: int, *, blind: bool = False) -> Episode:
    """A tool that goes a third of the way to where it is told to be; ``blind``: nowhere."""
    episode, rng = small_episode(seed, steps=60), np.random.default_rng(seed)
    told = np.clip(0.5 + np.cumsum(0.05 * rng.normal(size=(60, 2)), axis=0), 0.0, 1.0)
    at = np.full((61, 2), 0.5)
    for t in range(60):
        at[t + 1] = at[t] if blind else at[t] + (told[t] - at[t]) / 3
    if blind:
        at = rng.random((61, 2))
    stream = dataclasses.replace(episode.streams[TOOL], value=at[:60])
    return dataclasses.replace(episode, streams={TOOL: stream}, action={TOOL: told})


def _without_actions(episode: Episode) -> Episode:
    spec = dataclasses.replace(episode.meta.embodiment, actions=())
    meta = dataclasses.replace(episode.meta, embodiment=spec)
    return dataclasses.replace(episode, meta=meta, action={}, sent=no_sent({}))


def _store(path: Path, episodes: list[Episode]) -> Path:
    with EpisodeStore.create(path).writer() as writer:
        for episode in episodes:
            writer.append(episode)
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("label")
    labelled = _store(folder / "labelled", [_followed(k) for k in range(10)])
    bare = _store(folder / "bare", [_without_actions(_followed(k)) for k in (50, 51)])
    return labelled, bare


def test_what_is_inferred_is_near_what_was_done(stores: tuple[Path, Path], tmp_path: Path) -> None:
    labelled, bare = stores
    made = label_actions(bare, labelled, tmp_path / "out", SMALL)
    assert (made.episodes, made.learned_from, made.held_out) == (2, 8, 2)
    assert made.error[TOOL] < 0.2
    opened = EpisodeStore.open(made.store)
    for name, seed in zip(opened.ids(), (50, 51), strict=True):
        episode, truth = opened.read(name), _followed(seed)
        assert episode.meta.embodiment.actions == (ACTION_SPEC,)
        wrong = (episode.action[TOOL] - truth.action[TOOL])[:-2]
        way = (truth.action[TOOL] - truth.observed(TOOL))[:-2]
        # Beside how far the tool is told to go, not beside the table.
        assert np.sqrt((wrong**2).mean()) < 0.3 * np.sqrt((way**2).mean())
        said = episode.meta.provenance
        assert said["origin"][-1]["store"] == EpisodeStore.open(bare).uuid
        assert said["inferred_actions"]["held_out_error"] == dict(made.error)
        assert said["inferred_actions"]["actions"] == [TOOL]
        assert 0 < said["inferred_actions"]["disagreement"] < 1
        np.testing.assert_array_equal(episode.observed(TOOL), truth.observed(TOOL))


def test_actions_that_leave_no_trace_are_refused(stores: tuple[Path, Path], tmp_path: Path) -> None:
    """The spread is that of the way to go; beside the whole table the guess would look good."""
    blind = _store(tmp_path / "blind", [_followed(k, blind=True) for k in range(5)])
    config = dataclasses.replace(SMALL, updates=20)
    with pytest.raises(DataError, match=r"cannot be told from what is seen.*limit 0\.5"):
        label_actions(stores[1], blind, tmp_path / "out", config)
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_is_refused(stores: tuple[Path, Path], tmp_path: Path) -> None:
    labelled, bare = stores
    out = tmp_path / "out"
    with pytest.raises(DataError, match="too few to hold out"):
        label_actions(bare, _store(tmp_path / "one", [_followed(0)]), out, SMALL)
    with pytest.raises(SpecMismatchError, match="no signal 'cube/pose'"):
        label_actions(bare, labelled, out, SMALL, observations=("cube/pose",))
    with pytest.raises(ConfigError, match="held_out"):
        InverseDynamicsConfig(held_out=0.0)
    EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(DataError, match="holds no episodes"):
        label_actions(tmp_path / "empty", labelled, out, SMALL)


def test_the_command_says_how_good_they_are(
    stores: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled, bare = (str(p) for p in stores)
    options = ["--labelled", labelled, "--updates", "20", "--width", "16", "--limit", "2"]
    command = ["data", "label-actions", bare, "--out", str(tmp_path / "out"), *options]
    assert main(command) == 0
    assert "error of tool/xy_table: 0." in capsys.readouterr().out
