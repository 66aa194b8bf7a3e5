"""Fixes the camera contract: pictures with capture times, and typed errors for cameras that lie.

A camera that hangs keeps its connection open, one that freezes keeps sending, and most clients
queue what nobody reads. So a thread takes every picture as it comes and keeps the newest ones; each
has the sender's own time if there is one, and always the monotonic time of its arrival; and
:class:`FrameChecks` looks at what arrives, not at what the client says about its connection.

| what happens | error | lasts |
|---|---|---|
| no picture for ``max_age_s`` | StaleSignalError | until the next one, or the source gives up |
| the same picture for ``frozen_s`` | StaleSignalError | until it changes |
| black for ``black_s`` | CameraError | until there is light |
| depth measured nowhere for ``black_s`` | CameraError | until it is measured |
| another size than configured, no depth | SpecMismatchError | until :meth:`Camera.connect` |
| sender's clock runs backwards or jumps ahead | ClockError | until :meth:`Camera.connect` |
| unplugged, refused, not a picture | RobotConnectionError | until :meth:`Camera.connect` |
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from hardware.shapes import ResizedDepth
from robolearn.errors import (
    CameraError,
    ClockError,
    ConfigError,
    RobolearnError,
    RobotConnectionError,
    RobotError,
    SpecMismatchError,
    StaleSignalError,
)
from robolearn.shapes import Depth, Picture
from robolearn.timing.clocks import ClockAnchor

log = logging.getLogger(__name__)
_KEPT = 64
# A sender's stamp may lead our clock by its rounding and by the reading of two clocks.
_LEAD_S = 0.005


@dataclass(frozen=True, slots=True)
class RawFrame:
    """What a source reads: RGB ``[height, width, 3]``, the sender's time [s] (NaN: it has none), of
    a camera that measures it the depth ``[height, width]`` [mm].
    """

    image: Picture
    device_t_s: float = math.nan
    # Of the same moment, seen from the same place: pixel by pixel the picture's.
    depth: ResizedDepth | None = None
    # The plain JPEG of which the picture was decoded, as it came; empty where it is none.
    file: bytes = b""


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture, RGB ``[height, width, 3]``, read-only, and the depth ``[height, width]`` [mm] of
    its pixels where the camera measures it; ``index`` counts since the connection.

    ``t_ns`` is the best estimate of the time of exposure on this machine's monotonic clock,
    ``received_ns`` when it had arrived, ``device_t_s`` the sender's stamp as it came (or NaN).
    """

    index: int
    t_ns: int
    received_ns: int
    device_t_s: float
    image: Picture
    depth: Depth | None = None
    # As in :class:`RawFrame`.
    file: bytes = b""


@runtime_checkable
class FrameSource(Protocol):
    """A connected device, used by one thread only."""

    def read(self) -> RawFrame:
        """The next picture, within a bound; raises StaleSignalError or RobotConnectionError."""
        ...

    def close(self) -> None:
        """Release the device; safe to call twice."""
        ...


