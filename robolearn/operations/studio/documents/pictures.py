"""Makes JPEGs of pictures, small enough for a page."""

from __future__ import annotations

import base64
from pathlib import Path

import cv2
import numpy as np

from robolearn.capture.folder import read_capture
from robolearn.shapes import Picture

THUMBNAIL_PX = 320
_WIDEST_PX = 960


def capture_picture(path: Path, number: int, widest_px: int = THUMBNAIL_PX) -> bytes:
    """A picture of a capture as JPEG. IndexError for one that it does not have, DataError for one
    that does not read.
    """
    frames = read_capture(path).frames
    if not 0 <= number < len(frames):
        raise IndexError(f"'{path}' has {len(frames)} pictures, got number {number}")
    return as_jpeg(frames[number].picture(), widest_px)


def as_jpeg(picture: Picture, widest_px: int) -> bytes:
    """A picture as JPEG, made smaller where it is wider."""
    bgr = np.ascontiguousarray(picture[..., ::-1])
    if bgr.shape[1] > widest_px:
        height = max(1, round(bgr.shape[0] * widest_px / bgr.shape[1]))
        bgr = cv2.resize(bgr, (widest_px, height), interpolation=cv2.INTER_AREA)
    _, jpeg = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 85])
    return jpeg.tobytes()


def as_address(picture: Picture, widest_px: int = _WIDEST_PX) -> str:
    """A picture as a JPEG inside its ``data:`` address."""
    return f"data:image/jpeg;base64,{base64.b64encode(as_jpeg(picture, widest_px)).decode()}"
