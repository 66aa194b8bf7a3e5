"""Emulates a motion-capture system on the wire: a time-stamped UDP stream of object poses.

One datagram per object and capture, little-endian; 56 bytes for an object on the table::

    magic    4s   b"RLT1"
    seq      u32  counts captures of the stream; a gap is a lost packet; wraps at 2**32
    t_ns     u64  capture time, CLOCK_MONOTONIC of the sending host [ns]
    name     16s  object name, ASCII, zero-padded
    x, y     f64  position in the table frame [m]
    yaw      f64  rotation about z, counter-clockwise, in (-pi, pi] [rad]

and :data:`PACKET_SIZE` = 88 bytes for one that moves in space; what is not named is the same::

    magic    4s   b"RLT2"
    x, y, z  f64  position in the table frame [m]
    qw to qz f64  its rotation, a unit quaternion

The stream is unicast: the emulator sends to a fixed address and port, the client binds it. The
pose is the true pose at ``t_ns`` plus Gaussian noise; the packet leaves ``latency_s`` later.
"""

from __future__ import annotations

import math
import socket
import struct
from collections import deque
from dataclasses import dataclass

import numpy as np

from hardware.emulators.plant import Plant
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import (
    ObjectPose,
    quat_from_rotation,
    quat_multiply,
    quat_positive,
    rotation_from_rotvec,
)
from robolearn.pusht import wrap_angle

# Numbers of a pose -> what its datagrams begin with; on a table, in space.
MAGICS = {3: b"RLT1", 7: b"RLT2"}
_HEAD = struct.Struct("<4sIQ16s")
_PACKETS = {n: struct.Struct(f"{_HEAD.format}{n}d") for n in MAGICS}
_SIZES = {MAGICS[n]: n for n in MAGICS}
# Of the largest datagram.
PACKET_SIZE = max(p.size for p in _PACKETS.values())
# How far the norm of a quaternion may be from 1.
_NORM_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class TrackerPacket:
    """One decoded datagram. ``pose`` is (x [m], y [m], yaw [rad]) in the table frame, or (x, y, z,
    qw, qx, qy, qz).
    """

    seq: int
    t_ns: int
    name: str
    pose: tuple[float, ...]


def encode_packet(packet: TrackerPacket) -> bytes:
    """The bytes of a packet. Raises :class:`DataError` for a name or a pose that does not fit."""
    name = packet.name.encode("ascii", "replace")
    if not 0 < len(name) <= 16:
        raise DataError(f"tracker name must have 1 to 16 ASCII characters, got '{packet.name}'")
    size = len(packet.pose)
    if size not in MAGICS:
        raise DataError(f"a tracked pose has 3 or 7 numbers, '{packet.name}' got {size}")
    head = (MAGICS[size], packet.seq & 0xFFFFFFFF, packet.t_ns, name)
    return _PACKETS[size].pack(*head, *packet.pose)


def decode_packet(data: bytes) -> TrackerPacket:
    """Inverse of :func:`encode_packet`. Raises :class:`DataError` for anything else."""
    size = _SIZES.get(data[:4], 0)
    if size == 0 or len(data) != _PACKETS[size].size:
        raise DataError(f"not a tracker packet: {len(data)} bytes starting {data[:4]!r}")
    _, seq, t_ns, name, *pose = _PACKETS[size].unpack(data)
    if not np.isfinite(pose).all():
        raise DataError(f"tracker packet {seq} holds a pose that is not finite: {pose}")
    if size == max(MAGICS) and abs(math.hypot(*pose[3:]) - 1.0) > _NORM_SLACK:
        raise DataError(f"tracker packet {seq} holds no rotation: its quaternion is {pose[3:]}")
    try:
        text = name.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"tracker packet {seq} has a name that is not ASCII: {name!r}") from error
    return TrackerPacket(seq, t_ns, text, tuple(pose))