@runtime_checkable
class Camera(Protocol):
    """A stream of pictures that any number of readers share."""

    @property
    def config(self) -> StreamConfig:
        """Size, rate and limits."""
        ...

    def connect(self) -> None:
        """Open the device and wait for the first picture. Calling it again is the only way back
        after the errors that last.
        """
        ...

    def latest(self) -> Frame:
        """The newest picture, or the typed error that says what is wrong with the stream."""
        ...

    def since(self, index: int) -> list[Frame]:
        """Kept pictures whose index is larger, oldest first (never raises; -1: all)."""
        ...

    def wait(self, index: int, timeout_s: float) -> Frame:
        """The newest picture with a larger index, waiting for it; raises like :meth:`latest`."""
        ...

    def close(self) -> None:
        """Release the device; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """What a camera must deliver, and what is still fresh."""

    # Camera's name; its signal is ``<name>/image``.
    name: str
    # Width of the camera's picture [px]; another one is an error.
    width: int
    # Height of the camera's picture [px].
    height: int
    # Pictures per second that are asked for [Hz].
    rate_hz: float = 30.0
    # Older pictures raise StaleSignalError (by their capture time) [s].
    max_age_s: float = 0.25
    # The same picture, bit for bit, for this long is an error [s].
    frozen_s: float = 1.0
    # A black picture for this long is an error [s].
    black_s: float = 0.5
    # Mean grey level below which a picture is black (0 to 255).
    black_level: float = 3.0
    # The sender's stamps: it has none, they are this machine's monotonic clock, or its own.
    clock: Literal["none", "monotonic", "own"] = "none"
    # From exposure to arrival (with stamps of an own clock: of the fastest picture) [s]; found by
    # ``robolearn calibrate latency``.
    latency_s: float = 0.0
    # Time to open the device and get a picture [s].
    connect_s: float = 3.0
    # Whether every picture comes with the depth of its pixels, which is one more signal.
    depth: bool = False

    @property
    def delay_s(self) -> float:
        """What arrival is later than exposure, as far as it is known before a picture came [s]."""
        return 0.0 if self.clock == "monotonic" else self.latency_s

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ConfigError(f"a camera's name has no '/', got '{self.name}'")
        if min(self.width, self.height) < 1 or not 0 < self.rate_hz <= 1000:
            raise ConfigError(
                f"camera '{self.name}': a picture of at least 1 x 1 px and a rate in (0, 1000] Hz"
                f" are needed, got {self.width} x {self.height}, {self.rate_hz}"
            )
        limits = (self.max_age_s, self.frozen_s, self.black_s, self.connect_s)
        if not all(0 < v < math.inf for v in limits) or not 0 <= self.latency_s < 10:
            raise ConfigError(
                f"camera '{self.name}': max_age_s, frozen_s, black_s and connect_s must be positive"
                f" and latency_s in [0, 10), got {limits}, {self.latency_s}"
            )


class FrameChecks:
    """Times and checks one stream of pictures; no thread, no clock of its own."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self._last: Frame | None = None
        self._changed_ns = self._lit_ns = self._measured_ns = 0
        self._anchor = ClockAnchor(f"camera '{config.name}'")

    def take(self, raw: RawFrame, received_ns: int) -> Frame:
        """The frame of a picture that has just arrived; raises SpecMismatchError or ClockError."""
        config, last = self.config, self._last
        height, width = raw.image.shape[:2]
        if raw.image.shape != (config.height, config.width, 3):
            raise SpecMismatchError(
                f"camera '{config.name}' sends {width} x {height} px, expected {config.width} x"
                f" {config.height}; set the camera to that size, or the config to the camera's (and"
                " calibrate it again)"
            )
        if config.depth:
            self._take_depth(raw.depth, received_ns)
        t_ns = self._capture_ns(raw.device_t_s, received_ns)
        raw.image.flags.writeable = False
        index, depth = 0 if last is None else last.index + 1, raw.depth if config.depth else None
        frame = Frame(index, t_ns, received_ns, raw.device_t_s, raw.image, depth, raw.file)
        if last is None or not np.array_equal(last.image, raw.image):
            self._changed_ns = received_ns
        # Every 8th pixel is enough to see light.
        if last is None or float(raw.image[::8, ::8].mean()) >= config.black_level:
            self._lit_ns = received_ns
        self._last = frame
        return frame

    def require_good(self, now_ns: int) -> Frame:
        """The newest frame, unless it is old, frozen or black."""
        config, last = self.config, self._last
        if last is None:
            raise StaleSignalError(f"camera '{config.name}': no picture has arrived yet")
        age_s = (now_ns - last.t_ns) * 1e-9
        if age_s > config.max_age_s:
            raise StaleSignalError(
                f"camera '{config.name}': newest picture is {age_s:.3f} s old (limit"
                f" {config.max_age_s:g} s); check its cable and power, and the load of this machine"
            )
        same_s = (last.received_ns - self._changed_ns) * 1e-9
        if same_s > config.frozen_s:
            raise StaleSignalError(
                f"camera '{config.name}' is frozen: the same picture for {same_s:.2f} s (limit"
                f" {config.frozen_s:g} s); restart the camera"
            )
        dark_s = (last.received_ns - self._lit_ns) * 1e-9
        if dark_s > config.black_s:
            raise CameraError(
                f"camera '{config.name}' is black for {dark_s:.2f} s (limit {config.black_s:g} s);"
                " look for a cap, a shutter, or light that was switched off"
            )
        blind_s = (last.received_ns - self._measured_ns) * 1e-9
        if config.depth and blind_s > config.black_s:
            raise CameraError(
                f"camera '{config.name}' measures no depth anywhere for {blind_s:.2f} s (limit"
                f" {config.black_s:g} s); look for a covered projector or imager, and for things"
                " nearer than its shortest distance"
            )
        return last

    def _take_depth(self, depth: ResizedDepth | None, received_ns: int) -> None:
        config = self.config
        if depth is None or depth.shape != (config.height, config.width):
            got = "none" if depth is None else f"{depth.shape[1]} x {depth.shape[0]} px"
            raise SpecMismatchError(
                f"camera '{config.name}': expected depth of {config.width} x {config.height} px"
                f" with every picture, got {got}; set the camera to that, or leave 'depth' out"
            )
        depth.flags.writeable = False
        # Every 8th pixel is enough to see whether anything is measured.
        if self._last is None or depth[::8, ::8].any():
            self._measured_ns = received_ns

    def _capture_ns(self, device_t_s: float, received_ns: int) -> int:
        config = self.config
        if config.clock == "none":
            return received_ns - round(config.latency_s * 1e9)
        if not math.isfinite(device_t_s):
            raise ClockError(
                f"camera '{config.name}' sends no time stamps, the config says clock:"
                f" {config.clock}; set clock: none and calibrate its latency"
            )
        if config.clock == "monotonic":
            self._anchor.require_forward(device_t_s)
            behind_s = received_ns * 1e-9 - device_t_s
            if behind_s < -_LEAD_S:
                raise ClockError(
                    f"camera '{config.name}': stamped {-behind_s:.3f} s in the future; its clock is"
                    " not this machine's monotonic clock (clock: own)"
                )
            return min(received_ns, round(device_t_s * 1e9))
        t_ns = self._anchor.monotonic_ns(device_t_s, received_ns)
        return t_ns - round(config.latency_s * 1e9)


