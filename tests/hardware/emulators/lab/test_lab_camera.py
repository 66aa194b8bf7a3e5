"""The lab's camera and the tracker that looks through it: a block nobody told the pose of."""

import dataclasses
import itertools
import json
import time

import numpy as np
import pytest

from hardware.cell.spec import EVENT
from hardware.devices.camera import StreamConfig, StreamedCamera
from hardware.devices.camera_config import CameraConfig
from hardware.drivers.aruco_tracker import TagTrackerConfig, TagWatch
from hardware.drivers.cameras.mjpeg import MjpegConfig
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv
from hardware.streams.tracker_streams import TrackedConfig
from robolearn.agents.replay import ReplayAgent
from robolearn.calibration.fiducials import Tag
from robolearn.calibration.lens import LensConfig
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import (
    CameraError,
    ConfigError,
    RobotConnectionError,
    RobotError,
    SpecMismatchError,
    StaleSignalError,
)
from robolearn.operations.lab.cameras import LabCameraConfig
from robolearn.pusht import BLOCK, TOOL, wrap_angle
from robolearn.runtime import run_episode
from tests.hardware.lab import address
from tests.hardware.real_cell import CONDITION, StillScorer, cell_at
from tests.waiting import paced, pass_time, wait_for_error, wait_until

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
  devices: {tracker: {port: 30127}}
  cameras:
    - device: {name: top, port: 0, rate_hz: 15, depth: {}}
    - {device: {name: film, port: 0, width: 64, height: 48}, film: 4}
"""


@pytest.fixture(scope="module")
def truth_file(tmp_path_factory):
    return tmp_path_factory.mktemp("truth") / "truth.json"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, truth_file):
    config = tmp_path_factory.mktemp("lab") / "lab.yaml"
    config.write_text(LAB)
    with LabProcess(config, address=address(41), arguments=("--truth", str(truth_file))) as made:
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


def test_depth_of_the_table_and_how_the_camera_really_sees(lab, truth_file):
    where = lab.where
    url = f"http://{where.address}:{where.cameras['top']}/top"
    stream = dataclasses.replace(STREAM, depth=True)
    made = StreamedCamera(stream, lambda: MjpegConfig(url, timeout_s=2.0).build(stream))
    made.connect()
    seen = made.latest()
    made.close()
    # The camera hangs 0.75 m over the table; noise there is 1.4 mm, the first columns see nothing.
    table = seen.depth[10:60, 560:620]
    assert abs(float(np.median(table[table > 0])) - 750.0) < 2.0
    assert (table > 0).mean() > 0.9
    truth = json.loads(truth_file.read_text())
    camera = truth["cameras"]["top"]
    assert camera["where"] == "table"
    np.testing.assert_allclose(np.diag(camera["K"])[:2], LENS.focal_px, rtol=1e-5)
    np.testing.assert_allclose(np.array(camera["T_where_camera"])[:3, 3], LENS.position_m)


def test_a_film_is_the_cameras_own_in_a_loop_and_the_lab_says_so(lab):
    where = lab.where
    assert list(where.films) == ["film"]
    url = f"http://{where.address}:{where.cameras['film']}/film"
    stream = dataclasses.replace(STREAM, width=64, height=48, rate_hz=30.0)
    made = StreamedCamera(stream, lambda: MjpegConfig(url, timeout_s=2.0).build(stream))
    made.connect()
    frames = wait_until(lambda: made.since(8) and made.since(-1))
    made.close()
    for before, after in itertools.pairwise(frames):
        assert not np.array_equal(before.image, after.image)
    for first, again in zip(frames, frames[4:], strict=False):
        np.testing.assert_array_equal(first.image, again.image)
        assert again.t_ns - first.t_ns == pytest.approx(4e9 / 30, abs=1e5)
    with where.connect() as door:
        told = door.call("stats")["cameras"]
    assert set(told) == {"top", "film"}
    assert told["film"]["sent"] >= len(frames)
    assert told["film"]["skipped"] == told["film"]["unread"] == 0


@pytest.mark.parametrize("film", [1, 121, -3])
def test_films_of_odd_lengths_are_refused(film):
    with pytest.raises(ConfigError, match=rf"'top': a film has 2 to 120 .*got {film}"):
        LabCameraConfig(film=film)


def test_the_tracker_finds_the_block_within_a_millimetre(lab, camera):
    config = TagTrackerConfig("top", TAGS, 0.031, max_age_s=1.5)
    tracker = TagWatch(camera, LENS, "top").follow(BLOCK, config)
    errors = []
    with lab.where.connect() as door:
        for pose in ((0.2, 0.3, 0.4), (0.33, 0.17, -2.5), (0.256, 0.256, 3.1)):
            door.place("block", pose)
            placed_ns = time.monotonic_ns()
            # Before the picture was taken the lab's thread had to place the block.
            wait_until(lambda at_ns=placed_ns + 20_000_000: tracker.wait(5.0).t_ns >= at_ns)
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
    config = TagTrackerConfig("top", TAGS, 0.031, max_age_s=1.5)
    tracker = TagWatch(camera, LENS, "top").follow(BLOCK, config)
    tracker.wait(5.0)
    with lab.where.connect() as door:
        with pytest.raises(RobotError, match="no camera 'wrist'"):
            door.fault("camera_black", camera="wrist", seconds=1.0)
        door.fault("camera_frozen", camera="top", seconds=20.0)
        wait_for_error(tracker.latest, StaleSignalError, "frozen")
        door.fault("camera_frozen", camera="top", seconds=0.0)
    tracker.close()


def seeing_cell(lab, **changes):
    """The lab's cell, whose only sense of the block is the camera."""
    where = lab.where
    url = f"http://{where.address}:{where.cameras['top']}/top"
    driver = {"kind": "mjpeg", "url": url, "timeout_s": 2.0}
    camera = CameraConfig(driver, STREAM, LENS, recorded=(96, 72))
    by_tags = {BLOCK: TrackedConfig(tags=TagTrackerConfig("top", TAGS, 0.031, max_age_s=1.5))}
    given = {"cameras": (camera,), "trackers": by_tags, "align": "top", **changes}
    return dataclasses.replace(cell_at(where.address), **given)


