"""Object poses from a tracking system: the contract and the client of the UDP stream.

Policies on a robot get object poses from trackers, never from a simulator's truth. The datagram is
that of ``hardware/emulators/tracker.py``, which describes every byte.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hardware.emulators.tracker import PACKET_SIZE, decode_packet
from robolearn.errors import ClockError, ConfigError, DataError, StaleSignalError

log = logging.getLogger(__name__)
_QUEUE, _RESTART, _CLOCK_SET_S = 4096, 1 << 20, 0.25


@dataclass(frozen=True, slots=True)
class TrackedPose:
    """One measurement: capture time and receive time (both monotonic [ns]), pose ``[3]``
    (x [m], y [m], yaw [rad]) in the table frame.
    """

    t_ns: int
    received_ns: int
    pose: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrackerCounts:
    """Datagrams taken, refused (not ours, broken, from the future) and lost (gaps in ``seq``)."""

    taken: int
    refused: int
    lost: int


@runtime_checkable
class Tracker(Protocol):
    """Measures where one object is."""

    @property
    def name(self) -> str:
        """The object."""
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

    def close(self) -> None:
        """Release the stream; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class UdpTrackerConfig:
    """Where the tracking system sends to, and what is still fresh."""

    address: str = "127.0.0.1"
    """Local address to bind: the destination of the stream."""
    port: int = 30120
    """Local UDP port."""
    name: str = "block"
    """Object of the stream that is followed."""
    max_age_s: float = 0.15
    """Older measurements raise StaleSignalError [s]."""
    clock_offset_s: float = 0.0
    """Add to capture times to get this machine's monotonic clock [s] (0 on one machine)."""
    latency_s: float = 0.0
    """From the exposure to the stamp, for systems that stamp what they have computed [s]."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.latency_s < 1.0 or not 0.0 < self.max_age_s < float("inf"):
            raise ConfigError(
                f"tracker '{self.name}': latency_s is in [0, 1) s and max_age_s positive, got"
                f" {self.latency_s}, {self.max_age_s}"
            )

    def build(self) -> UdpTracker:
        """Bind the port and start listening."""
        return UdpTracker(self)


class UdpTracker:
    """Reads the stream from a non-blocking socket whenever it is asked; no thread.

    Datagrams that are not ours, are broken, come out of order or claim to be captured in the
    future are counted and ignored.
    """

    def __init__(self, config: UdpTrackerConfig) -> None:
        self.config = config
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        # Two seconds of a 60 Hz stream with several objects fit easily.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        try:
            self._socket.bind((config.address, config.port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"tracker: cannot listen on {config.address}:{config.port}"
                f" ({error.strerror or error}); is another program using it? Free the port or"
                " change trackers.port"
            ) from error
        self._newest: TrackedPose | None = None
        self._new: deque[TrackedPose] = deque(maxlen=_QUEUE)
        self._seq = -1
        self._taken = self._refused = self._lost = 0
        self._clock_fault = ""

    @property
    def name(self) -> str:
        """The object that is followed."""
        return self.config.name

    @property
    def counts(self) -> TrackerCounts:
        """Statistics of the stream so far."""
        return TrackerCounts(self._taken, self._refused, self._lost)

    def latest(self) -> TrackedPose:
        """The newest measurement."""
        self._receive()
        newest, limit_s = self._newest, self.config.max_age_s
        age_s = float("inf") if newest is None else (time.monotonic_ns() - newest.t_ns) * 1e-9
        if newest is None or age_s > limit_s:
            if self._clock_fault:
                raise ClockError(
                    f"tracker '{self.name}': {self._clock_fault}; find out what sets the clock of"
                    " the tracking system (NTP, a restart), then start again"
                )
            told = "no measurement yet" if newest is None else f"newest is {age_s:.3f} s old"
            raise StaleSignalError(
                f"tracker '{self.name}' on {self.config.address}:{self.config.port}: {told}"
                f" (limit {limit_s:g} s); taken {self._taken}, refused {self._refused}. Check"
                " that the tracking system runs and sees the object"
            )
        return newest

    def drain(self) -> list[TrackedPose]:
        """All measurements since the last call."""
        self._receive()
        out = list(self._new)
        self._new.clear()
        return out

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
                select.select([self._socket], [], [], left)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _receive(self) -> None:
        # Bounded, so that a flood of datagrams cannot hold the control loop.
        for _ in range(_QUEUE):
            try:
                data, _ = self._socket.recvfrom(PACKET_SIZE + 1)
            except BlockingIOError:
                return
            self._take(data, time.monotonic_ns())

    def _take(self, data: bytes, now_ns: int) -> None:
        try:
            packet = decode_packet(data)
        except DataError as error:
            self._refused += 1
            log.debug("tracker: %s", error)
            return
        if packet.name != self.name:
            return
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
        self._taken += 1
        self._newest = TrackedPose(t_ns, now_ns, np.array(packet.pose))
        self._new.append(self._newest)
