"""Fakes a camera in memory for tests: a moving pattern, and faults to inject."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np

from hardware.devices.camera import FrameSource, RawFrame, StreamConfig
from robolearn.errors import RobotConnectionError, StaleSignalError


@dataclass(slots=True)
class FakeCameraState:
    """What a test may change while the camera runs."""

    frozen: bool = False
    black: bool = False
    blind: bool = False
    stalled: bool = False
    unplugged: bool = False
    size: tuple[int, int] = (0, 0)
    clock_jump_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FakeCameraConfig:
    """Recipe of the fake."""

    # From exposure to arrival [s].
    latency_s: float = 0.0
    # Whether pictures carry the (monotonic) time of exposure.
    stamped: bool = True
    # Faults.
    state: FakeCameraState = field(default_factory=FakeCameraState)

    def build(self, stream: StreamConfig) -> FrameSource:
        """Connect."""
        if self.state.unplugged:
            raise RobotConnectionError(f"camera '{stream.name}': the fake is unplugged")
        return FakeSource(self, stream)


class FakeSource:
    """Counts pictures in grey levels; the first row holds the number in its first pixel. Depth is
    that number of millimetres beyond 70 cm.
    """

    def __init__(self, config: FakeCameraConfig, stream: StreamConfig) -> None:
        self._config, self._stream = config, stream
        self._count = 0

    def read(self) -> RawFrame:
        """The next picture, one period later."""
        state, stream = self._config.state, self._stream
        time.sleep(1.0 / stream.rate_hz)
        if state.unplugged:
            raise RobotConnectionError(f"camera '{stream.name}': unplugged")
        if state.stalled:
            raise StaleSignalError(f"camera '{stream.name}': stalled")
        exposed_s = time.monotonic() + state.clock_jump_s
        if self._config.latency_s:
            time.sleep(self._config.latency_s)
        width, height = state.size if state.size[0] else (stream.width, stream.height)
        self._count += not state.frozen
        image = np.full((height, width, 3), 0 if state.black else 60, dtype=np.uint8)
        image[0, 0] = 0 if state.black else self._count % 250
        device_t_s = exposed_s if self._config.stamped else math.nan
        if not stream.depth:
            return RawFrame(image, device_t_s)
        millimetres = 0 if state.blind else 700 + self._count % 250
        return RawFrame(image, device_t_s, np.full((height, width), millimetres, dtype=np.uint16))

    def close(self) -> None:
        """Nothing to release."""
