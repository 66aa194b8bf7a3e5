"""Replays of episodes that are not on a table's plane."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import SpecMismatchError
from robolearn.geometry import quat_from_rotation, rot_z
from robolearn.runtime import run_episode
from sim.experts.registry import build_expert
from sim.identification.replay import moved_object, replay_episode
from sim.worlds import make_world


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """One scripted pick-and-place."""
    made = EpisodeStore.create(tmp_path_factory.mktemp("replay") / "store")
    with contextlib.closing(make_world("pick_place")) as env:
        expert = build_expert(env.task, env.spec, 0.0)
        with EpisodeRecorder(made, spec=env.spec, kind="scripted") as recorder:
            run_episode(
                env, expert, None, [recorder], env.sample_condition(1),
                max_steps=70, task=env.task, env_name=env.spec.name,
            )  # fmt: skip
    return made


def test_a_scene_repeats_what_was_recorded_in_it(store: EpisodeStore) -> None:
    episode = store.read(store.ids()[0])
    assert moved_object(episode) == "cube/pose"
    with contextlib.closing(make_world("pick_place")) as env:
        error = replay_episode(env, episode)
    assert error.recorded.shape == (episode.steps, 7)
    assert np.linalg.norm(np.ptp(error.recorded[:, :3], axis=0)) > 0.05
    assert error.position_m.max() == 0.0
    assert error.rotation_rad.max() == 0.0


def test_errors_are_distances_and_angles(store: EpisodeStore) -> None:
    episode = store.read(store.ids()[0])
    block = episode.streams["cube/pose"]
    value = block.value.copy()
    value[:, :3] += (0.03, 0.0, 0.04)
    value[:, 3:] = quat_from_rotation(rot_z(0.0))
    turned = value.copy()
    turned[:, 3:] = -quat_from_rotation(rot_z(0.3))

    def replaced(values: np.ndarray) -> Episode:
        stream = dataclasses.replace(block, value=values)
        return dataclasses.replace(episode, streams={**episode.streams, "cube/pose": stream})

    with contextlib.closing(make_world("pick_place")) as env:
        moved = replay_episode(env, replaced(value))
        both = replay_episode(env, replaced(turned))
    assert np.allclose(moved.position_m, 0.05, atol=1e-12)
    # The cube starts level, turned about the vertical.
    first = moved.path[0, 3:]
    yaw = 2 * np.arctan2(first[3], first[0])
    assert moved.rotation_rad[0] == pytest.approx(abs(yaw), abs=1e-6)
    assert both.rotation_rad[0] == pytest.approx(abs(yaw - 0.3), abs=1e-6)


def test_another_world_lacks_the_object(store: EpisodeStore) -> None:
    episode = store.read(store.ids()[0])
    with (
        contextlib.closing(make_world("drawer")) as env,
        pytest.raises(SpecMismatchError, match="no signal 'cube/pose'"),
    ):
        replay_episode(env, episode)


def test_the_command_compares_poses(
    store: EpisodeStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "a.png"
    argv = ["replay", str(store.path), "--scene", "pick_place", "--plot", str(plot)]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "0.000 / 0.000 mm" in said
    assert "nan" not in said
    assert plot.stat().st_size > 1000
