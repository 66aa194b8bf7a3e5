"""The tracker's client: capture times, age limit, garbage, loss."""

import dataclasses
import socket
import time

import numpy as np
import pytest

from hardware.emulators.tracker import TrackerPacket, encode_packet
from hardware.tracker import UdpTracker, UdpTrackerConfig
from robolearn.errors import ClockError, ConfigError, StaleSignalError


class Stream:
    """A tracking system that sends what a test wants."""

    def __init__(self):
        self.probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.probe.bind(("127.0.0.1", 0))
        self.port = self.probe.getsockname()[1]
        self.probe.close()
        self.tracker = UdpTracker(UdpTrackerConfig(port=self.port))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.seq = 0

    def send(self, x, age_s=0.001, name="block", seq=None):
        self.seq = self.seq + 1 if seq is None else seq
        t_ns = time.monotonic_ns() - round(age_s * 1e9)
        self.raw(encode_packet(TrackerPacket(self.seq, t_ns, name, (x, 0.2, 0.3))))
        return t_ns

    def raw(self, data):
        self.socket.sendto(data, ("127.0.0.1", self.port))

    def close(self):
        self.tracker.close()
        self.tracker.close()
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
    time.sleep(0.03)
    with pytest.raises(ClockError, match=told):
        stream.tracker.wait(1.0)
    stream.send(0.3, age_s=0.0)
    assert stream.tracker.latest().pose[0] == 0.3


def test_a_busy_port_says_so(stream):
    with pytest.raises(ConfigError, match="another program"):
        UdpTracker(dataclasses.replace(stream.tracker.config))


def test_random_datagrams_never_raise(stream):
    rng = np.random.default_rng(0)
    for _ in range(300):
        stream.raw(rng.bytes(int(rng.integers(0, 70))))
    stream.send(0.7)
    assert stream.tracker.latest().pose[0] == 0.7
