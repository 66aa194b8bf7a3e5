"""Finding tags: against pictures warped by their exact projection, and the geometry by itself."""

import dataclasses
import math
import threading
import time

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.devices.camera import Frame
from hardware.devices.tracker import Tracker
from hardware.drivers.aruco_tracker import (
    TagDetector,
    TagFinder,
    TagTrackerConfig,
    TagWatch,
    fit_planar,
)
from robolearn.calibration.fiducials import (
    DICTIONARIES,
    Tag,
    black_cells,
    corners,
    dictionary,
    require_tags,
)
from robolearn.calibration.lens import LensConfig
from robolearn.errors import ConfigError, StaleSignalError
from robolearn.geometry import quat_from_rotation
from robolearn.pusht import transform_points, wrap_angle
from tests.waiting import pass_time, wait_for_error, wait_until

TAGS = (Tag(3, (0.02, 0.0), 0.05, 0.7), Tag(8, (-0.04, 0.03), 0.04))
DETECTOR = TagDetector("4x4_50")
CONFIG = TagTrackerConfig("top", TAGS, height_m=0.02, max_age_s=0.3)
ORIGIN = (0.0, 0.0)
# From the front, looking down at 60 degrees.
_R = np.column_stack([[1, 0, 0], [0, -np.sin(np.pi / 3), -0.5], [0, 0.5, -np.sin(np.pi / 3)]])
LENS = LensConfig(
    (600.0, 605.0), (322.0, 238.0), (0.25, -0.1, 0.62), tuple(quat_from_rotation(_R).tolist())
)
BENT = LensConfig(
    LENS.focal_px, LENS.centre_px, LENS.position_m, LENS.quaternion, (-0.2, 0.05, 1e-3, -5e-4)
)


def picture(pose, lens=LENS, name="4x4_50", height_m=0.02, tags=TAGS):
    """What an ideal camera sees of the tags: each warped by its homography (no renderer)."""
    image = np.full((480, 640), 200, dtype=np.uint8)
    for tag in tags:
        drawn = cv2.aruco.generateImageMarker(dictionary(name), tag.id, 240)
        at = transform_points(corners(tag), pose)
        pixels = lens.pixels(np.column_stack([at, np.full(4, height_m)]))
        # Edges of the drawn tag lie half a pixel outside its outer pixels' centres.
        square = np.array([[0, 0], [240, 0], [240, 240], [0, 240]]) - 0.5
        H, _ = cv2.findHomography(square, pixels)
        warped = cv2.warpPerspective(drawn, H, (640, 480), flags=cv2.INTER_AREA, borderValue=255)
        inside = cv2.warpPerspective(np.full_like(drawn, 255), H, (640, 480))
        image = np.where(inside > 127, warped, image)
    return np.repeat(cv2.GaussianBlur(image, (3, 3), 0)[..., None], 3, axis=2)


@pytest.mark.parametrize("pose", [(0.25, 0.3, 0.0), (0.2, 0.22, 2.0), (0.3, 0.26, -1.2)])
def test_the_pose_is_that_of_the_warped_tags(pose):
    fit = TagFinder(CONFIG, LENS).find(DETECTOR.detect(picture(pose)))
    assert fit is not None
    assert fit.tags == 2
    assert np.hypot(*(fit.pose - pose)[:2]) < 1e-3
    assert abs(wrap_angle(fit.pose[2] - pose[2])) < np.deg2rad(1.0)


def test_no_tag_other_tags_and_another_height():
    finder = TagFinder(CONFIG, LENS)
    assert finder.find(DETECTOR.detect(np.full((480, 640, 3), 128, np.uint8))) is None
    assert finder.find(DETECTOR.detect(picture((0.25, 0.3, 0.0), name="5x5_100"))) is None
    wrong = finder.find(DETECTOR.detect(picture((0.25, 0.3, 0.0), height_m=0.1)))
    assert wrong is not None
    assert np.hypot(*(wrong.pose[:2] - (0.25, 0.3))) > 0.01


@settings(max_examples=50)
@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(-3.1, 3.1), st.integers(0, 2**32 - 1))
def test_a_rigid_fit_returns_the_motion(x, y, yaw, seed):
    points = np.random.default_rng(seed).uniform(-0.1, 0.1, (6, 2))
    pose, residual = fit_planar(points, transform_points(points, (x, y, yaw)))
    np.testing.assert_allclose(pose[:2], (x, y), atol=1e-9)
    assert abs(wrap_angle(pose[2] - yaw)) < 1e-7
    assert residual < 1e-9


@pytest.mark.parametrize("lens", [LENS, BENT])
def test_pixels_and_the_plane_are_inverse(lens):
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.uniform(0.1, 0.4, (40, 2)), np.full(40, 0.03)])
    np.testing.assert_allclose(lens.on_plane(lens.pixels(points), 0.03), points[:, :2], atol=1e-5)


def test_rays_that_never_meet_the_plane_are_nan():
    lens_up = LensConfig((500.0, 500.0), (320.0, 240.0), (0.0, 0.0, 0.5), (1.0, 0.0, 0.0, 0.0))
    assert np.isnan(lens_up.on_plane(np.array([[320.0, 240.0]]), 0.0)).all()


