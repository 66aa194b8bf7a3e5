"""Emulates a network camera: MJPEG over HTTP with the sender's time stamps, and faults on command.

``multipart/x-mixed-replace``, one JPEG per part with ``Content-Length`` and ``X-Timestamp`` (time
of exposure, this host's monotonic clock, seconds). A client that asks for ``/...?depth=1`` gets
after each picture a part more with its stamp: a PNG of 16 bits, depth [mm], lossless.

What is drawn comes from whoever builds the emulator; it passes the camera's response (gain, gamma,
noise: ``sensor.py``), waits for its latency, and is sent to every client. A client that reads
slowly misses pictures, it never holds up the others.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hardware.emulators.sensor import CameraEmulatorConfig, Exposure, Sensor, Taken, png
from hardware.wire.mjpeg import BOUNDARY, DEPTH_QUERY
from robolearn.errors import DataError, RobotConnectionError, did_you_mean

Draw = Callable[[], Exposure]
log = logging.getLogger(__name__)
FAULTS = ("frozen", "black", "stall", "drop", "size", "clock_jump", "slow", "blind")
_REQUEST, _CLIENTS = 4096, 8


class CameraEmulator:
    """Serves one camera; :meth:`run` draws on the calling thread, clients have threads of their
    own.
    """

    def __init__(
        self, config: CameraEmulatorConfig, address: str, draw: Draw, rng: np.random.Generator
    ) -> None:
        self.config = config
        self.sent = self.skipped = 0
        self._draw, self._sensor = draw, Sensor(config, rng)
        self._faults: dict[str, tuple[float, float]] = {}
        self._frozen: Taken | None = None
        self._queue: deque[tuple[int, _Parts]] = deque()
        self._parts, self._index = _Parts(b"", b""), 0
        self._news = threading.Condition()
        self._clients: set[socket.socket] = set()
        # Those of them that get depth, too.
        self._deep: set[socket.socket] = set()
        self._stopped = False
        try:
            self._server = socket.create_server((address, config.port), backlog=4)
        except OSError as error:
            raise RobotConnectionError(
                f"camera '{config.name}': cannot listen on {address}:{config.port}"
                f" ({error.strerror or error}); \"ss -ltnp 'sport = :{config.port}'\" shows who"
                " does. Stop it, or change the camera's port"
            ) from error
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name="camera clients", daemon=True).start()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Expose, and send what is due, until ``stopped()``; it is asked some hundred times a
        second at most.
        """
        period_ns = round(1e9 / self.config.rate_hz)
        next_ns = time.monotonic_ns()
        while not stopped():
            now_ns = time.monotonic_ns()
            if now_ns >= next_ns:
                # A late exposure is skipped, never repeated.
                missed = (now_ns - next_ns) // period_ns
                self.skipped += missed
                next_ns += (missed + 1) * period_ns
                # Nobody looks: nothing is drawn, the processor is left to others.
                if self._clients:
                    self.expose()
            self._send_due()
            due_ns = min([next_ns, *(due for due, _ in list(self._queue)[:1])])
            time.sleep(max(0.0, min(0.02, (due_ns - time.monotonic_ns()) * 1e-9)))

    def expose(self) -> None:
        """Draw one picture and queue it for sending."""
        exposure = self._draw()
        if self._sensor.loses():
            return
        stamp_s = exposure.t_ns * 1e-9 + self._amount("clock_jump")
        picture = self._with_faults(exposure)
        depth = b"" if picture.depth is None else png(picture.depth, self.config.name)
        parts = _Parts(
            _part("image/jpeg", stamp_s, self._sensor.jpeg(picture.image)),
            _part("image/png", stamp_s, depth) if depth else b"",
        )
        delay_s = self._sensor.latency_s() + self._amount("slow")
        self._queue.append((exposure.t_ns + round(delay_s * 1e9), parts))

    def fault(self, kind: str, seconds: float, amount: float = 0.0) -> None:
        """Cause a fault for ``seconds``: ``frozen``, ``black``, ``stall`` (silence), ``drop``
        (connections are closed and refused), ``size`` (half the size), ``clock_jump`` (stamps
        shifted by ``amount`` [s]), ``slow`` (``amount`` [s] later), ``blind`` (no depth anywhere).
        """
        if kind not in FAULTS:
            raise DataError(
                f"no fault '{kind}' of a camera.{did_you_mean(kind, FAULTS)} Known: {FAULTS}"
            )
        self._frozen = None
        self._faults[kind] = (time.monotonic() + seconds, amount)
        if kind == "drop":
            for client in list(self._clients):
                _shut(client)

    def close(self) -> None:
        """Close every socket; safe to call twice."""
        self._stopped = True
        # Closing alone does not wake a thread that waits in accept.
        _shut(self._server)
        self._server.close()
        with self._news:
            self._news.notify_all()
        for client in list(self._clients):
            _shut(client)

    def _active(self, kind: str) -> bool:
        until, _ = self._faults.get(kind, (0.0, 0.0))
        return time.monotonic() < until

    def _amount(self, kind: str) -> float:
        return self._faults[kind][1] if self._active(kind) else 0.0

    def _with_faults(self, exposure: Exposure) -> Taken:
        # Nobody asks for depth: none is measured.
        taken = self._sensor.taken(exposure, depth=bool(self._deep))
        if taken.depth is not None and self._active("blind"):
            taken = Taken(taken.image, np.zeros_like(taken.depth))
        if self._active("frozen"):
            self._frozen = taken if self._frozen is None else self._frozen
            taken = self._frozen
        if self._active("black"):
            taken = Taken(np.zeros_like(taken.image), taken.depth)
        if self._active("size"):
            depth = None if taken.depth is None else np.ascontiguousarray(taken.depth[::2, ::2])
            taken = Taken(np.ascontiguousarray(taken.image[::2, ::2]), depth)
        return taken

    def _send_due(self) -> None:
        now_ns = time.monotonic_ns()
        while self._queue and self._queue[0][0] <= now_ns:
            _, parts = self._queue.popleft()
            if self._active("stall"):
                continue
            with self._news:
                self._parts, self._index = parts, self._index + 1
                self.sent += 1
                self._news.notify_all()

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if len(self._clients) >= _CLIENTS or self._active("drop"):
                client.close()
                continue
            self._clients.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            client.settimeout(2.0)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            path = _asked(client)
            if path is not None:
                client.sendall(
                    b"HTTP/1.0 200 OK\r\nConnection: close\r\nCache-Control: no-store\r\n"
                    b"Content-Type: multipart/x-mixed-replace; boundary="
                    + BOUNDARY.encode()
                    + b"\r\n\r\n"
                )
                if wants_depth(path):
                    self._deep.add(client)
                self._stream(client)
            else:
                client.sendall(b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n")
        except OSError as error:
            log.debug("camera '%s': a client left: %s", self.config.name, error)
        finally:
            self._clients.discard(client)
            self._deep.discard(client)
            client.close()

    def _stream(self, client: socket.socket) -> None:
        sent_index = self._index
        while not self._stopped:
            with self._news:
                if self._index == sent_index:
                    self._news.wait(0.5)
                    continue
                parts, sent_index = self._parts, self._index
            if client not in self._deep:
                client.sendall(parts.picture)
            elif parts.depth or self.config.depth is None:
                client.sendall(parts.picture + parts.depth)


@dataclass(frozen=True, slots=True)
class _Parts:
    """One moment on its way: the picture's part, and the depth's (empty without one)."""

    picture: bytes
    depth: bytes


def _part(kind: str, stamp_s: float, data: bytes) -> bytes:
    head = (
        f"--{BOUNDARY}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        f"X-Timestamp: {stamp_s:.9f}\r\n\r\n"
    )
    return head.encode() + data + b"\r\n"


def wants_depth(path: str) -> bool:
    """Whether a request asks for depth, too."""
    return "1" in urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get(DEPTH_QUERY, [])


def _asked(client: socket.socket) -> str | None:
    """The path of a request to get something; None for anything else."""
    request = b""
    while b"\r\n\r\n" not in request:
        chunk = client.recv(1024)
        request += chunk
        if not chunk or len(request) > _REQUEST:
            return None
    words = request.partition(b"\r\n")[0].decode("latin-1").split()
    return words[1] if len(words) > 1 and words[0] == "GET" and words[1][0] == "/" else None


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
