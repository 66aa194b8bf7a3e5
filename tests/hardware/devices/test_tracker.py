"""The tracker's client: capture times, age limit, garbage, loss."""

import dataclasses
import socket
import time

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.devices.pose_gate import PlausibleMotion
from hardware.devices.tracker import UdpStream, UdpTrackerConfig
from hardware.drivers.aruco_tracker import TagTrackerConfig
from hardware.emulators.tracker import TrackerPacket, encode_packet
from hardware.streams.camera_streams import CameraStreams
from hardware.streams.signal_buffer import SignalBuffer
from hardware.streams.tracker_streams import TrackedConfig, TrackedStreams
from robolearn.calibration.fiducials import Tag
from robolearn.errors import ClockError, ConfigError, StaleSignalError
from robolearn.pusht import block_signal
from sim.worlds import make_world
from tests.hardware.lab import CONFIG
from tests.waiting import paced, pass_time


class Stream:
    """A tracking system that sends what a test wants."""

    def __init__(self):
        self.probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.probe.bind(("127.0.0.1", 0))
        self.port = self.probe.getsockname()[1]
        self.probe.close()
        self.stream = UdpStream("127.0.0.1", self.port)
        self.trackers = []
        self.tracker = self.follow("block/pose")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.seq = 0

    def follow(self, signal, **changes):
        # Where a test is not about motion, objects may be anywhere at any time.
        config = UdpTrackerConfig(port=self.port, **{"plausible": None, **changes})
        self.trackers.append(self.stream.follow(signal, config))
        return self.trackers[-1]

    def send(self, x, age_s=0.001, name="block", seq=None):
        self.seq = self.seq + 1 if seq is None else seq
        t_ns = time.monotonic_ns() - round(age_s * 1e9)
        self.raw(encode_packet(TrackerPacket(self.seq, t_ns, name, (x, 0.2, 0.3))))
        return t_ns

    def raw(self, data):
        self.socket.sendto(data, ("127.0.0.1", self.port))

    def close(self):
        for tracker in (*self.trackers, self.tracker):
            tracker.close()
        self.socket.close()


@pytest.fixture
def stream():
    made = Stream()
    yield made
    made.close()


def test_the_newest_pose_with_its_capture_time(stream):
    stream.send(0.1)
    t_ns = stream.send(0.2)
    pose = stream.tracker.latest()
    assert pose.t_ns == t_ns
    assert pose.received_ns > t_ns
    np.testing.assert_array_equal(pose.pose, [0.2, 0.2, 0.3])
    assert [p.pose[0] for p in stream.tracker.drain()] == [0.1, 0.2]
    assert stream.tracker.drain() == []


def test_silence_and_old_poses_are_typed_errors(stream):
    with pytest.raises(StaleSignalError, match="no measurement yet"):
        stream.tracker.latest()
    stream.send(0.1, age_s=0.5)
    with pytest.raises(StaleSignalError, match=r"0\.5.*old"):
        stream.tracker.latest()
    stream.send(0.2)
    assert stream.tracker.wait(0.5).pose[0] == 0.2


def test_garbage_is_counted_and_ignored(stream):
    good = encode_packet(TrackerPacket(1, time.monotonic_ns(), "block", (0.1, 0.2, 0.3)))
    bad = [b"", b"x", good[:-1], good + b"x", b"XXXX" + good[4:], good[:-8] + b"\xff" * 8]
    for data in bad:
        stream.raw(data)
    stream.send(0.3, age_s=-10.0)  # from the future
    stream.send(0.4)
    stream.send(0.5, age_s=1.0)  # older than the one before
    stream.send(0.6, name="other")
    assert stream.tracker.latest().pose[0] == 0.4
    counts = stream.tracker.counts
    assert (counts.taken, counts.refused) == (1, len(bad) + 2)


def test_gaps_are_counted_and_a_restart_is_no_gap(stream):
    for seq in (5, 6, 9, 2):
        stream.send(0.1, seq=seq, age_s=0.0)
    stream.tracker.latest()
    assert stream.tracker.counts.lost == 2


