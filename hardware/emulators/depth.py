"""Measures depth as a stereo camera with a projector does: noise, steps, shadows, holes.

Both imagers see a point in columns that differ by its disparity ``focal * baseline / depth`` [px].
All that is uncertain is uncertain there, so noise grows with the square of the distance; what the
second imager does not see for something nearer has no depth: a shadow on the left of every edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from robolearn.errors import ConfigError
from robolearn.shapes import Depth

Metres = Float32[NDArray[np.float32], "h w"]

# What the values of one disparity picture share with their neighbours: matching compares windows.
_WINDOW_PX = 4
_FARTHEST_M = 65.535


@dataclass(frozen=True, slots=True)
class DepthSensorConfig:
    """A stereo depth sensor; the defaults are of the class of a RealSense D435 (Intel's data sheet
    of the D400 series: 50 mm between the imagers, 0.28 m shortest distance at 848 x 480).
    """

    # Between the two imagers [m].
    baseline_m: float = 0.05
    # Standard deviation of a disparity [px].
    noise_px: float = 0.08
    # Steps of a disparity [px]; 0: none.
    step_px: float = 0.03125
    # Nothing nearer is measured [m].
    nearest_m: float = 0.28
    # Nor farther [m].
    farthest_m: float = 6.0
    # Share of the pixels without depth for no reason at all.
    holes: float = 0.002

    def __post_init__(self) -> None:
        values = (self.noise_px, self.step_px)
        if not (0 < self.baseline_m < 1 and all(0 <= v < math.inf for v in values)):
            raise ConfigError(
                "a depth sensor's baseline_m is in (0, 1), its noise_px and step_px are at least 0,"
                f" got {self.baseline_m}, {values}"
            )
        if not (0 <= self.nearest_m < self.farthest_m <= _FARTHEST_M and 0 <= self.holes <= 1):
            raise ConfigError(
                "a depth sensor needs 0 <= nearest_m < farthest_m <= 65.535 (16 bits of mm) and"
                f" holes in [0, 1], got {self.nearest_m}, {self.farthest_m}, {self.holes}"
            )


def measured(
    metres: Metres, focal_px: float, config: DepthSensorConfig, rng: np.random.Generator
) -> Depth:
    """Depth [mm] that the sensor tells of the true one ``metres`` (``inf`` where nothing is).

    ``focal_px``: of pictures of this size.
    """
    near = np.isfinite(metres) & (metres > 0)
    gain = np.float32(focal_px * config.baseline_m)
    disparity = np.divide(gain, metres, out=np.zeros_like(metres), where=near)
    seen = near & _seen_twice(disparity)
    height, width = metres.shape
    if config.noise_px > 0:
        # Windows of neighbours share their pixels: noise of a coarser grid, enlarged, has the same
        # patches. Linear interpolation takes a part of it, which the factor gives back.
        small = rng.standard_normal(
            (height // _WINDOW_PX + 2, width // _WINDOW_PX + 2), dtype=np.float32
        )
        patches = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
        disparity = disparity + np.float32(1.5 * config.noise_px) * patches
    if config.step_px > 0:
        disparity = np.rint(disparity / np.float32(config.step_px)) * np.float32(config.step_px)
    found = np.divide(gain, disparity, out=np.zeros_like(metres), where=disparity > 0)
    seen &= (found >= config.nearest_m) & (found <= config.farthest_m)
    if config.holes > 0:
        seen &= rng.random(metres.shape, dtype=np.float32) >= config.holes
    return np.where(seen, np.rint(1000.0 * found), 0).astype(np.uint16)


def _seen_twice(disparity: Metres) -> NDArray[np.bool_]:
    """Where the second imager, to the right of the first, sees the point, too: no point right of it
    in the first picture may come to its left in the second.
    """
    columns = np.arange(disparity.shape[1], dtype=np.float32) - disparity
    leftmost = np.minimum.accumulate(columns[:, ::-1], axis=1)[:, ::-1]
    seen = columns >= 0
    # A slanted surface moves less than a pixel per column.
    seen[:, :-1] &= columns[:, :-1] < leftmost[:, 1:] + 0.5
    return seen
