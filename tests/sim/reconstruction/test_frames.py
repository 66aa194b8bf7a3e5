"""Where pictures were taken is found from a board on the table, and from an arm that carries the
camera."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.capture.folder import read_capture
from robolearn.errors import RobolearnError
from robolearn.geometry import pose_error
from sim.reconstruction.frames import posed_frames
from sim.reconstruction.pipeline import place_scan
from tests.sim.reconstruction.worlds import camera_poses, draw, shoot

SIZE, VIEWS = (480, 360), 8


def truth(seed: int) -> list[np.ndarray]:
    return camera_poses(VIEWS, np.random.default_rng([seed, 7]))


@pytest.mark.parametrize("poses", [pytest.param("board", marks=pytest.mark.slow), "flange"])
def test_a_board_on_the_table_places_the_pictures(poses: str, tmp_path: Path) -> None:
    world = draw(5, ("box",))
    folder = shoot(tmp_path / "c", world, views=VIEWS, size=SIZE, poses=poses)
    capture = read_capture(folder)
    scan = place_scan(capture)
    assert len(scan.frames) >= 6
    by_name = dict(zip([f.name for f in capture.frames], truth(5), strict=True))
    off = np.array([pose_error(f.T_table_camera, by_name[f.name]) for f in scan.frames])
    # One view of a half hidden board says less than all of them, which an arm ties together.
    most_m = 0.012 if poses == "board" else 0.004
    assert off[:, 0].max() < most_m
    assert np.median(off[:, 0]) < 0.004
    assert np.degrees(off[:, 1].max()) < 2.0 * most_m / 0.012
    if poses == "flange":
        assert any("on the flange found from" in note for note in scan.notes)


def test_pictures_that_nobody_can_place_are_refused(capture_folder: Path) -> None:
    capture = read_capture(capture_folder)
    frames = [dataclasses.replace(f, T_world_camera=None) for f in capture.frames]
    with pytest.raises(RobolearnError, match="no picture of the scan can be placed"):
        posed_frames(capture, frames)
    camera = dataclasses.replace(capture.config.cameras["eye"], lens=None)
    config = dataclasses.replace(capture.config, cameras={"eye": camera})
    with pytest.raises(RobolearnError, match="has no lens"):
        posed_frames(dataclasses.replace(capture, config=config), frames)
