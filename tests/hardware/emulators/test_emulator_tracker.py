"""The emulated motion capture, on its own clock."""

import math
import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.emulators.plant import KinematicPlant
from hardware.emulators.tracker import (
    PACKET_SIZE,
    TrackerEmulator,
    TrackerEmulatorConfig,
    TrackerPacket,
    decode_packet,
    encode_packet,
)
from robolearn.errors import DataError

TRUTH = np.array([0.2, 0.3, math.pi])
MS = 1_000_000


@pytest.fixture
def listener():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.setblocking(False)
        yield sock


def run(listener, seconds, blind_until_ns=0, **changes):
    """(send time, packet) of a stream that runs in virtual time, ticks of 2 ms."""
    config = TrackerEmulatorConfig(port=listener.getsockname()[1], **changes)
    plant = KinematicPlant(np.zeros(6), {"block": TRUTH})
    tracker = TrackerEmulator(plant, "127.0.0.1", config, np.random.default_rng(0))
    tracker.blind(blind_until_ns)
    out = []
    for now_ns in range(1000 * MS, round((1 + seconds) * 1000) * MS, 2 * MS):
        tracker.tick(now_ns)
        while True:
            try:
                out.append((now_ns, decode_packet(listener.recv(2048))))
            except BlockingIOError:
                break
    tracker.close()
    return out, tracker


def test_rate_latency_sequence_and_noise(listener):
    packets, tracker = run(listener, 20, dropout_rate=0.0)
    assert len(packets) == pytest.approx(20 * 60, abs=3)
    assert [p.seq for _, p in packets] == list(range(1, len(packets) + 1))
    delays = np.array([t - p.t_ns for t, p in packets]) / MS
    assert delays.min() >= 15
    assert delays.max() <= 15 + 2 + 2
    errors = np.array([p.pose for _, p in packets]) - TRUTH
    errors[:, 2] = (errors[:, 2] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(errors.std(axis=0), (0.0003, 0.0003, 0.0017), rtol=0.1)
    assert np.abs(errors.mean(axis=0)).max() < 0.0002
    assert all(-math.pi < p.pose[2] <= math.pi for _, p in packets)
    assert tracker.dropped == 0


def test_dropouts_leave_gaps_in_the_sequence(listener):
    packets, tracker = run(listener, 10, dropout_rate=0.2)
    seq = np.array([p.seq for _, p in packets])
    assert np.all(np.diff(seq) >= 1)
    lost = seq[-1] - len(seq)
    assert 0.1 < lost / seq[-1] < 0.3
    assert tracker.dropped >= lost


def test_a_blind_tracker_sends_nothing(listener):
    packets, _ = run(listener, 1, blind_until_ns=1500 * MS, dropout_rate=0.0)
    assert packets[0][1].t_ns >= 1500 * MS


@given(
    seq=st.integers(0, 2**32 - 1),
    t_ns=st.integers(0, 2**63),
    name=st.text("abcxyz_/0", min_size=1, max_size=16),
    pose=st.tuples(*[st.floats(-10, 10)] * 3)
    | st.tuples(*[st.floats(-10, 10)] * 3).map(lambda at: (*at, 0.6, 0.0, -0.8, 0.0)),
)
def test_packets_round_trip(seq, t_ns, name, pose):
    packet = TrackerPacket(seq, t_ns, name, pose)
    data = encode_packet(packet)
    assert len(data) == (56 if len(pose) == 3 else PACKET_SIZE)
    assert PACKET_SIZE == 88
    assert decode_packet(data) == packet


@given(st.binary(max_size=80))
def test_noise_is_refused(data):
    with pytest.raises(DataError):
        decode_packet(data)


def test_a_pose_that_is_not_finite_is_refused():
    data = encode_packet(TrackerPacket(1, 2, "block", (0.0, math.nan, 0.0)))
    with pytest.raises(DataError, match="not finite"):
        decode_packet(data)
    with pytest.raises(DataError, match="16 ASCII"):
        encode_packet(TrackerPacket(1, 2, "b" * 17, (0.0, 0.0, 0.0)))


def test_a_pose_in_space_is_a_rotation_and_has_seven_numbers():
    good = encode_packet(TrackerPacket(1, 2, "cube", (0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0)))
    assert good[:4] == b"RLT2"
    for wrong in (good[:-8], good + bytes(8), b"RLT1" + good[4:]):
        with pytest.raises(DataError, match="not a tracker packet"):
            decode_packet(wrong)
    bent = TrackerPacket(1, 2, "cube", (0.1, 0.2, 0.3, 0.5, 0.0, 0.0, 0.0))
    with pytest.raises(DataError, match="no rotation"):
        decode_packet(encode_packet(bent))
    with pytest.raises(DataError, match="3 or 7 numbers, 'cube' got 4"):
        encode_packet(TrackerPacket(1, 2, "cube", (0.0, 0.0, 0.0, 1.0)))


def test_noise_in_space_keeps_a_rotation(listener):
    turned = np.array([0.1, -0.2, 0.05, 0.0, 1.0, 0.0, 0.0])
    plant = KinematicPlant(np.zeros(6), {"cube": turned})
    config = TrackerEmulatorConfig(port=listener.getsockname()[1], dropout_rate=0.0)
    tracker = TrackerEmulator(plant, "127.0.0.1", config, np.random.default_rng(0))
    for k in range(200):
        tracker.tick(1 + k * 20 * MS)
    tracker.close()
    poses = np.array([decode_packet(listener.recv(200)).pose for _ in range(150)])
    np.testing.assert_allclose(np.linalg.norm(poses[:, 3:], axis=1), 1.0, atol=1e-9)
    assert poses[:, :3].std(axis=0) == pytest.approx([3e-4] * 3, rel=0.3)
    angles = 2 * np.arccos(np.abs(poses[:, 3:] @ turned[3:]).clip(max=1.0))
    assert 0.001 < angles.mean() < 0.006