def test_cells_of_a_tag_are_those_that_opencv_prints():
    for name in DICTIONARIES:
        cells = black_cells(name, 5)
        assert cells[0].all()
        assert cells[:, -1].all()
        again = cv2.aruco.generateImageMarker(dictionary(name), 5, len(cells) * 10)
        np.testing.assert_array_equal(again[5::10, 5::10] < 128, cells)


def test_wrong_tags_and_lenses_are_named():
    with pytest.raises(ConfigError, match="Did you mean '4x4_50'"):
        require_tags(TAGS, "4x4_5")
    with pytest.raises(ConfigError, match="different ids below 50"):
        require_tags((Tag(1, ORIGIN, 0.1), Tag(1, ORIGIN, 0.1)), "4x4_50")
    with pytest.raises(ConfigError, match="below 50"):
        require_tags((Tag(77, ORIGIN, 0.1),), "4x4_50")
    with pytest.raises(ConfigError, match="size > 0"):
        Tag(1, ORIGIN, 0.0)
    with pytest.raises(ConfigError, match="unit length"):
        LensConfig((1.0, 1.0), ORIGIN, (0.0, 0.0, 0.0), (2.0, 0.0, 0.0, 0.0))
    # Whatever is compared with NaN is false, also what should refuse it.
    with pytest.raises(ConfigError, match="unit length"):
        LensConfig((1.0, 1.0), ORIGIN, (0.0, 0.0, 0.0), (math.nan, 0.0, 0.0, 0.0))
    for focal, distortion in ((math.nan, ()), (math.inf, ()), (1.0, (math.nan,) * 4)):
        with pytest.raises(ConfigError, match="finite numbers"):
            LensConfig((focal, 1.0), ORIGIN, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), distortion)
    with pytest.raises(ConfigError, match="coefficients"):
        LensConfig((1.0, 1.0), ORIGIN, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), (0.1,))


class OnePicture:
    """A camera that shows what a test gives it."""

    def __init__(self):
        self.frame = None

    config = None

    def connect(self):
        pass

    def show(self, image, t_ns):
        index = 0 if self.frame is None else self.frame.index + 1
        self.frame = Frame(index, t_ns, t_ns, 0.0, image)

    def latest(self):
        return self.frame

    def since(self, index):
        return [self.frame]

    def wait(self, index, timeout_s):
        if self.frame is None or self.frame.index <= index:
            pass_time(0.005, "a camera without a new picture")
            raise StaleSignalError("nothing new")
        return self.frame

    def close(self):
        pass


def test_times_are_the_pictures_and_bad_fits_are_refused():
    camera = OnePicture()
    tracker = TagWatch(camera, LENS, "top").follow("block/pose", CONFIG)
    assert isinstance(tracker, Tracker)
    with pytest.raises(StaleSignalError, match="no measurement yet"):
        tracker.latest()
    t_ns = time.monotonic_ns()
    camera.show(picture((0.25, 0.3, 0.0)), t_ns)
    assert tracker.wait(3.0).t_ns == t_ns
    # One tag came off and lies elsewhere.
    loose = (TAGS[0], Tag(8, (-0.09, 0.03), 0.04))
    camera.show(picture((0.25, 0.3, 0.0), tags=loose), time.monotonic_ns())
    camera_blank = np.full((480, 640, 3), 128, np.uint8)
    wait_until(lambda: tracker.counts.refused)
    camera.show(camera_blank, time.monotonic_ns())
    wait_until(lambda: tracker.counts.lost)
    assert (tracker.counts.taken, tracker.counts.refused, tracker.counts.lost) == (1, 1, 1)
    told = r"1 with a bad fit, 1 without .*\[3, 8\]"
    wait_for_error(tracker.latest, StaleSignalError, told)
    tracker.close()


def test_several_objects_in_one_picture_each_by_its_own_tags():
    camera, detected = OnePicture(), []
    watch = TagWatch(camera, LENS, "top")
    block = watch.follow("block/pose", dataclasses.replace(CONFIG, tags=TAGS[:1], max_age_s=2.0))
    hole = watch.follow("hole/pose", dataclasses.replace(CONFIG, tags=TAGS[1:], max_age_s=2.0))
    (detector,) = watch._detectors.values()
    detect = detector.detect
    detector.detect = lambda image: detected.append(1) or detect(image)
    both = np.minimum(
        picture((0.2, 0.3, 0.5), tags=TAGS[:1]), picture((0.32, 0.22, -1.0), tags=TAGS[1:])
    )
    camera.show(both, time.monotonic_ns())
    np.testing.assert_allclose(block.wait(3.0).pose, (0.2, 0.3, 0.5), atol=0.01)
    np.testing.assert_allclose(hole.wait(3.0).pose, (0.32, 0.22, -1.0), atol=0.01)
    assert len(detected) == 1, "a picture is searched once"
    block.close()
    camera.show(picture((0.21, 0.3, 0.5), tags=TAGS[:1]), time.monotonic_ns())
    wait_until(lambda: hole.counts.lost)
    assert (hole.counts.lost, block.counts.taken) == (1, 1)
    hole.close()
    assert "tags top" not in [thread.name for thread in threading.enumerate()]
