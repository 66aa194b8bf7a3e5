"""Describes printed square tags (ArUco, AprilTag) on an object: which, where, how they look.

A tag's corners go clockwise from its upper left as seen from above with the tag's y up, as OpenCV
returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from robolearn.errors import ConfigError, did_you_mean

Corners = Float64[NDArray[np.float64], "4 2"]
Cells = Bool[NDArray[np.bool_], "n n"]

DICTIONARIES: dict[str, int] = {
    "4x4_50": cv2.aruco.DICT_4X4_50,
    "5x5_100": cv2.aruco.DICT_5X5_100,
    "6x6_250": cv2.aruco.DICT_6X6_250,
    "apriltag_16h5": cv2.aruco.DICT_APRILTAG_16h5,
    "apriltag_36h11": cv2.aruco.DICT_APRILTAG_36h11,
}


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag on the upper side of an object."""

    # Number within its dictionary.
    id: int
    # Its centre in the object's frame [m].
    at_m: tuple[float, float]
    # Side of its black square [m].
    size_m: float
    # Rotation in the object's frame, counter-clockwise [rad].
    yaw_rad: float = 0.0

    def __post_init__(self) -> None:
        if self.id < 0 or not self.size_m > 0:
            raise ConfigError(
                f"a tag has an id >= 0 and a size > 0 m, got {self.id}, {self.size_m}"
            )


def dictionary(name: str) -> cv2.aruco.Dictionary:
    """A dictionary of tags by name."""
    if name not in DICTIONARIES:
        raise ConfigError(
            f"no dictionary of tags '{name}'.{did_you_mean(name, DICTIONARIES)}"
            f" There are: {sorted(DICTIONARIES)}"
        )
    return cv2.aruco.getPredefinedDictionary(DICTIONARIES[name])


def require_tags(tags: Sequence[Tag], name: str) -> None:
    """Raise ConfigError unless the tags are different ones of this dictionary."""
    count = len(dictionary(name).bytesList)
    ids = [t.id for t in tags]
    if not ids or len(set(ids)) != len(ids) or max(ids) >= count:
        raise ConfigError(f"tags: expected different ids below {count} ('{name}'), got {ids}")


def corners(tag: Tag) -> Corners:
    """Corners ``[4, 2]`` of the black square in the object's frame [m]."""
    half = tag.size_m / 2
    square = np.array([[-half, half], [half, half], [half, -half], [-half, -half]])
    c, s = np.cos(tag.yaw_rad), np.sin(tag.yaw_rad)
    turned = square @ np.array([[c, s], [-s, c]])
    return np.asarray(turned + np.array(tag.at_m), dtype=np.float64)


def black_cells(name: str, tag_id: int) -> Cells:
    """Which cells of a tag are black ``[n, n]``, rows from the top, with the black frame."""
    marks = dictionary(name)
    side = marks.markerSize + 2
    drawn = np.asarray(cv2.aruco.generateImageMarker(marks, tag_id, side), dtype=np.uint8)
    return np.array(drawn < 128, dtype=np.bool_)
