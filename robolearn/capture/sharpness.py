"""Tells how blurred a picture is from its sharpest edges, without another one to compare with.

An edge of standard deviation s has a slope in proportion to 1 / s, and blurring it by t makes that
1 / sqrt(s^2 + t^2): the ratio of both slopes tells s (Crete et al., "The blur effect", 2007, use
the same idea). Each direction by itself: motion blurs one of them.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

Grey = UInt8[NDArray[np.uint8], "h w"]

# Edges that are wider (standard deviation) are blurred [px].
WIDEST_EDGE_PX = 2.0
# The picture is blurred by so much more [px].
_BLUR_PX = 2.0
# What is as steep after that as before, nearly, is a shade over much of the picture (12 px).
_SHADE = 1.015
# An edge has a slope of so many grey levels per pixel; flatter ones are shades, or noise.
_SLOPE = 6.0
# Of all pixels so many belong to the sharpest edges.
_SHARPEST = 0.995


def edge_px(grey: Grey) -> float:
    """Standard deviation of the sharpest edges [px], of the direction that is blurred more; 0 for a
    picture without edges. A direction of shades alone tells nothing where the other has edges.
    """
    if min(grey.shape) < 24:
        return 0.0
    image = grey.astype(np.float32)
    more = cv2.GaussianBlur(image, (0, 0), _BLUR_PX)
    edges: list[float] = []
    shades: list[float] = []
    for x, y in ((1, 0), (0, 1)):
        before, after = (_slope(np.asarray(i, dtype=np.float32), x, y) for i in (image, more))
        if before < _SLOPE or after <= 0.0:
            continue
        ratio = max(before / after, 1.0 + 1e-6)
        (edges if ratio > _SHADE else shades).append(_BLUR_PX / math.sqrt(ratio**2 - 1.0))
    return max(edges or shades, default=0.0)


def _slope(image: NDArray[np.float32], x: int, y: int) -> float:
    """Slope of the sharpest edges [levels/px]."""
    slopes = np.abs(cv2.Scharr(image, cv2.CV_32F, x, y)) / 32.0
    return float(np.quantile(slopes[2:-2, 2:-2], _SHARPEST))
