"""Reads Intel RealSense colour and depth by ``pyrealsense2`` (extra ``realsense``).

Written from the SDK's documentation (librealsense 2.x, "rs2::frame"); not tried on a device: a
first run with ``robolearn hardware check`` says more than this file.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.devices.camera import FrameSource, RawFrame, StreamConfig
from robolearn.errors import MissingDependencyError, RobotConnectionError, StaleSignalError


@dataclass(frozen=True, slots=True)
class RealSenseConfig:
    """Which device."""

    # Serial number ("": the first one found).
    serial: str = ""
    # Longest wait for a picture [s].
    timeout_s: float = 1.0

    def build(self, stream: StreamConfig) -> FrameSource:
        """Start the stream. Raises MissingDependencyError without the SDK."""
        try:
            sdk = importlib.import_module("pyrealsense2")
        except ImportError as error:
            raise MissingDependencyError(
                f"camera '{stream.name}': kind 'realsense' needs pyrealsense2 ({error}); install it"
                " with: pip install 'robolearn[realsense]'"
            ) from error
        return RealSenseSource(self, stream, sdk)


class RealSenseSource:
    """One pipeline; stamps are the device's clock where the SDK maps it, in seconds."""

    def __init__(self, config: RealSenseConfig, stream: StreamConfig, sdk: Any) -> None:
        self._config, self._name = config, stream.name
        self._pipeline = sdk.pipeline()
        settings = sdk.config()
        if config.serial:
            settings.enable_device(config.serial)
        settings.enable_stream(
            sdk.stream.color, stream.width, stream.height, sdk.format.rgb8, round(stream.rate_hz)
        )
        if stream.depth:
            settings.enable_stream(
                sdk.stream.depth,
                stream.width,
                stream.height,
                sdk.format.z16,
                round(stream.rate_hz),
            )
        try:
            profile = self._pipeline.start(settings)
        except RuntimeError as error:
            raise RobotConnectionError(
                f"camera '{stream.name}': RealSense {config.serial or '(any)'} does not start"
                f" {stream.width} x {stream.height} at {stream.rate_hz:g} Hz: {error}; plug it into"
                " a USB 3 port and check its size and rate"
            ) from error
        self._running = True
        self._align: Any = None
        self._mm = 1.0
        if stream.depth:
            # What a step of the sensor's numbers is differs between models, and can be set.
            self._mm = 1e3 * float(profile.get_device().first_depth_sensor().get_depth_scale())
            # Depth as seen from the colour sensor, pixel by pixel.
            self._align = sdk.align(sdk.stream.color)

    def read(self) -> RawFrame:
        """The next colour picture, with depth where it is asked for."""
        try:
            frame = self._pipeline.wait_for_frames(round(1e3 * self._config.timeout_s))
            if self._align is not None:
                frame = self._align.process(frame)
            colour = frame.get_color_frame()
        except RuntimeError as error:
            raise StaleSignalError(
                f"camera '{self._name}': no picture within {self._config.timeout_s:g} s ({error});"
                " check the cable, then connect again"
            ) from error
        # The SDK reuses its memory.
        image = np.array(colour.get_data(), dtype=np.uint8)
        device_t_s = float(colour.get_timestamp()) * 1e-3
        if self._align is None:
            return RawFrame(image, device_t_s)
        steps = np.asanyarray(frame.get_depth_frame().get_data()).astype(np.float64)
        # 16 bits of mm end at 65 m, which is beyond what any of them measures.
        depth = np.clip(np.rint(steps * self._mm), 0, 65535).astype(np.uint16)
        return RawFrame(image, device_t_s, depth)

    def close(self) -> None:
        """Stop the stream."""
        if self._running:
            self._running = False
            self._pipeline.stop()