@pytest.mark.parametrize(
    ("age_s", "told"), [(5.0, "behind its own last one"), (-5.0, "ahead of this machine's")]
)
def test_a_clock_that_was_set_is_told_once_the_last_good_pose_is_old(stream, age_s, told):
    stream.tracker.config = dataclasses.replace(stream.tracker.config, max_age_s=0.02)
    stream.send(0.1, age_s=0.0)
    assert stream.tracker.latest().pose[0] == 0.1
    stream.send(0.2, age_s=age_s)
    pass_time(0.03, "the last good pose becomes old")
    with pytest.raises(ClockError, match=told):
        stream.tracker.wait(1.0)
    stream.send(0.3, age_s=0.0)
    assert stream.tracker.latest().pose[0] == 0.3


def test_a_busy_port_says_so(stream):
    with pytest.raises(ConfigError, match="another program"):
        UdpStream("127.0.0.1", stream.port)


def test_random_datagrams_never_raise(stream):
    rng = np.random.default_rng(0)
    for _ in range(300):
        stream.raw(rng.bytes(int(rng.integers(0, 70))))
    stream.send(0.7)
    assert stream.tracker.latest().pose[0] == 0.7


def test_one_stream_tells_several_objects_and_a_missing_one_by_its_name(stream):
    hole = stream.follow("hole/pose", object="peg_hole")
    lid = stream.follow("lid/pose", max_age_s=0.3)
    stream.send(0.1)
    stream.send(0.2, name="peg_hole")
    assert hole.wait(0.5).pose[0] == 0.2
    assert stream.tracker.latest().pose[0] == 0.1
    assert [p.pose[0] for p in hole.drain()] == [0.2]
    with pytest.raises(
        StaleSignalError,
        match=r"'lid/pose', object 'lid' .*no measurement.*\['block', 'peg_hole'\]",
    ):
        lid.wait(0.01)
    stream.send(0.3, name="lid", age_s=0.4)
    with pytest.raises(StaleSignalError, match=r"'lid/pose'.*newest is 0\.4"):
        lid.latest()
    hole.close()
    stream.send(0.4)
    assert stream.tracker.latest().pose[0] == 0.4


def streams(**configs):
    return TrackedStreams(
        {f"{n}/pose": TrackedConfig(c) for n, c in configs.items()}, CameraStreams(())
    )


def test_a_cells_signals_share_a_port_and_start_with_the_newest_pose(stream):
    stream.tracker.close()
    udp = UdpTrackerConfig(port=stream.port, max_age_s=0.5, plausible=None)
    tracked = streams(block=udp, hole=dataclasses.replace(udp, object="peg_hole"))
    with pytest.raises(StaleSignalError, match=r"'block/pose'.*; tracker of 'hole/pose'"):
        tracked.wait(0.0)
    for x, name in ((0.1, "block"), (0.2, "peg_hole"), (0.3, "block")):
        stream.send(x, name=name)
    tracked.wait(1.0)
    tracked.require_fresh()
    config = TrackedConfig(udp)
    buffers = {s: SignalBuffer(config.signal(s, {})) for s in ("block/pose", "hole/pose")}
    tracked.restart(buffers)
    assert [b.newest().value[0] for b in buffers.values()] == [0.3, 0.2]
    stream.send(0.4, name="peg_hole")
    tracked.wait(1.0)
    tracked.collect(buffers)
    assert [b.newest().value[0] for b in buffers.values()] == [0.3, 0.4]
    tracked.close()
    tracked.close()
    UdpStream("127.0.0.1", stream.port).follow("block/pose", udp).close()


def test_names_that_are_no_poses_and_two_signals_of_one_object_are_refused():
    cell, udp = load_cell(CONFIG), UdpTrackerConfig()
    with pytest.raises(ConfigError, match="'block' is no signal of a tracked object"):
        dataclasses.replace(cell, trackers={"block": TrackedConfig(udp)})
    twice = TrackedConfig(dataclasses.replace(udp, object="block"))
    with pytest.raises(ConfigError, match=r"'block/pose' and 'hole/pose' both .*'block'"):
        dataclasses.replace(cell, trackers={"block/pose": TrackedConfig(udp), "hole/pose": twice})
    tags = TrackedConfig(tags=TagTrackerConfig("top", (Tag(1, (0.0, 0.0), 0.02),), 0.0))
    with pytest.raises(ConfigError, match=r"both follow tag 1 of 4x4_50 at camera 'top'"):
        dataclasses.replace(cell, trackers={"block/pose": tags, "hole/pose": tags})
    with pytest.raises(ConfigError, match=r"trackers\.block/pose\.tags\.camera: no camera 'top'"):
        dataclasses.replace(cell, trackers={"block/pose": tags})
    with pytest.raises(ConfigError, match="only one of them"):
        TrackedConfig()


