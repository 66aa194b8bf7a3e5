"""Configures the cameras of a cell: driver, what it must deliver, how it sees, what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import cv2
import numpy as np

from hardware.devices.camera import FrameSource, StreamConfig, StreamedCamera
from hardware.devices.driver_config import make_driver_config
from hardware.shapes import ResizedDepth, ResizedPicture
from robolearn.calibration.lens import LensConfig
from robolearn.errors import ConfigError, did_you_mean
from robolearn.shapes import Depth, Picture
from robolearn.spec import SignalSpec
from robolearn.table import CONFIG, Table


@runtime_checkable
class CameraDriverConfig(Protocol):
    """What every camera driver's config can do."""

    def build(self, stream: StreamConfig) -> FrameSource:
        """Open the device."""
        ...


CAMERAS = Table[type[CameraDriverConfig]](
    {
        "mjpeg": "hardware.drivers.cameras.mjpeg:MjpegConfig",
        "opencv": "hardware.drivers.cameras.opencv:OpenCVConfig",
        "realsense": "hardware.drivers.cameras.realsense:RealSenseConfig",
        "fake": "hardware.drivers.fakes.camera:FakeCameraConfig",
    },
    what="camera driver",
    group="robolearn.devices",
    kind="camera",
    wanted=CONFIG,
)


@dataclass(frozen=True, slots=True)
class CameraConfig:
    """One camera of a cell."""

    # ``kind`` (mjpeg, opencv, realsense, fake) and that driver's keys.
    driver: dict[str, Any]
    # Name, size, rate, limits, latency.
    stream: StreamConfig
    # Calibration at that size; needed to find tags.
    lens: LensConfig | None = None
    # Width and height of the signal's pictures [px]; default: the camera's.
    recorded: tuple[int, int] | None = None
    # Whether the camera is a signal of the robot (False: only a tracker looks through it).
    signal: bool = True

    def __post_init__(self) -> None:
        if self.recorded is not None and min(self.recorded) < 1:
            raise ConfigError(f"recorded is a size of at least 1 x 1 px, got {self.recorded}")

    @property
    def signal_name(self) -> str:
        """``<name>/image``, as the cameras of scenes are named."""
        return f"{self.stream.name}/image"

    @property
    def spec(self) -> SignalSpec:
        """The signal, ``uint8 [height, width, 3]``."""
        width, height = self.recorded or (self.stream.width, self.stream.height)
        return SignalSpec(
            self.signal_name, (height, width, 3), rate_hz=self.stream.rate_hz, dtype="uint8"
        )

    @property
    def depth_spec(self) -> SignalSpec:
        """The depth of its pixels, ``<name>/depth``, ``uint16 [height, width]``."""
        name, size = f"{self.stream.name}/depth", self.spec.shape[:2]
        return SignalSpec(name, size, "mm", self.stream.rate_hz, "uint16")

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        """The robot's signals of this camera: none, the picture, or picture and depth."""
        seen = (self.spec, self.depth_spec) if self.stream.depth else (self.spec,)
        return seen if self.signal else ()

    def driver_config(self) -> CameraDriverConfig:
        """The driver's config; raises ConfigError for an unknown kind or key."""
        where = f"camera '{self.stream.name}', driver"
        return make_driver_config(self.driver, CAMERAS.find, where=where)

    def build(self) -> StreamedCamera:
        """A camera that is not connected yet."""
        driver = self.driver_config()
        open_source: Callable[[], FrameSource] = lambda: driver.build(self.stream)  # noqa: E731
        return StreamedCamera(self.stream, open_source)

    def shown(self, image: Picture) -> ResizedPicture:
        """The picture as the signal has it."""
        if self.recorded is None or self.recorded == (self.stream.width, self.stream.height):
            return image
        small = cv2.resize(image, self.recorded, interpolation=cv2.INTER_AREA)
        return np.asarray(small, dtype=np.uint8)

    def measured(self, depth: Depth) -> ResizedDepth:
        """Depth as the signal has it: of the nearest pixel, for a mean over an edge is nowhere."""
        if self.recorded is None or self.recorded == (self.stream.width, self.stream.height):
            return depth
        small = cv2.resize(depth, self.recorded, interpolation=cv2.INTER_NEAREST_EXACT)
        return np.asarray(small, dtype=np.uint16)


def require_cameras(cameras: Sequence[CameraConfig]) -> None:
    """Raise ConfigError when two cameras share a name."""
    names = [c.stream.name for c in cameras]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigError(f"cameras need different names; {twice} occur(s) more than once")


def require_camera(name: str, cameras: Sequence[CameraConfig], *, key: str) -> None:
    """Raise ConfigError when ``key`` names a camera (not "") that is none of ``cameras``."""
    names = [c.stream.name for c in cameras]
    if name and name not in names:
        raise ConfigError(
            f"{key}: no camera '{name}'.{did_you_mean(name, names)} There are: {names}"
        )
