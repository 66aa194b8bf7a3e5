"""Tells whether depth pictures lie as their pictures do, by edges: where depth jumps, colours do.

Objects end at the same pixels of both. When edges of depth lie on those of the picture after depth
was mirrored or turned, and not as it is, one of both was stored the other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from robolearn.capture.folder import DepthPicture, Frame
from robolearn.shapes import FloatRows, Floats, Picture

# Pictures are made so wide [px]; so many are looked at, evenly, and so many must have edges.
_WIDTH, _PICTURES, _LEAST = 160, 24, 5
# Depth jumps by this share of itself from one pixel to the next; a picture has so many such pixels.
_JUMP, _EDGES = 0.04, 30
# Edges are as strong as what is around them, within [px]; flatter colours have none (grey levels).
_AROUND, _FLAT = 21, 4.0
# Where depth jumps the picture's edges are about as strong as elsewhere, and so much stronger when
# it is turned, in the middle picture.
_NONE, _THERE = 1.25, 1.5
# So many times as strong as before, and stronger at all in this share of the pictures.
_CLEARLY, _IN_MOST = 1.3, 0.75
TURNS: Mapping[str, tuple[int, ...]] = {
    "left and right exchanged": (1,),
    "upside down and mirrored": (0,),
    "turned by 180 degrees": (0, 1),
}
"""How a depth picture may lie in its picture, and the axes that are turned round then."""
_Edges = Bool[NDArray[np.bool_], "h w"]


def turned_depth(frames: Sequence[Frame]) -> str:
    """What is wrong with how depth of a camera's pictures lies in them; "" where nothing is, or
    they have too few edges to tell.
    """
    shown = [f for f in frames if f.depth_file is not None]
    found = [_agreement(f) for f in shown[:: max(1, len(shown) // _PICTURES)]]
    rows = np.array([row for row in found if row is not None])
    if len(rows) < _LEAST:
        return ""
    for k, how in enumerate(TURNS, start=1):
        better: Floats = rows[:, k] / rows[:, 0]
        given, other = float(np.median(rows[:, 0])), float(np.median(rows[:, k]))
        clear = given < _NONE and other > _THERE and float(np.median(better)) > _CLEARLY
        if clear and float((better > 1.0).mean()) >= _IN_MOST:
            return (
                f"depth pictures lie {how} in their pictures: edges of both lie on each other when"
                " one of them is turned; write both as the camera sees them"
            )
    return ""


def _agreement(frame: Frame) -> list[float] | None:
    """How strong the picture's edges are where depth jumps, over the mean of all: with depth as it
    is, and turned in every way; None for a picture without such jumps.
    """
    slopes = _slopes(frame.picture())
    size = (slopes.shape[1], slopes.shape[0])
    depth = cv2.resize(frame.depth_m(), size, interpolation=cv2.INTER_NEAREST)
    jumps = _jumps(np.asarray(depth, dtype=np.float32))
    if int(jumps.sum()) < _EDGES:
        return None
    whole = float(slopes.mean())
    if whole <= 0.0:
        return None
    turned = [jumps, *(np.flip(jumps, axes) for axes in TURNS.values())]
    return [max(1e-3, float(slopes[edges].mean()) / whole) for edges in turned]


def _slopes(picture: Picture) -> FloatRows:
    """How steep a picture's colours are ``[h, w]``, smoothed by a pixel or two, against what is
    around: the edges of a printed board are no stronger than those of a plain box.
    """
    height, width = picture.shape[:2]
    size = (_WIDTH, max(1, round(height * _WIDTH / width)))
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    slope = np.hypot(cv2.Sobel(small, cv2.CV_32F, 1, 0), cv2.Sobel(small, cv2.CV_32F, 0, 1))
    steepest: FloatRows = np.asarray(slope, dtype=np.float64).max(axis=2)
    smooth: FloatRows = np.asarray(cv2.blur(steepest, (3, 3)), dtype=np.float64)
    usual: FloatRows = np.asarray(cv2.blur(smooth, (_AROUND, _AROUND)), dtype=np.float64)
    return smooth / (usual + _FLAT)


def _jumps(depth: DepthPicture) -> _Edges:
    """Where depth jumps; beside pixels without depth nobody knows."""
    cell = np.ones((3, 3), np.uint8)
    far, near = cv2.dilate(depth, cell), cv2.erode(depth, cell)
    return np.asarray((near > 0) & (far - near > _JUMP * np.maximum(near, 1e-6)), dtype=np.bool_)
