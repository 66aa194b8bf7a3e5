"""The lab's camera: what it draws is where its calibration says, in the state it was given."""

import dataclasses

import cv2
import numpy as np
import pytest

from robolearn.arms.models import UR5E
from robolearn.calibration.boards import Board, BoardFinder
from robolearn.calibration.fiducials import Tag, corners, dictionary
from robolearn.errors import ConfigError
from robolearn.geometry import inverse, pose, rot_z
from robolearn.pusht import transform_points
from sim.plants.printed import PrintedBoard
from sim.plants.pusht import PlantConfig
from sim.plants.table_view import TAG_HEIGHT_M, TableView, TableViewConfig

PHYSICS = PlantConfig()
POSE = np.array([0.3, 0.2, 0.6])


def view_of(config, width=640, height=480, board=None):
    return TableView(
        config,
        T_base_table=pose(rot_z(PHYSICS.heading_rad), PHYSICS.origin_m),
        tool_length_m=PHYSICS.tool_length_m,
        width=width,
        height=height,
        board=board,
    )


def drawn(config, at=POSE, **size):
    view = view_of(config, **size)
    image = view.look(np.array(PHYSICS.home), {"block": at}).picture
    seen = view.calibration()
    view.close()
    view.close()
    return image, seen


OBLIQUE = TableViewConfig(
    eye_m=(0.3, -0.3, 0.7), target_m=(0.26, 0.25, 0.0), fovy_deg=34.0, near_m=0.05
)


@pytest.mark.parametrize("config", [TableViewConfig(), OBLIQUE])
def test_tags_are_where_the_calibration_projects_them(config):
    image, seen = drawn(config, width=960, height=720)
    found, ids, _ = cv2.aruco.ArucoDetector(dictionary(config.dictionary)).detectMarkers(
        cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    )
    assert ids is not None
    assert len(ids) >= 2
    by_id = {t.id: t for t in config.tags}
    T = inverse(seen.T_body_camera)
    for points, tag_id in zip(found, ids.ravel(), strict=True):
        at = transform_points(corners(by_id[int(tag_id)]), POSE)
        in_camera = T @ np.column_stack([at, np.full(4, TAG_HEIGHT_M), np.ones(4)]).T
        wanted = (seen.K @ in_camera[:3])[:2] / in_camera[2]
        assert np.abs(points.reshape(4, 2) - wanted.T).max() < 1.5


def test_the_near_plane_takes_the_arm_away_and_leaves_the_tool():
    config = TableViewConfig()
    cut, _ = drawn(config)
    whole, _ = drawn(TableViewConfig(near_m=0.02))
    changed = np.abs(cut.astype(int) - whole.astype(int)).max(axis=2) > 30
    assert changed.mean() > 0.03, "the arm covers part of the table"
    blue = (cut[..., 2] > cut[..., 0].astype(int) + 40) & (cut[..., 2] > 60)
    rows, columns = np.nonzero(blue)
    assert len(rows) > 50, "the tool is still there"
    # Home is over the table's (0.256, 0.400) m: in the upper half, in the middle.
    assert rows.mean() < 200
    assert abs(columns.mean() - 320) < 30


def test_wrong_views_are_named():
    with pytest.raises(ConfigError, match="near_m"):
        TableViewConfig(near_m=0.0)
    with pytest.raises(ConfigError, match="different ids"):
        TableViewConfig(tags=(Tag(0, (0.0, 0.0), 0.02), Tag(0, (0.1, 0.0), 0.02)))
    with pytest.raises(ConfigError, match="no picture"):
        view_of(TableViewConfig(up=(0.0, 0.0, 1.0)))


BOARD = Board("charuco", (5, 4), 0.03, 0.022, "5x5_100")
# On the table turned by half a radian; beside the flange, towards a camera above it.
PRINTED = (
    PrintedBoard(BOARD, "table", (0.12, 0.08, 0.03), (0.968912, 0.0, 0.0, 0.247404)),
    PrintedBoard(BOARD, "flange", (0.05, 0.06, -0.02), (0.0, 1.0, 0.0, 0.0)),
    PrintedBoard(Board("chessboard", (5, 4), 0.03), "table", (0.12, 0.08, 0.03)),
)


@pytest.mark.parametrize("printed", PRINTED, ids=lambda p: f"{p.board.kind} on the {p.where}")
def test_a_board_is_found_where_it_was_put(printed):
    """Pixels of every corner, with the camera's own calibration and the arm's kinematics."""
    config = TableViewConfig(near_m=0.02, eye_m=(0.256, 0.25, 0.9), target_m=(0.25, 0.28, 0.0))
    q = np.array(PHYSICS.home)
    view = view_of(config, 960, 720, board=printed)
    try:
        look, seen = view.look(q, {"block": np.array([0.45, 0.08, 0.0])}), view.calibration()
    finally:
        view.close()
    found = BoardFinder(printed.board).find(look.picture)
    assert found is not None
    assert len(found.points) == 4 * 3
    T = printed.T_where_board
    if printed.where == "flange":
        T = inverse(pose(rot_z(PHYSICS.heading_rad), PHYSICS.origin_m)) @ UR5E.fk(q) @ T
    points = np.column_stack([found.points, np.ones(len(found.points))])
    in_camera = inverse(seen.T_body_camera) @ T @ points.T
    wanted = ((seen.K @ in_camera[:3])[:2] / in_camera[2]).T
    off = np.linalg.norm(found.pixels - wanted, axis=1)
    if printed.board.kind == "chessboard":
        # Which of its ends is the left one cannot be seen.
        off = np.minimum(off, np.linalg.norm(found.pixels - wanted[::-1], axis=1))
    # Edges are drawn without half tones, and corners of ChArUco boards are found half a pixel to
    # the lower right of them.
    assert off.max() < 1.5


def test_a_board_that_cannot_be_printed_is_refused():
    with pytest.raises(ConfigError, match="'charuco' or a 'chessboard'"):
        PrintedBoard(Board("tags", tags=(Tag(0, (0.0, 0.0), 0.02),)))
    with pytest.raises(ConfigError, match="has 60 tags, '4x4_50' has 50"):
        PrintedBoard(Board("charuco", (12, 10), 0.03, 0.02))
    alike = PrintedBoard(dataclasses.replace(BOARD, dictionary="4x4_50"))
    with pytest.raises(ConfigError, match=r"tags \[0, 1, 2\] of '4x4_50' are on the block and on"):
        alike.require_other_tags(TableViewConfig().tags, "4x4_50")
    with pytest.raises(ConfigError, match="unit length"):
        PrintedBoard(BOARD, quaternion=(1.0, 1.0, 0.0, 0.0))
