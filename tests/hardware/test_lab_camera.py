"""The lab's camera and the tracker that looks through it: a block nobody told the pose of."""

import time

import numpy as np
import pytest

from hardware.camera import StreamConfig, StreamedCamera
from hardware.drivers.aruco_tracker import TagTracker, TagTrackerConfig
from hardware.drivers.mjpeg_camera import MjpegConfig
from hardware.emulators.launch import LabProcess
from hardware.lens import LensConfig
from robolearn.errors import RobotConnectionError, RobotError, StaleSignalError
from robolearn.pusht import wrap_angle
from robolearn.tags import Tag
from tests.hardware.lab import address

TAGS = (
    Tag(0, (-0.044, -0.015), 0.024),
    Tag(1, (0.044, -0.015), 0.024),
    Tag(2, (0.0, -0.104), 0.024),
)
LENS = LensConfig((625.221, 625.221), (319.5, 239.5), (0.256, 0.256, 0.75), (0.0, 1.0, 0.0, 0.0))
STREAM = StreamConfig("top", 640, 480, rate_hz=20.0, clock="monotonic", max_age_s=1.5)
LAB = """
lab:
  world: kinematic
  cameras: [{device: {name: top, port: %d, rate_hz: 15}}]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    config = tmp_path_factory.mktemp("lab") / "lab.yaml"
    config.write_text(LAB % 0)
    with LabProcess(config, address=address(41)) as made:
        yield made


@pytest.fixture
def camera(lab):
    where = lab.where
    url = f"http://{where.address}:{where.cameras['top']}/top"
    config = MjpegConfig(url, timeout_s=2.0)
    made = StreamedCamera(STREAM, lambda: config.build(STREAM))
    made.connect()
    yield made
    made.close()


def test_the_tracker_finds_the_block_within_a_millimetre(lab, camera):
    tracker = TagTracker(TagTrackerConfig("top", TAGS, 0.031, max_age_s=1.5), camera, LENS)
    errors = []
    with lab.where.connect() as door:
        for pose in ((0.2, 0.3, 0.4), (0.33, 0.17, -2.5), (0.256, 0.256, 3.1)):
            door.place("block", pose)
            placed_ns = time.monotonic_ns()
            # Before the picture was taken the lab's thread had to place the block.
            while tracker.wait(5.0).t_ns < placed_ns + 20_000_000:
                time.sleep(0.01)
            seen = tracker.latest()
            assert seen.t_ns < seen.received_ns
            errors.append(seen.pose - np.array(pose))
    tracker.close()
    xy = np.linalg.norm(np.array(errors)[:, :2], axis=1)
    yaw = np.abs(wrap_angle(np.array(errors)[:, 2]))
    assert xy.max() < 1e-3, f"{1e3 * xy} mm"
    assert np.degrees(yaw.max()) < 1.0, f"{np.degrees(yaw)} deg"
    assert tracker.counts.taken >= 3
    assert len(tracker.drain()) == tracker.counts.taken


def test_faults_of_the_camera_reach_whoever_asks_the_tracker(lab, camera):
    tracker = TagTracker(TagTrackerConfig("top", TAGS, 0.031, max_age_s=1.5), camera, LENS)
    tracker.wait(5.0)
    with lab.where.connect() as door:
        with pytest.raises(RobotError, match="no camera 'wrist'"):
            door.fault("camera_black", camera="wrist", seconds=1.0)
        door.fault("camera_frozen", camera="top", seconds=20.0)
        deadline = time.monotonic() + 10.0
        told = ""
        while "frozen" not in told and time.monotonic() < deadline:
            try:
                tracker.latest()
            except StaleSignalError as error:
                told = str(error)
            time.sleep(0.02)
        assert "frozen" in told
        door.fault("camera_frozen", camera="top", seconds=0.0)
    tracker.close()


def test_a_taken_port_of_a_camera_is_named(lab, tmp_path):
    config = tmp_path / "lab.yaml"
    config.write_text(LAB % lab.where.cameras["top"])
    with pytest.raises(RobotConnectionError, match=r"camera 'top': cannot listen .*ss -ltnp"):
        LabProcess(config, address=lab.where.address)
