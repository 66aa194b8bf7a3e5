"""Moved copies of episodes are what the scene really does; what differs is dropped and counted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.importers.recording import ImportOptions
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.stores.augment import augment
from robolearn.operations.stores.augment_options import AugmentConfig
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.operations.stores.importing import import_recording
from robolearn.pusht import recorded_goal


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("augment") / "store"
    collect(CollectConfig("pick_place", seed=7), path, CollectOptions(agent="scripted", episodes=2))
    return path


@pytest.fixture(scope="module")
def pushes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("augment") / "pushes"
    import_recording(path, options=ImportOptions(limit=2))
    return path


def test_moved_copies_succeed_where_everything_moves(cubes: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = augment(
        cubes,
        tmp_path / "moved",
        AugmentConfig(copies=2, seed=3),
        on_replayed=lambda done, of: told.append((done, of)),
    )
    assert told == [(k, 4) for k in range(1, 5)]
    assert (made.world, len(made.ids), made.dropped) == ("pick_place", 4, {})
    source, moved = EpisodeStore.open(cubes), EpisodeStore.open(made.store)
    starts: set[tuple[float, ...]] = set()
    for name, replay in zip(made.ids, made.replays, strict=True):
        episode, before = moved.read(name), source.read(replay.origin)
        assert episode.success
        assert (episode.meta.kind, episode.meta.task) == ("scripted", "pick_place")
        assert replay.position_m < 0.005
        said = episode.meta.provenance
        assert said["origin"][-1]["store"] == source.uuid
        assert said["origin"][-1]["episode"] == replay.origin
        assert said["origin"][-1]["sha256"]
        # Cube and square moved together, by what the provenance says.
        turn, shift = said["move"]["turn"], np.array(said["move"]["shift"])
        R = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        for signal in ("cube/pose", "goal/pose"):
            was, now = before.observed(signal)[0, :2], episode.observed(signal)[0, :2]
            np.testing.assert_allclose(now, R @ was + shift, atol=1e-6)
        # The hand starts where it always starts, and commands go over to the moved ones.
        np.testing.assert_allclose(
            episode.action["tool/xyz_yaw"][0], before.action["tool/xyz_yaw"][0], atol=1e-9
        )
        starts.add(tuple(episode.meta.condition.poses["cube/pose"]))
    assert len(starts) == 4


def test_a_goal_that_stays_drops_what_moved_and_keeps_what_is_symmetric(
    pushes: Path, tmp_path: Path
) -> None:
    x, y, yaw = recorded_goal({})
    turned = AugmentConfig(centre=(x, y), turn_deg=60.0, shift_m=0.0, copies=2, seed=1)
    with pytest.raises(DataError, match=r"no moved episode .* of 4\).*A goal that is no object"):
        augment(pushes, tmp_path / "turned", turned, world="pusht_reference")
    assert not (tmp_path / "turned").exists()
    # The goal's own axis of symmetry: the T's stem.
    axis = math.degrees(yaw) + 90.0
    mirror = AugmentConfig(
        centre=(x, y), turn_deg=0.0, shift_m=0.0, mirror_deg=axis, body_axis_deg=90.0
    )
    made = augment(pushes, tmp_path / "mirrored", mirror, world="pusht_reference")
    assert len(made.ids) == 2
    assert max(r.position_m for r in made.replays) < 0.005
    kinds = {EpisodeStore.open(made.store).meta(i).kind for i in made.ids}
    assert kinds == {"demonstration"}


def test_the_command_counts_what_it_dropped(
    cubes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing ends so near: every copy is dropped.
    options = ["--copies", "1", "--within-m", "0"]
    assert main(["data", "augment", str(cubes), "--out", str(tmp_path / "none"), *options]) == 2
    assert "2 apart of 2" in capsys.readouterr().err
    out = tmp_path / "some"
    assert main(["data", "augment", str(cubes), "--out", str(out), "--outcome", "success"]) == 0
    assert f"2 of 2 moved episodes are in {out}" in capsys.readouterr().out


def test_what_cannot_be_moved_is_refused(pushes: Path, tmp_path: Path) -> None:
    for bad, why in (
        ({"copies": 0}, "copies must be at least 1"),
        ({"shift_m": -1.0}, "at least 0"),
        ({"turn_deg": 0.0, "shift_m": 0.0}, "nothing would move"),
        ({"mirror_deg": 10.0}, "another reflection"),
    ):
        with pytest.raises(ConfigError, match=why):
            AugmentConfig(**bad)
    with pytest.raises(ConfigError, match="name the one world"):
        augment(pushes, tmp_path / "out", AugmentConfig())
