"""An arm that lives in memory and a camera that sees grey: drivers behind the contracts."""

from dataclasses import dataclass

import numpy as np

from hardware.devices.camera import RawFrame
from hardware.drivers.fakes.robot import FakeConfig


@dataclass(frozen=True, slots=True)
class SlideArmConfig:
    """What the YAML may say about the arm."""

    # Rate at which it wants set-points [Hz].
    rate_hz: float = 100.0

    def build(self):
        """Make the robot; called in the supervisor's process."""
        return FakeConfig(rate_hz=self.rate_hz).build()


@dataclass(frozen=True, slots=True)
class GreyCameraConfig:
    """What the YAML may say about the camera."""

    # Brightness, 0 to 255.
    level: int = 128

    def build(self, stream):
        """Open the device; it delivers pictures of ``stream``'s size."""
        return GreySource(np.full((stream.height, stream.width, 3), self.level, np.uint8))


class GreySource:
    """Always the same picture."""

    def __init__(self, image):
        self._image = image

    def read(self):
        """The newest picture."""
        return RawFrame(self._image)

    def close(self):
        """Nothing to release."""
