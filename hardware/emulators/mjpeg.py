"""Emulates a network camera: MJPEG over HTTP with the sender's time stamps, and faults on command.

``multipart/x-mixed-replace``, one JPEG per part with ``Content-Length`` and ``X-Timestamp`` (time
of exposure, this host's monotonic clock, seconds). A client that asks for ``/...?depth=1`` gets
after each picture a part more with its stamp: a PNG of 16 bits, depth [mm], lossless.

What is drawn comes from whoever builds the emulator; here it passes the camera's response (gain,
gamma, noise), waits for its latency, and is sent to every client. A client that reads slowly misses
pictures, it never holds up the others.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from hardware.emulators.depth import DepthSensorConfig, Metres, measured
from hardware.shapes import ResizedDepth, ResizedPicture
from hardware.wire.mjpeg import BOUNDARY, DEPTH_QUERY
from robolearn.errors import ConfigError, DataError, RobotConnectionError, did_you_mean
from robolearn.shapes import OwnFloats, OwnIndex, Picture


@dataclass(frozen=True, slots=True)
class Exposure:
    """What light came in at ``t_ns`` [ns, monotonic]: ``picture [height, width, 3]`` RGB, and for a
    depth sensor the true depth ``metres [height, width]`` and the focal length of that picture.
    """

    t_ns: int
    picture: Picture
    metres: Metres | None = None
    focal_px: float = math.nan


Draw = Callable[[], Exposure]
log = logging.getLogger(__name__)
FAULTS = ("frozen", "black", "stall", "drop", "size", "clock_jump", "slow", "blind")
_REQUEST, _CLIENTS = 4096, 8


@dataclass(frozen=True, slots=True)
class CameraEmulatorConfig:
    """An emulated camera: where it serves, and what its optics, sensor and network do."""

    # Its name; faults on command are addressed by it.
    name: str = "top"
    # TCP port of the stream (0: any free one).
    port: int = 30130
    # Width of the picture [px].
    width: int = 640
    # Height of the picture [px].
    height: int = 480
    # Pictures per second [Hz].
    rate_hz: float = 30.0
    # From exposure until a picture leaves [s].
    latency_s: float = 0.03
    # Width of a uniform addition to the latency [s].
    latency_jitter_s: float = 0.004
    # Standard deviation of the sensor's noise (grey levels of 255).
    noise: float = 2.0
    # Factor of red, green and blue (white balance, exposure).
    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    # Exponent of the response: out = in ** gamma.
    gamma: float = 1.0
    # JPEG quality, 1 to 100.
    quality: int = 90
    # Share of the pictures that never leave.
    dropout_rate: float = 0.0
    # A sensor that measures the depth of every pixel; null: it sees colours alone.
    depth: DepthSensorConfig | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"camera port must be 0 (any free one) to 65535, got {self.port}")
        if not (8 <= self.width <= 4096 and 8 <= self.height <= 4096 and 0 < self.rate_hz <= 240):
            raise ConfigError(
                "width and height in [8, 4096] and rate_hz in (0, 240] are needed, got"
                f" {self.width}, {self.height}, {self.rate_hz}"
            )
        spreads = (self.latency_s, self.latency_jitter_s, self.noise)
        if not all(0 <= v < math.inf for v in spreads) or not 0 <= self.dropout_rate <= 1:
            raise ConfigError(
                "latency, jitter and noise must be at least 0 and dropout_rate in [0, 1], got"
                f" {spreads}, {self.dropout_rate}"
            )
        if not (1 <= self.quality <= 100 and self.gamma > 0 and min(self.gain) >= 0):
            raise ConfigError(
                "quality in [1, 100], gamma > 0 and gain >= 0 are needed, got"
                f" {self.quality}, {self.gamma}, {self.gain}"
            )


class CameraEmulator:
    """Serves one camera; :meth:`run` draws on the calling thread, clients have threads of their
    own.
    """

    def __init__(
        self, config: CameraEmulatorConfig, address: str, draw: Draw, rng: np.random.Generator
    ) -> None:
        self.config = config
        self.sent = self.skipped = 0
        self._draw, self._rng = draw, rng
        self._faults: dict[str, tuple[float, float]] = {}
        self._frozen: _Taken | None = None
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
        exposure, c = self._draw(), self.config
        if self._rng.random() < c.dropout_rate:
            return
        stamp_s = exposure.t_ns * 1e-9 + self._amount("clock_jump")
        picture = self._with_faults(exposure)
        depth = b"" if picture.depth is None else png(picture.depth, c.name)
        parts = _Parts(
            _part("image/jpeg", stamp_s, self._jpeg(picture.image)),
            _part("image/png", stamp_s, depth) if depth else b"",
        )
        delay_s = c.latency_s + c.latency_jitter_s * self._rng.random() + self._amount("slow")
        self._queue.append((exposure.t_ns + round(delay_s * 1e9), parts))

    def _jpeg(self, image: ResizedPicture) -> bytes:
        options = [cv2.IMWRITE_JPEG_QUALITY, self.config.quality]
        done, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
        if not done:
            raise DataError(f"camera '{self.config.name}': no JPEG of {image.shape}")
        return data.tobytes()

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

    def _with_faults(self, exposure: Exposure) -> _Taken:
        sensor, metres = self.config.depth, exposure.metres
        taken = _Taken(respond(exposure.picture, self.config, self._rng), None)
        # Nobody asks for depth: none is measured.
        if self._deep and sensor is not None and metres is not None:
            depth = measured(metres, exposure.focal_px, sensor, self._rng)
            taken = _Taken(taken.image, np.zeros_like(depth) if self._active("blind") else depth)
        if self._active("frozen"):
            self._frozen = taken if self._frozen is None else self._frozen
            taken = self._frozen
        if self._active("black"):
            taken = _Taken(np.zeros_like(taken.image), taken.depth)
        if self._active("size"):
            depth = None if taken.depth is None else np.ascontiguousarray(taken.depth[::2, ::2])
            taken = _Taken(np.ascontiguousarray(taken.image[::2, ::2]), depth)
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
class _Taken:
    """What the sensor made of an exposure."""

    image: ResizedPicture
    depth: ResizedDepth | None


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


def png(depth: ResizedDepth, name: str) -> bytes:
    """Depth as a PNG of 16 bits; by run lengths: more effort finds little in noise."""
    fast = [cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    done, data = cv2.imencode(".png", depth, [cv2.IMWRITE_PNG_COMPRESSION, 1, *fast])
    if not done:
        raise DataError(f"camera '{name}': no PNG of {depth.shape}")
    return data.tobytes()


def wants_depth(path: str) -> bool:
    """Whether a request asks for depth, too."""
    return "1" in urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get(DEPTH_QUERY, [])


def respond(image: Picture, config: CameraEmulatorConfig, rng: np.random.Generator) -> Picture:
    """What the sensor makes of the light: gain, gamma, noise."""
    if config.gain == (1.0, 1.0, 1.0) and config.gamma == 1.0:
        light = image
    else:
        grey = np.arange(256)[:, None] / 255.0
        table = 255.0 * np.clip(grey * np.array(config.gain), 0.0, 1.0) ** config.gamma
        light = np.stack([table[image[..., i], i] for i in range(3)], axis=-1)
        light = np.round(light).astype(np.uint8)
    if config.noise <= 0:
        return np.ascontiguousarray(light)
    # A table of noise, shifted at random: drawing a million normal numbers takes 20 ms.
    strip = rng.normal(scale=config.noise, size=4096).round()
    rolls = rng.integers(0, 4096, size=light.shape[0])
    rows = np.ascontiguousarray(light).reshape(len(light), light.shape[1] * 3)
    # What is added, then what is taken away: bytes that stop at their limits are quickest.
    brighter, darker = (_rolled(part, rolls, rows.shape[1]) for part in (strip, -strip))
    cv2.add(rows, brighter, dst=brighter)
    cv2.subtract(brighter, darker, dst=brighter)
    return brighter.reshape(light.shape)


def _rolled(strip: OwnFloats, rolls: OwnIndex, numbers: int) -> NDArray[np.uint8]:
    """Row by row ``numbers`` values of ``strip`` from another beginning; none below 0."""
    part = np.clip(strip, 0.0, 255.0).astype(np.uint8)
    endless = np.tile(part, 2 + numbers // len(part))
    return np.lib.stride_tricks.sliding_window_view(endless, numbers)[rolls]


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
