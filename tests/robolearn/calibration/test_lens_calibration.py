"""A camera's lens and place from rendered pictures of a board, against what drew them."""

import dataclasses

import cv2
import numpy as np
import pytest

from robolearn.calibration.boards import (
    Board,
    BoardFinder,
    View,
    different,
    intrinsics,
    on_table,
    place,
)
from robolearn.calibration.fiducials import Tag
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import pose_error, rot_x, rot_y
from tests.robolearn.calibration.studio import AT, BOARD, SIZE, Studio


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    made = Studio(tmp_path_factory.mktemp("studio"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def shown(studio):
    return studio.shown()


def test_the_lens_is_that_of_the_camera_that_drew(studio, shown):
    finder = BoardFinder(BOARD)
    views = [finder.find(image) for image in shown]
    assert all(v is not None and len(v.points) >= 20 for v in views)
    found = intrinsics(views, SIZE)
    np.testing.assert_allclose(found.focal_px, studio.K[[0, 1], [0, 1]], rtol=4e-3)
    np.testing.assert_allclose(found.centre_px, studio.K[:2, 2], atol=3.0)
    assert np.abs(found.distortion).max() < 0.05
    assert found.rms_px < 0.3
    assert len(found.view_rms_px) == 9
    assert 0.0 < max(found.focal_error_px) < 5.0
    seen = finder.find(studio.lying())
    placed = place(*on_table(seen, AT), found.focal_px, found.centre_px, found.distortion)
    angle, distance = sorted(pose_error(placed.lens.T_table_camera, studio.T_table_camera))[::-1]
    assert max(angle, distance) < 0.006
    assert placed.rms_m < 0.5e-3
    # With the exact lens only the picture's noise is left.
    fx, fy, centre = studio.K[0, 0], studio.K[1, 1], tuple(studio.K[:2, 2])
    exact = place(*on_table(seen, AT), (fx, fy), centre, ())
    assert max(pose_error(exact.lens.T_table_camera, studio.T_table_camera)) < 0.002


def synthetic(count, tilt_rad, spread=1.0, distortion=(0.0, 0.0, 0.0, 0.0)):
    rng = np.random.default_rng(1)
    columns, rows = np.meshgrid(np.arange(7) * 0.03, np.arange(5) * 0.03)
    points = np.stack([columns, rows, 0 * rows], axis=-1).reshape(-1, 3)
    K = np.array([[620.0, 0, 320], [0, 620, 240], [0, 0, 1]])
    views = []
    for _ in range(count):
        turn = rot_x(np.pi + rng.uniform(-1, 1) * tilt_rad) @ rot_y(rng.uniform(-1, 1) * tilt_rad)
        move = np.array([*rng.uniform(-0.12, 0.12, 2) * spread, rng.uniform(0.4, 0.6)])
        move -= turn @ points.mean(axis=0)
        at, _ = cv2.projectPoints(points, cv2.Rodrigues(turn)[0], move, K, np.array(distortion))
        views.append(View(points, at.reshape(-1, 2) + rng.normal(0, 0.1, (35, 2))))
    return views


def test_distortion_is_found_and_views_that_tell_too_little_are_refused():
    bent = (-0.2, 0.05, 0.001, -0.002)
    found = intrinsics(synthetic(20, 0.6, distortion=bent), SIZE)
    np.testing.assert_allclose(found.distortion, bent, atol=0.03)
    np.testing.assert_allclose(found.focal_px, 620.0, rtol=5e-3)
    for views, why in (
        (synthetic(5, 0.6), r"5 picture\(s\)"),
        (synthetic(12, 0.6, spread=0.05), "covered"),
        (synthetic(12, 0.03), "too alike"),
    ):
        with pytest.raises(DataError, match=why):
            intrinsics(views, SIZE)
    view = synthetic(1, 0.0)[0]
    assert different(view, [], 640)
    assert not different(view, [view], 640)
    scattered = np.random.default_rng(0).uniform(0, 480, (35, 2))
    with pytest.raises(DataError, match="no place"):
        place(view.points, scattered, (620.0, 620.0), (320.0, 240.0), ())
    with pytest.raises(DataError, match="at least 6"):
        place(view.points[:3], view.pixels[:3], (620.0, 620.0), (320.0, 240.0), ())
    with pytest.raises(ConfigError, match="smaller than its squares"):
        dataclasses.replace(BOARD, marker_m=0.03)
    with pytest.raises(ConfigError, match="3 x 3"):
        Board("chessboard", (2, 5), 0.03)


def test_chessboards_and_tags_are_found_with_y_up():
    squares = np.indices((6, 8)).sum(axis=0) % 2 == 1
    print_ = np.full((480, 640), 255, np.uint8)
    print_[120:360, 160:480] = np.where(np.kron(squares, np.ones((40, 40))), 255, 0)
    view = BoardFinder(Board("chessboard", (8, 6), 0.02)).find(np.dstack([print_] * 3))
    assert view is not None
    assert len(view.points) == 35
    # 2000 px per metre; pixel rows go down.
    px = view.points[:, :2] * 2000.0
    expected = np.column_stack([159.5 + px[:, 0], 359.5 - px[:, 1]])
    turned = np.column_stack([479.5 - px[:, 0], 119.5 + px[:, 1]])
    error = min(np.abs(view.pixels - e).max() for e in (expected, turned))
    assert error < 1.0
    tags = (Tag(3, (0.05, 0.05), 0.04), Tag(7, (0.15, 0.05), 0.04))
    sheet = np.full((200, 400), 255, np.uint8)
    marks = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50)
    for tag in tags:
        x, y = (round(1000 * v) for v in tag.at_m)
        drawn = cv2.aruco.generateImageMarker(marks, tag.id, 40)
        sheet[150 - y - 20 : 150 - y + 20, x - 20 : x + 20] = drawn
    seen = BoardFinder(Board("tags", tags=tags)).find(np.dstack([sheet] * 3))
    assert seen is not None
    px = seen.points[:, :2] * 1000.0
    expected = np.column_stack([px[:, 0], 150 - px[:, 1]]) - 0.5
    np.testing.assert_allclose(seen.pixels, expected, atol=1.0)
