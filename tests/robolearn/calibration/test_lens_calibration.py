"""A camera's lens and place from rendered pictures of a board, against what drew them."""

import dataclasses
import json

import cv2
import mujoco
import numpy as np
import pytest

from hardware.cell.load import load_cell
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
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import pose, pose_error, rot_x, rot_y, rot_z
from sim.rendering.cameras import camera_pose
from sim.rendering.cameras import intrinsics as drawn_with
from sim.rendering.renderer import Renderer
from sim.rendering.renderer import View as Drawing
from tests.hardware.lab import CONFIG

BOARD = Board("charuco", (8, 6), 0.03, 0.022)
SIZE = (640, 480)
WORLD = """<mujoco><visual><map znear="0.02"/>
<headlight ambient="0.9 0.9 0.9" diffuse="0 0 0" specular="0 0 0"/></visual>
<asset><texture name="t" type="2d" file="{}"/><material name="m" texture="t" texuniform="false"
 specular="0"/></asset>
<worldbody><body name="b" mocap="true"><geom type="plane" size="0.12 0.09 0.01" material="m"/>
</body>
<camera name="c" pos="0.25 0.05 0.6" xyaxes="1 0 0.05 0 0.9 0.35" fovy="42"/>
</worldbody></mujoco>"""
# Where the lying board's lower left corner is.
AT = (0.14, 0.2, 0.3)


class Studio:
    """A board that is held in front of a camera; ``T`` are poses of the board's frame."""

    def __init__(self, folder):
        made = cv2.aruco.CharucoBoard(
            BOARD.squares,
            BOARD.square_m,
            BOARD.marker_m,
            cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50),
        )
        cv2.imwrite(str(folder / "board.png"), made.generateImage((1280, 960)))
        model = mujoco.MjModel.from_xml_string(WORLD.format(folder / "board.png"))
        self.data, self.drawing = mujoco.MjData(model), Drawing("c", *SIZE)
        mujoco.mj_forward(model, self.data)
        self.K = drawn_with(model, self.drawing)
        self.T_table_camera = camera_pose(model, self.data, "c")
        self._model, self._renderer = model, Renderer(model)

    def picture(self, T_table_board):
        middle = T_table_board @ pose(None, (0.12, 0.09, 0.0))
        self.data.mocap_pos[0] = middle[:3, 3]
        mujoco.mju_mat2Quat(self.data.mocap_quat[0], middle[:3, :3].ravel())
        mujoco.mj_forward(self._model, self.data)
        return self._renderer.image(self.data, self.drawing)

    def held(self, x, y, z, tilt):
        """In front of the camera, ``z`` away, its middle ``x, y`` to the side."""
        turn = rot_x(np.pi + tilt[0]) @ rot_y(tilt[1]) @ rot_z(tilt[2])
        T = self.T_table_camera @ pose(turn, (x, y, z)) @ pose(None, (-0.12, -0.09, 0.0))
        return self.picture(T)

    def lying(self):
        return self.picture(pose(rot_z(AT[2]), (AT[0], AT[1], 0.0)))

    def close(self):
        self._renderer.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    made = Studio(tmp_path_factory.mktemp("studio"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def shown(studio):
    rng = np.random.default_rng(5)
    places = [(x, y) for x in (-0.09, 0.0, 0.09) for y in (-0.06, 0.0, 0.06)]
    return [
        studio.held(x, y, 0.42 + 0.1 * rng.random(), rng.uniform(-0.55, 0.55, 3)) for x, y in places
    ]


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


def test_the_command_writes_the_lens_and_refuses_what_is_too_little(
    studio, shown, tmp_path, capsys
):
    config = tmp_path / "cell.yaml"
    config.write_text(
        CONFIG.read_text()
        + "  cameras:\n    - driver: {kind: fake} # mine\n"
        + "      stream: {name: top, width: 640, height: 480}\n"
    )
    pictures, alike = tmp_path / "pictures", tmp_path / "alike"
    for folder, images in ((pictures, shown), (alike, [studio.lying()] * 8)):
        folder.mkdir()
        for k, image in enumerate(images):
            cv2.imwrite(str(folder / f"{k:02d}.png"), image[..., ::-1])
    lying = tmp_path / "lying.png"
    cv2.imwrite(str(lying), studio.lying()[..., ::-1])
    words = ["calibrate", "camera", "--config", str(config), "--table-picture", str(lying)]
    words += ["--at", *map(str, AT), "--json"]
    assert main([*words, "--pictures", str(pictures), "--write"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["views"] == 9
    lens = load_cell(config).cameras[0].lens
    assert max(pose_error(lens.T_table_camera, studio.T_table_camera)) < 0.006
    np.testing.assert_allclose(told["position_m"], lens.position_m, atol=1e-5)
    assert np.array(told["T_base_camera"]).shape == (4, 4)
    assert "# mine" in config.read_text()
    # The lens that is there, and only the place.
    assert main([*words, "--keep-lens"]) == 0
    kept = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(kept["position_m"], told["position_m"], atol=1e-4)
    for wrong, why in (
        (["--pictures", str(alike)], "at least"),
        (["--pictures", str(tmp_path)], "1 picture(s)"),
        (["--pictures", str(pictures), "--squares", "7", "5"], "picture(s)"),
        (["--pictures", str(pictures), "--camera", "topp"], "Did you mean 'top'"),
        (["--board", "tags"], "found by tags: []"),
    ):
        assert main([*words, *wrong]) == 2
        assert why in capsys.readouterr().err


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