class StreamedCamera:
    """Reads a source on a thread of its own and keeps the newest pictures.

    ``open_source`` opens the device and is called on that thread; a call that hangs is left
    behind, the next :meth:`connect` starts another thread.
    """

    def __init__(self, config: StreamConfig, open_source: Callable[[], FrameSource]) -> None:
        self._config, self._open = config, open_source
        self._reader: _Reader | None = None

    @property
    def config(self) -> StreamConfig:
        """Size, rate and limits."""
        return self._config

    def connect(self) -> None:
        """Open the device, wait for the first picture."""
        self.close()
        self._reader = _Reader(self._config, self._open)
        try:
            self._reader.wait_good(self._config.connect_s)
        except BaseException:
            self.close()
            raise

    def latest(self) -> Frame:
        """The newest picture."""
        return self._connected().latest()

    def since(self, index: int) -> list[Frame]:
        """Kept pictures after ``index``."""
        return [] if self._reader is None else self._reader.since(index)

    def wait(self, index: int, timeout_s: float) -> Frame:
        """The newest picture after ``index``."""
        return self._connected().wait(index, timeout_s)

    def close(self) -> None:
        """End the thread; a hung one is left behind."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def _connected(self) -> _Reader:
        if self._reader is None:
            raise RobotConnectionError(
                f"camera '{self._config.name}' is not connected; call connect() first"
            )
        return self._reader


class _Reader:
    """One connection: its thread, its newest frames, and what ended it."""

    def __init__(self, config: StreamConfig, open_source: Callable[[], FrameSource]) -> None:
        self._config, self._open = config, open_source
        self._checks = FrameChecks(config)
        self._frames: deque[Frame] = deque(maxlen=_KEPT)
        self._news = threading.Condition()
        self._failed: RobolearnError | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"camera {config.name}", daemon=True)
        self._thread.start()

    def latest(self) -> Frame:
        with self._news:
            self._raise_failure()
            return self._checks.require_good(time.monotonic_ns())

    def since(self, index: int) -> list[Frame]:
        with self._news:
            return [f for f in self._frames if f.index > index]

    def wait(self, index: int, timeout_s: float) -> Frame:
        deadline = time.monotonic() + timeout_s
        with self._news:
            while not self._frames or self._frames[-1].index <= index:
                self._raise_failure()
                left = deadline - time.monotonic()
                if left <= 0 or self._stopped:
                    raise StaleSignalError(
                        f"camera '{self._config.name}': no picture within {timeout_s:.1f} s; check"
                        " its cable and power"
                    )
                self._news.wait(left)
            self._raise_failure()
            return self._checks.require_good(time.monotonic_ns())

    def wait_good(self, timeout_s: float) -> None:
        """Until a picture passes: a device may begin with what it took long ago."""
        deadline = time.monotonic() + timeout_s
        index = -1
        while True:
            try:
                self.wait(index, max(0.0, deadline - time.monotonic()))
            except StaleSignalError:
                if self._failed is not None or time.monotonic() > deadline:
                    raise
                index = max((f.index for f in self.since(-1)), default=-1)
            else:
                return

    def stop(self) -> None:
        self._stopped = True
        # A source's reads are bounded; what still hangs after this belongs to a broken device.
        self._thread.join(1.0)

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        source: FrameSource | None = None
        try:
            source = self._open()
            while not self._stopped:
                raw = source.read()
                received_ns = time.monotonic_ns()
                with self._news:
                    self._frames.append(self._checks.take(raw, received_ns))
                    self._news.notify_all()
        except RobolearnError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001  (a vendor's library; raised by the next reader)
            self._end(RobotError(f"camera '{self._config.name}': {type(error).__name__}: {error}"))
        finally:
            if source is not None:
                source.close()

    def _end(self, error: RobolearnError) -> None:
        if self._stopped:
            return
        log.warning("%s", error)
        with self._news:
            self._failed = error
            self._news.notify_all()