@dataclass(frozen=True, slots=True)
class TrackerEmulatorConfig:
    """What the emulated motion capture does to the truth.

    ``dropout_rate`` is the share of captures that never leave; ``latency_jitter_s`` is the width
    of a uniform addition to ``latency_s``.
    """

    port: int = 30120
    rate_hz: float = 60.0
    latency_s: float = 0.015
    latency_jitter_s: float = 0.002
    noise_xy_m: float = 0.0003
    noise_yaw_rad: float = 0.0017
    dropout_rate: float = 0.005

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise ConfigError(f"port must be 1 to 65535, got {self.port}")
        if not 0 < self.rate_hz <= 1000 or not 0 <= self.dropout_rate <= 1:
            raise ConfigError(
                "rate_hz in (0, 1000] and dropout_rate in [0, 1] are needed, got"
                f" {self.rate_hz}, {self.dropout_rate}"
            )
        spreads = (self.latency_s, self.latency_jitter_s, self.noise_xy_m, self.noise_yaw_rad)
        if not all(0 <= value < math.inf for value in spreads):
            raise ConfigError(f"latency, jitter and noise must be at least 0, got {spreads}")


class Captures:
    """What a motion capture makes of the true poses of ``plant``'s objects: late, noisy, lossy.

    Call :meth:`tick` at least as often as packets should leave; any clock will do.
    """

    def __init__(
        self, plant: Plant, config: TrackerEmulatorConfig, rng: np.random.Generator
    ) -> None:
        self.config = config
        self.lost = 0
        self.blind_until_ns = 0
        self._plant, self._rng = plant, rng
        self._queue: deque[tuple[int, TrackerPacket]] = deque()
        self._seq = 0
        self._period_ns = round(1e9 / config.rate_hz)
        self._next_ns = 0

    def tick(self, now_ns: int) -> list[TrackerPacket]:
        """Capture when due; the packets that leave by ``now_ns``."""
        if now_ns >= self._next_ns:
            # A late capture is skipped, never repeated: a camera does not catch up.
            late = max(0, now_ns - self._next_ns) if self._next_ns else 0
            self._next_ns = now_ns - late % self._period_ns + self._period_ns
            self._capture(now_ns)
        leaving: list[TrackerPacket] = []
        while self._queue and self._queue[0][0] <= now_ns:
            leaving.append(self._queue.popleft()[1])
        return leaving

    def _capture(self, now_ns: int) -> None:
        c = self.config
        self._seq += 1
        lost = self._rng.random() < c.dropout_rate or now_ns < self.blind_until_ns
        delay_s = c.latency_s + c.latency_jitter_s * self._rng.random()
        for name in self._plant.object_names:
            pose = _noisy(self._plant.true_pose(name), c, self._rng)
            if lost:
                self.lost += 1
                continue
            packet = TrackerPacket(self._seq, now_ns, name, pose)
            self._queue.append((now_ns + round(delay_s * 1e9), packet))


class TrackerEmulator:
    """Sends what is captured of ``plant`` to ``(address, config.port)``; never blocks."""

    def __init__(
        self, plant: Plant, address: str, config: TrackerEmulatorConfig, rng: np.random.Generator
    ) -> None:
        self.config = config
        self.destination = (address, config.port)
        self.sent = self._unsent = 0
        self._captures = Captures(plant, config, rng)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    @property
    def dropped(self) -> int:
        """Poses that nobody got."""
        return self._captures.lost + self._unsent

    def tick(self, now_ns: int) -> None:
        """Capture when due, send what is due. ``now_ns`` is ``time.monotonic_ns``."""
        for packet in self._captures.tick(now_ns):
            self._send(encode_packet(packet))

    def blind(self, until_ns: int) -> None:
        """Lose every capture until ``until_ns`` (an occluded marker)."""
        self._captures.blind_until_ns = until_ns

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendto(data, self.destination)
            self.sent += 1
        except OSError:
            # Nobody listens, or a buffer is full: UDP loses the packet, the lab goes on.
            self._unsent += 1


def _noisy(
    pose: ObjectPose, config: TrackerEmulatorConfig, rng: np.random.Generator
) -> tuple[float, ...]:
    if len(pose) > 3:
        # In space the same noise acts along and about every axis.
        at = pose[:3] + rng.normal(size=3) * config.noise_xy_m
        turn = rotation_from_rotvec(rng.normal(size=3) * config.noise_yaw_rad)
        quat = quat_multiply(quat_from_rotation(turn), pose[3:])
        return (*at.tolist(), *quat_positive(quat / np.linalg.norm(quat)).tolist())
    scale = (config.noise_xy_m, config.noise_xy_m, config.noise_yaw_rad)
    x, y, yaw = pose + rng.normal(size=3) * scale
    return float(x), float(y), float(wrap_angle(yaw))
