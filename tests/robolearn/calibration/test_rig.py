"""Lenses and places of several cameras are found together; wrong pictures are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robolearn.calibration.boards import View, on_a_line
from robolearn.calibration.rig import calibrate_rig
from robolearn.calibration.rig_fit import Chain, State, linear
from robolearn.errors import DataError
from robolearn.geometry import pose, pose_error, rot_x
from tests.robolearn.calibration.rigs import CORNERS, draw_rig


def test_slopes_are_those_of_the_residuals() -> None:
    cameras, views, true = draw_rig(0, 8)
    del cameras
    view = views[1]
    assert view.T_base_tool is not None
    lens, place = true.cameras["top"]
    state = State({"top": lens}, {"top": place, "board": true.T_tool_board}, frozenset())
    chain = Chain(view.view, "top", "top", "board", np.eye(4), view.T_base_tool)
    here, columns = linear(chain, state), state.columns()
    for name, at in columns.items():
        for k in range(at.stop - at.start):
            step = np.zeros(20)
            step[at.start + k] = 1e-6
            apart = linear(chain, state.stepped(step, columns)).left
            apart = (apart - linear(chain, state.stepped(-step, columns)).left) / 2e-6
            np.testing.assert_allclose(here.slopes[name][:, :, k], apart, rtol=1e-3, atol=1e-2)


def test_a_rig_is_found_and_a_wrong_pose_and_a_blurred_picture_are_named() -> None:
    cameras, views, true = draw_rig(1, 16)
    wrong, blurred = views[0], views[5]
    rng = np.random.default_rng(0)
    corners = blurred.view.pixels + rng.normal(0.0, 4.0, blurred.view.pixels.shape)
    views[0] = replace(wrong, T_base_tool=wrong.T_base_tool @ pose(rot_x(0.4), (0.05, 0.0, 0.0)))
    views[5] = replace(blurred, view=View(CORNERS, corners))
    found = calibrate_rig(cameras, views)
    assert found.frame == "base"
    assert set(found.outliers) == {wrong.name, blurred.name}
    assert "the arm's pose is wrong" in found.outliers[wrong.name]
    for camera in found.cameras:
        lens, place = true.cameras[camera.name]
        np.testing.assert_allclose(camera.lens[:2], lens[:2], rtol=0.003)
        assert camera.place is not None
        distance, angle = pose_error(camera.place.T, place)
        assert distance < 0.002
        assert np.degrees(angle) < 0.3
        assert 0.3 < camera.rms_px < camera.held_out_px < 0.7
    assert found.T_frame_board is not None
    assert pose_error(found.T_frame_board.T, true.T_base_board)[0] < 0.001


def test_cameras_that_stand_are_placed_by_the_board_that_both_see_in_a_hand() -> None:
    cameras, views, true = draw_rig(2, 10, held=True)
    found = calibrate_rig(cameras, views)
    assert found.frame == "camera"
    one, two = (c for c in found.cameras)
    assert one.place is not None
    assert two.place is not None
    between = np.linalg.inv(true.cameras[one.name][1]) @ true.cameras[two.name][1]
    distance, angle = pose_error(np.linalg.inv(one.place.T) @ two.place.T, between)
    assert distance < 0.005
    assert np.degrees(angle) < 0.5


def test_a_camera_that_nothing_ties_is_said() -> None:
    cameras, views, _ = draw_rig(3, 9)
    lone = [replace(v, held="hand", T_base_tool=None) if v.camera == "top" else v for v in views]
    found = calibrate_rig(cameras, lone)
    (note,) = found.notes
    assert "camera 'top': no picture tells where it is" in note
    assert next(c for c in found.cameras if c.name == "top").place is None


def test_too_few_pictures_name_the_camera() -> None:
    cameras, views, _ = draw_rig(4, 4)
    with pytest.raises(DataError, match="camera 'wrist': the board was found in 4 picture"):
        calibrate_rig(cameras, views)


@pytest.mark.parametrize("rows", [list(range(6)), [0, 1, 2, 3, 4, 11]])
def test_a_picture_whose_corners_lie_on_a_line_is_left_out_and_named(rows: list[int]) -> None:
    """All but one is as bad: no homography, and OpenCV's solver finds nothing."""
    cameras, views, _ = draw_rig(6, 9)
    whole = views[4]
    views[4] = replace(whole, view=View(whole.view.points[rows], whole.view.pixels[rows]))
    assert on_a_line(views[4].view.points) == (rows[-1] == 5)
    found = calibrate_rig(cameras, views)
    assert set(found.outliers) == {whole.name}
