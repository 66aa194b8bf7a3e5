"""A lens and the frame it is given in."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hardware.drivers.aruco_tracker import TagFinder, TagTrackerConfig
from robolearn.calibration.fiducials import Tag
from robolearn.calibration.lens import LensConfig
from robolearn.config import from_dict, to_dict
from robolearn.errors import ConfigError

OVER = LensConfig((500.0, 500.0), (320.0, 240.0), (0.2, 0.2, 0.5), (0.0, 1.0, 0.0, 0.0))
CARRIED = dataclasses.replace(OVER, frame="flange")


def test_the_frame_is_kept_and_an_unknown_one_is_refused() -> None:
    assert OVER.frame == "table"
    assert from_dict(LensConfig, to_dict(CARRIED), "x") == CARRIED
    with pytest.raises(ConfigError, match=r"table.*flange"):
        from_dict(LensConfig, {**to_dict(OVER), "frame": "ceiling"}, "x")


def test_a_carried_camera_has_a_pose_in_its_frame_and_none_over_the_table() -> None:
    assert np.array_equal(CARRIED.T_frame_camera, OVER.T_table_camera)
    points = np.array([[0.2, 0.2, 0.0], [0.25, 0.1, 0.0]])
    assert np.array_equal(CARRIED.pixels(points), OVER.pixels(points))
    for ask in (lambda: CARRIED.T_table_camera, lambda: CARRIED.on_plane(np.zeros((1, 2)), 0.0)):
        with pytest.raises(ConfigError, match="fixed to the flange and moves with the arm"):
            ask()


def test_tags_are_not_found_with_a_camera_that_moves() -> None:
    config = TagTrackerConfig("top", (Tag(0, (0.0, 0.0), 0.02),), 0.03)
    TagFinder(config, OVER)
    with pytest.raises(ConfigError, match=r"lens\.frame: table"):
        TagFinder(config, CARRIED)
