"""The lab's camera: what it draws is where its calibration says, in the state it was given."""

import cv2
import numpy as np
import pytest

from robolearn.calibration.fiducials import Tag, corners, dictionary
from robolearn.errors import ConfigError
from robolearn.geometry import inverse, pose, rot_z
from robolearn.pusht import transform_points
from sim.plants.pusht import PlantConfig
from sim.plants.table_view import TAG_HEIGHT_M, TableView, TableViewConfig

PHYSICS = PlantConfig()
POSE = np.array([0.3, 0.2, 0.6])


def view_of(config, width=640, height=480):
    return TableView(
        config,
        T_base_table=pose(rot_z(PHYSICS.heading_rad), PHYSICS.origin_m),
        tool_length_m=PHYSICS.tool_length_m,
        width=width,
        height=height,
    )


def drawn(config, at=POSE, **size):
    view = view_of(config, **size)
    image = view.draw(np.array(PHYSICS.home), {"block": at})
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
