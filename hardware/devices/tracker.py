"""Reads object poses from a tracking system: the contract and the client of the UDP stream.

Policies on a robot get object poses from trackers, never from a simulator's truth. The datagram is
that of ``hardware/emulators/tracker.py``, which describes every byte. One stream carries several
objects; each tracker follows one of them (:class:`UdpStream`).
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.devices.pose_gate import PlausibleMotion, PoseGate
from hardware.emulators.tracker import MAGICS, PACKET_SIZE, TrackerPacket, decode_packet
from robolearn.errors import ClockError, ConfigError, DataError, StaleSignalError
from robolearn.geometry import ObjectPose, quat_positive

log = logging.getLogger(__name__)
_QUEUE, _RESTART, _NAMES, _CLOCK_SET_S = 4096, 1 << 20, 64, 0.25


@dataclass(frozen=True, slots=True)
class TrackedPose:
    """One measurement: capture time and receive time (both monotonic [ns]), pose ``[3]``
    (x [m], y [m], yaw [rad]) in the table frame, or ``[7]`` (x, y, z, qw, qx, qy, qz; ``qw >= 0``).
    """

    t_ns: int
    received_ns: int
    pose: ObjectPose


@dataclass(frozen=True, slots=True)
class TrackerCounts:
    """Datagrams taken, refused (not ours, broken, from the future), lost (gaps in ``seq``), and
    measurements of a motion that no object makes.
    """

    taken: int
    refused: int
    lost: int
    implausible: int


@runtime_checkable
class Tracker(Protocol):
    """Measures where one object is."""

    @property
    def name(self) -> str:
        """The signal, ``<object>/pose``."""
        ...

    @property
    def counts(self) -> TrackerCounts:
        """What was taken and what was not, since the stream began."""
        ...

    def latest(self) -> TrackedPose:
        """The newest measurement; raises StaleSignalError when it is older than the age limit
        (or there never was one), ClockError when that is because the sender's clock was set.
        """
        ...

    def wait(self, timeout_s: float) -> TrackedPose:
        """The newest measurement, waiting up to ``timeout_s`` for a fresh one."""
        ...

    def drain(self) -> list[TrackedPose]:
        """All measurements since the last call, oldest first."""
        ...

    def forget(self) -> None:
        """Objects may have been moved by hand: what was measured so far says nothing any more."""
        ...

    def close(self) -> None:
        """Leave the stream, which ends with its last tracker; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class UdpTrackerConfig:
    """One object of a tracking system's stream."""

    # Local address to bind: the destination of the stream.
    address: str = "127.0.0.1"
    # Local UDP port; signals of one stream have the same.
    port: int = 30120
    # Its name in the stream; "": the signal's, ``block`` for ``block/pose``.
    object: str = ""
    # How many numbers its pose has: 3, on the table (x, y, yaw); 7, in space (x, y, z, quaternion).
    values: int = 3
    # Older measurements raise StaleSignalError [s].
    max_age_s: float = 0.15
    # Add to capture times to get this machine's monotonic clock [s] (0 on one machine).
    clock_offset_s: float = 0.0
    # From the exposure to the stamp, for systems that stamp what they have computed [s].
    latency_s: float = 0.0
    # How the object can move; null: every measurement is believed.
    plausible: PlausibleMotion | None = field(default_factory=PlausibleMotion)

    def __post_init__(self) -> None:
        if self.values not in MAGICS:
            raise ConfigError(
                "tracker: values is 3 (x, y, yaw on the table) or 7 (x, y, z, quaternion in space),"
                f" got {self.values}"
            )
        if not 0.0 <= self.latency_s < 1.0 or not 0.0 < self.max_age_s < float("inf"):
            raise ConfigError(
                "tracker: latency_s is in [0, 1) s and max_age_s positive, got"
                f" {self.latency_s}, {self.max_age_s}"
            )


class UdpStream:
    """The datagrams of one local port, passed on to the trackers of their objects.

    They are read from a non-blocking socket whenever a tracker is asked; no thread. Datagrams that
    are not ours or are broken are counted and ignored.
    """

    def __init__(self, address: str, port: int) -> None:
        self.where = f"{address}:{port}"
        self.refused = 0
        self._followers: list[UdpTracker] = []
        self._seen: dict[str, None] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        # Two seconds of a 60 Hz stream with several objects fit easily.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"tracker: cannot listen on {self.where} ({error.strerror or error}); is another"
                " program using it? Free the port or change robot.trackers.<signal>.udp.port"
            ) from error

    @property
    def seen(self) -> tuple[str, ...]:
        """Names of the objects that it has carried so far (the first 64)."""
        return tuple(self._seen)

    def follow(self, signal: str, config: UdpTrackerConfig) -> UdpTracker:
        """A tracker of one object. ``config``'s address and port are those of this stream."""
        self._followers.append(UdpTracker(signal, config, self))
        return self._followers[-1]

    def leave(self, tracker: UdpTracker) -> None:
        """One tracker less; the last one closes the socket."""
        self._followers = [f for f in self._followers if f is not tracker]
        if not self._followers:
            self._socket.close()

    def receive(self) -> None:
        """Pass on what has arrived."""
        # Bounded, so that a flood of datagrams cannot hold the control loop.
        for _ in range(_QUEUE):
            try:
                data, _ = self._socket.recvfrom(PACKET_SIZE + 1)
            except BlockingIOError:
                return
            now_ns = time.monotonic_ns()
            try:
                packet = decode_packet(data)
            except DataError as error:
                self.refused += 1
                log.debug("tracker: %s", error)
                continue
            if len(self._seen) < _NAMES:
                self._seen[packet.name] = None
            for follower in self._followers:
                if follower.object == packet.name:
                    follower.take(packet, now_ns)

    def await_data(self, timeout_s: float) -> None:
        """Until something arrives, or for ``timeout_s``."""
        select.select([self._socket], [], [], timeout_s)