@pytest.fixture(scope="module")
def env(lab):
    with lab.where.connect() as door:

        def place(condition):
            door.place("block", condition.poses[BLOCK])
            return "placed"

        made = RealEnv(seeing_cell(lab), place=place, scorer=StillScorer())
        yield made
        made.close()


def test_an_episode_through_a_camera_is_recorded_and_aligned(env, tmp_path):
    store = EpisodeStore.create(tmp_path / "store")
    action = {TOOL: np.tile([0.2, 0.38], (6, 1))}
    agent = ReplayAgent(action, env.spec.actions)
    with EpisodeRecorder(store, spec=env.spec, kind="deployment", autosave=False) as recorder:
        result = run_episode(env, agent, None, [recorder], CONDITION, max_steps=6)
        env.hold()
        episode = store.read(recorder.keep())
    off = result.reset.achieved[BLOCK] - np.array(CONDITION.poses[BLOCK])
    assert np.abs(off).max() < 0.01
    pictures = episode.streams["top/image"]
    assert pictures.value.shape[1:] == (72, 96, 3)
    assert len(np.unique(pictures.t_ns)) == len(pictures.t_ns)
    assert (np.diff(pictures.t_ns) > 0).all()
    np.testing.assert_allclose(episode.observed(BLOCK)[-1], CONDITION.poses[BLOCK], atol=0.01)


def test_other_signals_are_shown_as_of_the_picture(env):
    env.reset(CONDITION, np.random.default_rng(0))
    told: dict[str, set[int]] = {s.name: set() for s in env.spec.signals}
    for _ in range(3):
        seen = env.observe()
        t_ns = seen.samples["top/image"].t_ns
        for name in set(seen.samples) - {"top/image", EVENT.name, BLOCK}:
            assert seen.samples[name].t_ns == t_ns, name
        assert seen.samples[BLOCK].t_ns <= t_ns
        env.advance()
        drained = env.drain()
        for name, sample in seen.samples.items():
            # A slow camera's picture is shown more than once, and handed out once.
            told[name].update(drained.signals[name].t_ns.tolist())
            assert sample.t_ns in told[name], name
            assert (np.diff(drained.signals[name].t_ns) > 0).all()
    env.hold()


def observe_for(env, seconds):
    for _ in paced(20, round(20 * seconds)):
        env.observe()


def test_a_camera_that_turns_black_stops_the_loop(env, lab):
    env.reset(CONDITION, np.random.default_rng(0))
    with lab.where.connect() as door:
        door.fault("camera_black", camera="top", seconds=2.0)
        with pytest.raises(CameraError, match="black"):
            observe_for(env, 8.0)
    env.hold()


def test_an_unplugged_camera_ends_the_run_and_returns_only_by_the_operator(env, lab):
    env.reset(CONDITION, np.random.default_rng(0))
    with lab.where.connect() as door:
        door.fault("camera_drop", camera="top", seconds=0.5)
        with pytest.raises((RobotConnectionError, StaleSignalError)):
            observe_for(env, 8.0)
        env.hold()
    pass_time(0.6, "a camera that is plugged in again is no recovery")
    with pytest.raises((RobotConnectionError, StaleSignalError)):
        env.observe()
    env.cameras.reconnect()
    before_ns = time.monotonic_ns()
    (tracker,) = env.trackers
    wait_until(lambda: tracker.wait(5.0).t_ns >= before_ns)
    env.reset(CONDITION, np.random.default_rng(0))
    env.hold()


def test_cells_with_wrong_cameras_are_refused(lab):
    small = dataclasses.replace(STREAM, width=320, height=240)
    camera = dataclasses.replace(seeing_cell(lab).cameras[0], stream=small)
    with pytest.raises(SpecMismatchError, match="sends 640 x 480 px, expected 320 x 240"):
        RealEnv(seeing_cell(lab, cameras=(camera,)), place=str, scorer=StillScorer())
    with pytest.raises(ConfigError, match="Did you mean 'top'"):
        seeing_cell(lab, align="tob")
    blind = dataclasses.replace(seeing_cell(lab).cameras[0], lens=None)
    with pytest.raises(ConfigError, match="add 'lens'"):
        RealEnv(seeing_cell(lab, cameras=(blind,)), place=str, scorer=StillScorer())
    twice = seeing_cell(lab).cameras * 2
    with pytest.raises(ConfigError, match="more than once"):
        RealEnv(seeing_cell(lab, cameras=twice), place=str, scorer=StillScorer())
    odd = dataclasses.replace(blind, driver={"kind": "mjpg"})
    with pytest.raises(ConfigError, match="Did you mean 'mjpeg'"):
        odd.driver_config()
