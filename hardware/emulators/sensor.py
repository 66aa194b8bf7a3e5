"""Makes pictures of light, as a network camera does: response, noise, compression, loss, latency.

Nothing here knows a wire or a clock: the emulator (``mjpeg.py``) sends what :class:`Sensor` makes,
a reality in process looks at it (:class:`PictureStream`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from hardware.drivers.cameras.mjpeg import decode
from hardware.emulators.depth import DepthSensorConfig, Metres, measured
from hardware.shapes import ResizedDepth, ResizedPicture
from robolearn.errors import ConfigError, DataError
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


@dataclass(frozen=True, slots=True)
class Taken:
    """What the sensor made of an exposure."""

    image: ResizedPicture
    depth: ResizedDepth | None


class Sensor:
    """One camera's; ``rng`` draws its noise, what it loses and how late a picture is."""

    def __init__(self, config: CameraEmulatorConfig, rng: np.random.Generator) -> None:
        self.config, self._rng = config, rng

    def loses(self) -> bool:
        """Whether the next picture never leaves."""
        return bool(self._rng.random() < self.config.dropout_rate)

    def taken(self, exposure: Exposure, *, depth: bool = True) -> Taken:
        """What the sensor makes of an exposure; ``depth``: whether anybody asks for it."""
        image, metres = respond(exposure.picture, self.config, self._rng), exposure.metres
        if not depth or self.config.depth is None or metres is None:
            return Taken(image, None)
        return Taken(image, measured(metres, exposure.focal_px, self.config.depth, self._rng))

    def jpeg(self, image: ResizedPicture) -> bytes:
        """The picture as it is sent."""
        options = [cv2.IMWRITE_JPEG_QUALITY, self.config.quality]
        done, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
        if not done:
            raise DataError(f"camera '{self.config.name}': no JPEG of {image.shape}")
        return data.tobytes()

    def latency_s(self) -> float:
        """From an exposure until its picture leaves."""
        return self.config.latency_s + self.config.latency_jitter_s * float(self._rng.random())


@dataclass(frozen=True, slots=True)
class Arrived:
    """A picture as a client has it: exposed at ``t_ns``, decoded."""

    t_ns: int
    image: Picture
    # [mm], of a camera that measures it.
    depth: ResizedDepth | None


class PictureStream:
    """What a client of one camera gets to see, on any clock: call :meth:`tick` at least as often as
    pictures should be exposed.
    """

    def __init__(
        self,
        config: CameraEmulatorConfig,
        draw: Callable[[int], Exposure],
        rng: np.random.Generator,
    ) -> None:
        """``draw(now_ns)``: the light that comes in now."""
        self._sensor, self._draw = Sensor(config, rng), draw
        self._period_ns = round(1e9 / config.rate_hz)
        self._next_ns = 0
        self._queue: deque[tuple[int, Arrived]] = deque()

    def tick(self, now_ns: int) -> list[Arrived]:
        """Expose when due; the pictures that arrive by ``now_ns``."""
        if now_ns >= self._next_ns:
            # A late exposure is skipped, never repeated.
            late_ns = now_ns - self._next_ns if self._next_ns else 0
            self._next_ns = now_ns - late_ns % self._period_ns + self._period_ns
            self._expose(now_ns)
        found: list[Arrived] = []
        while self._queue and self._queue[0][0] <= now_ns:
            found.append(self._queue.popleft()[1])
        return found

    def _expose(self, now_ns: int) -> None:
        sensor = self._sensor
        if sensor.loses():
            return
        exposure = self._draw(now_ns)
        taken = sensor.taken(exposure)
        image = decode(sensor.jpeg(taken.image), sensor.config.name)
        due_ns = exposure.t_ns + round(sensor.latency_s() * 1e9)
        self._queue.append((due_ns, Arrived(exposure.t_ns, image, taken.depth)))


def png(depth: ResizedDepth, name: str) -> bytes:
    """Depth as a PNG of 16 bits; by run lengths: more effort finds little in noise."""
    fast = [cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    done, data = cv2.imencode(".png", depth, [cv2.IMWRITE_PNG_COMPRESSION, 1, *fast])
    if not done:
        raise DataError(f"camera '{name}': no PNG of {depth.shape}")
    return data.tobytes()


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
