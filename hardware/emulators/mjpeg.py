"""Emulates a network camera: MJPEG over HTTP with the sender's time stamps, and faults on command.

``multipart/x-mixed-replace``, one JPEG per part with ``Content-Length`` and ``X-Timestamp`` (time
of exposure, this host's monotonic clock, seconds). A client that asks for ``/...?depth=1`` gets
after each picture a part more with its stamp: a PNG of 16 bits, depth [mm], lossless.

What comes in is drawn by whoever builds the emulator, or from a film (``film.py``); it passes the
camera's response (gain, gamma, noise: ``sensor.py``), waits for its latency, and is sent to every
client. A client that reads slowly misses pictures, it never holds up the others: for each of them
the newest waits, and of a film a second of pictures, as in a network's buffers.
:attr:`CameraEmulator.counts` says what became of every picture.
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
from dataclasses import dataclass, field

import numpy as np

from hardware.emulators.film import Drawn, Shot, Shots
from hardware.emulators.sensor import CameraEmulatorConfig, Exposure, Sensor, Taken, png
from hardware.wire.mjpeg import BOUNDARY, DEPTH_QUERY
from robolearn.errors import DataError, RobotConnectionError, did_you_mean

Draw = Callable[[], Exposure]
log = logging.getLogger(__name__)
FAULTS = ("frozen", "black", "stall", "drop", "size", "clock_jump", "slow", "blind")
_REQUEST, _CLIENTS = 4096, 8
# What became of pictures while somebody looked: exposed; not exposed, as the processor came too
# late; lost by the sensor or by a fault; sent to whoever looks; of these not, as they read too
# slowly (each counts).
COUNTED = ("exposed", "skipped", "lost", "sent", "unread")


class CameraEmulator:
    """Serves one camera; :meth:`run` exposes on the calling thread, clients have threads of their
    own. ``film``: what is shown instead of what ``draw`` sees.
    """

    def __init__(
        self,
        config: CameraEmulatorConfig,
        address: str,
        draw: Draw,
        rng: np.random.Generator,
        *,
        film: Shots | None = None,
    ) -> None:
        self.config = config
        # By :data:`COUNTED`.
        self.counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self._sensor = Sensor(config, rng)
        self._shots = Drawn(self._sensor, draw) if film is None else film
        # What is drawn is drawn for the newest to be seen: a busy machine must not make it older.
        self._waiting = max(1, round(self._shots.late_s * config.rate_hz))
        self._faults: dict[str, tuple[float, float]] = {}
        self._frozen: Shot | None = None
        self._queue: deque[tuple[int, _Parts]] = deque()
        self._news = threading.Condition()
        self._clients: set[_Client] = set()
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
        late = round(self._shots.late_s * self.config.rate_hz)
        next_ns = time.monotonic_ns()
        while not stopped():
            missed = (time.monotonic_ns() - next_ns) // period_ns
            if missed > late:
                # A late exposure is skipped, never repeated.
                self._count("skipped", missed - late)
                next_ns += (missed - late) * period_ns
            if missed >= 0:
                # Nobody looks: nothing is drawn, the processor is left to others.
                if self._clients:
                    self.expose(next_ns)
                next_ns += period_ns
            self._send_due()
            due_ns = min([next_ns, *(due for due, _ in list(self._queue)[:1])])
            time.sleep(max(0.0, min(0.02, (due_ns - time.monotonic_ns()) * 1e-9)))

    def expose(self, due_ns: int) -> None:
        """Take the picture that is due at ``due_ns`` and queue it for sending."""
        if self._sensor.loses():
            self._count("lost")
            return
        # Nobody asks for depth: none is measured.
        shot = self._shots.take(due_ns, depth=any(c.deep for c in list(self._clients)))
        self._count("exposed")
        stamp_s = shot.t_ns * 1e-9 + self._amount("clock_jump")
        shown = self._with_faults(shot)
        depth = shown.depth
        if not depth and shown.taken.depth is not None:
            depth = png(shown.taken.depth, self.config.name)
        parts = _Parts(
            _part("image/jpeg", stamp_s, shown.picture or self._sensor.jpeg(shown.taken.image)),
            _part("image/png", stamp_s, depth) if depth else b"",
        )
        delay_s = self._sensor.latency_s() + self._amount("slow")
        self._queue.append((shot.t_ns + round(delay_s * 1e9), parts))

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
                _shut(client.sock)

    def close(self) -> None:
        """Close every socket; safe to call twice."""
        self._stopped = True
        # Closing alone does not wake a thread that waits in accept.
        _shut(self._server)
        self._server.close()
        with self._news:
            self._news.notify_all()
        for client in list(self._clients):
            _shut(client.sock)

    def _count(self, what: str, number: int = 1) -> None:
        # Nobody looks: nothing is missing.
        if self._clients:
            self.counts[what] += number

    def _active(self, kind: str) -> bool:
        until, _ = self._faults.get(kind, (0.0, 0.0))
        return time.monotonic() < until

    def _amount(self, kind: str) -> float:
        return self._faults[kind][1] if self._active(kind) else 0.0

    def _with_faults(self, shot: Shot) -> Shot:
        if self._active("frozen"):
            self._frozen = shot if self._frozen is None else self._frozen
            shot = self._frozen
        taken = shot.taken
        if taken.depth is not None and self._active("blind"):
            taken = Taken(taken.image, np.zeros_like(taken.depth))
        if self._active("black"):
            taken = Taken(np.zeros_like(taken.image), taken.depth)
        if self._active("size"):
            depth = None if taken.depth is None else np.ascontiguousarray(taken.depth[::2, ::2])
            taken = Taken(np.ascontiguousarray(taken.image[::2, ::2]), depth)
        # What a fault changed has no files yet.
        return shot if taken is shot.taken else Shot(shot.t_ns, taken)

    def _send_due(self) -> None:
        now_ns = time.monotonic_ns()
        while self._queue and self._queue[0][0] <= now_ns:
            _, parts = self._queue.popleft()
            if self._active("stall"):
                self._count("lost")
                continue
            self._count("sent")
            with self._news:
                for client in [c for c in list(self._clients) if c.looks]:
                    if len(client.waiting) == self._waiting:
                        client.waiting.popleft()
                        self._count("unread")
                    client.waiting.append(parts)
                self._news.notify_all()

    def _accept(self) -> None:
        while not self._stopped:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            if len(self._clients) >= _CLIENTS or self._active("drop"):
                sock.close()
                continue
            client = _Client(sock)
            self._clients.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: _Client) -> None:
        sock = client.sock
        try:
            sock.settimeout(2.0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            path = _asked(sock)
            if path is not None:
                sock.sendall(
                    b"HTTP/1.0 200 OK\r\nConnection: close\r\nCache-Control: no-store\r\n"
                    b"Content-Type: multipart/x-mixed-replace; boundary="
                    + BOUNDARY.encode()
                    + b"\r\n\r\n"
                )
                client.deep, client.looks = wants_depth(path), True
                self._stream(client)
            else:
                sock.sendall(b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n")
        except OSError as error:
            log.debug("camera '%s': a client left: %s", self.config.name, error)
        finally:
            self._clients.discard(client)
            sock.close()

    def _stream(self, client: _Client) -> None:
        while not self._stopped:
            with self._news:
                if not client.waiting:
                    self._news.wait(0.5)
                    continue
                parts = client.waiting.popleft()
            if not client.deep:
                client.sock.sendall(parts.picture)
            elif parts.depth or self.config.depth is None:
                client.sock.sendall(parts.picture + parts.depth)


@dataclass(frozen=True, slots=True)
class _Parts:
    """One moment on its way: the picture's part, and the depth's (empty without one)."""

    picture: bytes
    depth: bytes


@dataclass(eq=False, slots=True)
class _Client:
    """Whoever looks, or is about to ask: with depth, what waits to be sent."""

    sock: socket.socket
    looks: bool = False
    deep: bool = False
    waiting: deque[_Parts] = field(default_factory=deque["_Parts"])


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