class UdpTracker:
    """One object of a :class:`UdpStream`. Measurements out of order or from the future are refused
    and counted.
    """

    def __init__(self, signal: str, config: UdpTrackerConfig, stream: UdpStream) -> None:
        self.config, self._signal, self._stream = config, signal, stream
        self.object = config.object or object_of(signal)
        self._newest: TrackedPose | None = None
        self._new: deque[TrackedPose] = deque(maxlen=_QUEUE)
        self._seq, self._forgot_ns = -1, 0
        self._clock_fault = self._other_form = ""
        self._gate = PoseGate(signal, config.plausible, config.max_age_s)
        self._taken = self._refused = self._lost = 0

    @property
    def name(self) -> str:
        """The signal."""
        return self._signal

    @property
    def counts(self) -> TrackerCounts:
        """Statistics of the object, and of what was refused in its stream."""
        return TrackerCounts(
            self._taken, self._refused + self._stream.refused, self._lost, self._gate.refused
        )

    def latest(self) -> TrackedPose:
        """The newest measurement."""
        self._stream.receive()
        newest, limit_s = self._newest, self.config.max_age_s
        age_s = float("inf") if newest is None else (time.monotonic_ns() - newest.t_ns) * 1e-9
        if newest is None or age_s > limit_s:
            if self._clock_fault:
                raise ClockError(
                    f"tracker of '{self.name}': {self._clock_fault}; find out what sets the clock"
                    " of the tracking system (NTP, a restart), then start again"
                )
            if self._other_form:
                raise StaleSignalError(
                    f"tracker of '{self.name}': {self._other_form}; set"
                    f" robot.trackers.{self.name}.udp.values, or the tracking system, to the other"
                )
            state = "no measurement yet" if newest is None else f"newest is {age_s:.3f} s old"
            if self._gate.refusal:
                state += f", for what came since cannot be: {self._gate.refusal}"
            raise StaleSignalError(
                f"tracker of '{self.name}', object '{self.object}' on {self._stream.where}: {state}"
                f" (limit {limit_s:g} s); taken {self._taken}, refused {self.counts.refused}; the"
                f" stream has carried {list(self._stream.seen)}. Check that the tracking system"
                " runs, sees the object, and calls it so"
            )
        return newest

    def drain(self) -> list[TrackedPose]:
        """All measurements since the last call."""
        self._stream.receive()
        out = list(self._new)
        self._new.clear()
        return out

    def forget(self) -> None:
        """What is measured from now on counts, wherever the object is."""
        self._forgot_ns = time.monotonic_ns()
        self._newest = None
        self._new.clear()
        self._gate.forget()

    def wait(self, timeout_s: float) -> TrackedPose:
        """The newest measurement, waiting up to ``timeout_s`` for a fresh one."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.latest()
            except StaleSignalError:
                left = deadline - time.monotonic()
                if left <= 0.0:
                    raise
                self._stream.await_data(left)

    def close(self) -> None:
        """Leave the stream."""
        self._stream.leave(self)

    def take(self, packet: TrackerPacket, now_ns: int) -> None:
        """A datagram of this object, received at ``now_ns``."""
        if len(packet.pose) != self.config.values:
            self._refused += 1
            self._other_form = (
                f"its datagrams hold poses of {len(packet.pose)} numbers, this cell expects"
                f" {self.config.values}"
            )
            return
        self._other_form = ""
        t_ns = packet.t_ns + round((self.config.clock_offset_s - self.config.latency_s) * 1e9)
        old = self._newest
        if t_ns > now_ns or (old is not None and t_ns <= old.t_ns):
            self._refused += 1
            # A datagram that was overtaken on its way is late by milliseconds.
            wrong_s = 1e-9 * (t_ns - (now_ns if old is None or t_ns > now_ns else old.t_ns))
            if abs(wrong_s) > _CLOCK_SET_S:
                away = "ahead of this machine's" if wrong_s > 0 else "behind its own last one"
                self._clock_fault = f"its times are {abs(wrong_s):.3f} s {away}"
            return
        self._clock_fault = ""
        gap = (packet.seq - self._seq) % (1 << 32) - 1
        # A huge gap is a tracking system that started again.
        if self._seq >= 0 and 0 < gap < _RESTART:
            self._lost += gap
        self._seq = packet.seq
        pose = np.array(packet.pose)
        if len(pose) > 3:
            # One sign for every rotation, as in the scenes.
            pose[3:] = quat_positive(pose[3:] / np.linalg.norm(pose[3:]))
        if t_ns <= self._forgot_ns or not self._gate.accepts(t_ns, pose):
            return
        self._taken += 1
        self._newest = TrackedPose(t_ns, now_ns, pose)
        self._new.append(self._newest)


def object_of(signal: str) -> str:
    """The object of a signal ``<object>/pose``."""
    return signal.partition("/")[0]
