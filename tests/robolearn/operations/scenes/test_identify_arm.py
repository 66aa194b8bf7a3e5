"""Identification of an arm from a store: what episodes must hold, and what is made of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.operations.scenes.identify_arm import motion_of
from robolearn.types import SampleBlock, SentBlock
from tests.episodes import small_episode


def _block(values: np.ndarray) -> SampleBlock:
    t_ns = np.arange(len(values), dtype=np.int64) * 2_000_000 + 7
    return SampleBlock(t_ns, values, np.ones(len(values), dtype=np.bool_))


def _episode(**streams: np.ndarray) -> Episode:
    named = {k.replace("__", "/"): _block(v) for k, v in streams.items()}
    return dataclasses.replace(small_episode(), id="e0", streams=named)


def test_an_episode_tells_joints_and_set_points() -> None:
    rows = np.zeros((60, 6))
    motion = motion_of(_episode(arm__joint_position=rows, arm__joint_setpoint=rows + 1.0), 6)
    assert motion.measured_t_s[[0, 1]].tolist() == [0.0, 0.002]
    np.testing.assert_array_equal(motion.sent, rows + 1.0)
    # In a cell that is commanded by joints, what was sent is the set-points.
    bare = _episode(arm__joint_position=rows)
    t_ns = np.arange(60, dtype=np.int64) * 2_000_000
    sent = SentBlock(np.zeros(60, dtype=np.int64), t_ns, {"arm/joint_position": rows + 2.0})
    np.testing.assert_array_equal(motion_of(dataclasses.replace(bare, sent=sent), 6).sent, rows + 2)


def test_episodes_that_do_not_tell_them_are_refused() -> None:
    rows = np.zeros((60, 6))
    with pytest.raises(DataError, match="no signal 'arm/joint_position'"):
        motion_of(_episode(arm__joint_setpoint=rows), 6)
    with pytest.raises(DataError, match="no signal 'arm/joint_setpoint' and no sent"):
        motion_of(_episode(arm__joint_position=rows), 6)
    with pytest.raises(DataError, match="7 joints: they are of another arm"):
        motion_of(_episode(arm__joint_position=rows, arm__joint_setpoint=rows), 7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one of: STORE"),
        (["x", "--robot", "y"], "give one of: STORE"),
        (["--episodes", "x"], "--scene is missing"),
        (["x", "--episodes", "many"], "a number is expected"),
        (["--robot", "configs/hardware/lab_ur5e.yaml", "--seconds", "3"], "seconds must be in"),
    ],
)
def test_the_command_says_what_is_missing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["identify", *words, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
