"""Videos of deployed episodes: from above, and with the arm beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import av
import numpy as np
import pytest

from hardware.cell.load import load_cell
from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.operations.deploy.video import JOINTS, TableFilm, film_of
from robolearn.pusht import BLOCK, TOOL
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome, SampleBlock

ROOT = Path(__file__).parents[4]
STEPS = 6


@pytest.fixture
def episode() -> Episode:
    signals = (
        SignalSpec(TOOL, (2,), "m", 10.0, frame="table"),
        SignalSpec(BLOCK, (3,), "m", 10.0, angular=(2,), frame="table"),
        SignalSpec(JOINTS, (6,), "rad", 10.0),
    )
    action = ActionSpec(TOOL, (2,), "m", 10.0, frame="table")
    home = np.array([-0.33, -1.32, 2.42, -2.67, -1.57, -0.33])
    meta = EpisodeMeta(
        kind="deployment",
        task="pusht",
        embodiment=EmbodimentSpec("lab", signals, (action,), 10.0),
        condition=Condition("c", 0, {}),
        outcome=Outcome(False, 0.5, 0.5, truncated=True, reason="time_limit"),
        agent="test",
    )
    path = np.linspace([0.1, 0.1], [0.4, 0.3], STEPS)
    return episode_from_arrays(
        meta,
        {
            TOOL: path,
            BLOCK: np.tile([0.3, 0.35, 0.4], (STEPS, 1)),
            JOINTS: np.tile(home, (STEPS, 1)) + np.linspace(0, 0.3, STEPS)[:, None] * np.eye(6)[0],
        },
        {TOOL: path},
        progress=np.full(STEPS, 0.5),
    )


def _frames(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]


def test_from_above_at_the_control_rate(episode: Episode, tmp_path: Path) -> None:
    assert TableFilm(None, 128).write(episode, tmp_path / "v.mp4") == STEPS
    frames = _frames(tmp_path / "v.mp4")
    assert frames[0].shape == (128, 128, 3)
    # The tool moves to the right: so does the centre of the blue pixels.
    columns = [np.nonzero(f[..., 2].astype(int) - f[..., 0] > 60)[1].mean() for f in frames]
    assert columns[-1] > columns[0] + 30


def test_the_arm_stands_beside_it(episode: Episode, tmp_path: Path) -> None:
    film = TableFilm(ROOT / "configs/hardware/lab_ur5e.yaml", 128)
    assert film.write(episode, tmp_path / "v.mp4") == STEPS // 2
    frames = _frames(tmp_path / "v.mp4")
    assert frames[0].shape == (128, 256, 3)
    left = [f[:, :128].astype(int) for f in frames]
    assert left[0].std() > 20, "the picture of the arm is empty"
    assert np.abs(left[-1] - left[0]).max() > 40, "the arm does not move with its joints"


def test_an_arm_in_joint_space_is_drawn_in_its_scene(episode: Episode, tmp_path: Path) -> None:
    config = ROOT / "configs/hardware/lab_so101.yaml"
    cell = load_cell(config)
    film = film_of(cell, config, lab=True)
    assert film is not None
    five = dataclasses.replace(episode, streams={JOINTS: _five(episode)})
    assert film.write(five, tmp_path / "v.mp4") == STEPS
    frames = [f.astype(int) for f in _frames(tmp_path / "v.mp4")]
    assert frames[0].std() > 20
    assert np.abs(frames[-1] - frames[0]).max() > 40
    bare = tmp_path / "bare.yaml"
    bare.write_text("robot: {}")
    assert film_of(cell, bare, lab=False) is None


def _five(episode: Episode) -> SampleBlock:
    block = episode.streams[JOINTS]
    return dataclasses.replace(block, value=block.value[:, :5])