def test_what_a_cell_tracks_are_its_signals():
    cell = load_cell(CONFIG)
    names = {"block/pose": cell.trackers["block/pose"], "hole/pose": TrackedConfig(HOLE)}
    both = dataclasses.replace(cell, trackers=names)
    found = {s.name: s for s in cell_spec(both).signals}
    assert found["block/pose"] == block_signal(60.0)
    assert found["hole/pose"].components == ("x", "y", "yaw")
    assert both.latencies.observations_s["hole/pose"] == 0.01
    assert "hole/pose" not in {s.name for s in cell_spec(cell).signals}


HOLE = UdpTrackerConfig(object="peg_hole", latency_s=0.01)


def measured(stream, tracker, x, age_s=0.0):
    """Whether a pose that was measured ``age_s`` ago becomes the newest one."""
    stream.send(x, age_s=age_s)
    tracker.drain()
    return tracker.latest().pose[0] == x


def test_a_jump_is_not_believed_and_ends_as_a_stale_signal(stream):
    tracker = stream.follow("block/pose", plausible=PlausibleMotion(), max_age_s=0.15)
    for k in range(6):
        assert measured(stream, tracker, 0.2 + 0.001 * k, age_s=0.1 - 0.0167 * k)
    assert not measured(stream, tracker, 0.5)
    assert tracker.latest().pose[0] == pytest.approx(0.205)
    assert tracker.counts.implausible == 1
    # Back where it was: one outlier costs nothing.
    assert measured(stream, tracker, 0.206)

    def stay_elsewhere():
        for _ in paced(100, 200):
            measured(stream, tracker, 0.5)

    with pytest.raises(StaleSignalError, match=r"cannot be: a jump of 0\.29\d m"):
        stay_elsewhere()


def test_what_was_measured_before_a_person_moved_the_object_counts_no_more(stream):
    tracker = stream.follow("block/pose", plausible=PlausibleMotion())
    assert measured(stream, tracker, 0.2)
    tracker.forget()
    stream.send(0.21, age_s=0.05)
    with pytest.raises(StaleSignalError, match="no measurement yet"):
        tracker.latest()
    assert measured(stream, tracker, 0.5)


UPRIGHT = (1.0, 0.0, 0.0, 0.0)


def test_a_pose_in_space_has_one_sign_and_the_signal_of_the_scenes(stream):
    tracker = stream.follow("cube/pose", values=7)
    t_ns = time.monotonic_ns() - 1_000_000
    pose = (0.1, -0.2, 0.05, -0.6, 0.0, 0.8, 0.0)
    stream.raw(encode_packet(TrackerPacket(1, t_ns, "cube", pose)))
    assert tracker.latest().t_ns == t_ns
    np.testing.assert_allclose(tracker.latest().pose, [0.1, -0.2, 0.05, 0.6, 0.0, -0.8, 0.0])
    config = TrackedConfig(UdpTrackerConfig(values=7))
    (scene,) = [s for s in load_spec("pick_place_ur5e") if s.name == "cube/pose"]
    assert dataclasses.replace(config.signal("cube/pose", {}), rate_hz=scene.rate_hz) == scene


def load_spec(world):
    return make_world(world).spec.signals


def test_the_other_form_of_a_pose_is_told_and_mended(stream):
    t_ns = time.monotonic_ns() - 2_000_000
    stream.raw(encode_packet(TrackerPacket(1, t_ns, "block", (0.1, 0.2, 0.3, *UPRIGHT))))
    said = "poses of 7 numbers, this cell expects 3; set robot.trackers.block/pose.udp.values"
    with pytest.raises(StaleSignalError, match=said):
        stream.tracker.latest()
    assert stream.tracker.counts.refused == 1
    stream.send(0.2)
    assert stream.tracker.latest().pose[0] == 0.2
    with pytest.raises(ConfigError, match=r"values is 3 .* or 7"):
        UdpTrackerConfig(values=6)
