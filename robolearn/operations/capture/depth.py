"""Judges a camera's depth while it is captured: share, range, stillness, noise and units."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.cell.yaml_edit import set_number
from robolearn.capture.check import units_problem
from robolearn.capture.config import CaptureDepth
from robolearn.capture.folder import DepthPicture
from robolearn.errors import DataError
from robolearn.files import write_atomic
from robolearn.geometry import Pose, Vector
from robolearn.shapes import Floats

# Depth of cells is in mm; numbers are written as they arrive.
DEPTH = CaptureDepth(scale_m=0.001)
# Less of a picture is too little to see a table by, or one object that is turned before it.
LEAST_SHARE, LEAST_OF_ONE = 0.3, 0.02
# What a depth camera of a cell looks at is within [m].
_NEAREST_M, _FARTHEST_M = 0.1, 10.0
# Depth of two pictures at rest differs by less in the middle one of all pixels: [m], or of itself.
_STILL_M, _STILL_SHARE = 0.005, 0.015
# So many pictures of a scan tell units.
_LEAST_PICTURES = 3


def depth_picture_problem(depth_m: DepthPicture, least: float = LEAST_SHARE) -> str:
    """Why depth is of no use, of which a share of the picture is needed; "" when it is."""
    seen = depth_m > 0
    share = float(seen.mean())
    if share < least:
        return (
            f"only {share:.0%} of the picture has depth, at least {least:.0%} is needed:"
            " something is nearer than the camera's shortest distance, or it shines, is of glass,"
            " or black"
        )
    middle_m = float(np.median(depth_m[seen]))
    if not _NEAREST_M <= middle_m <= _FARTHEST_M:
        return (
            f"depth says that what is seen is {middle_m:.3g} m away, expected {_NEAREST_M:g} to"
            f" {_FARTHEST_M:g} m: does the camera send millimetres?"
        )
    return ""


def changed(one: DepthPicture, two: DepthPicture) -> bool:
    """Whether two depths, taken at rest one after the other, are of different places."""
    apart, far = _apart(one, two)
    if not len(apart):
        return True
    return float(np.median(apart / np.maximum(_STILL_M, _STILL_SHARE * far))) > 1.0


def noise_m(one: DepthPicture, two: DepthPicture) -> float:
    """Standard deviation of a pixel's depth [m] by two depths of one place (NaN: by none); edges,
    where one pixel sees now this, now that, are left out.
    """
    apart, _ = _apart(one, two)
    if not len(apart):
        return math.nan
    inner = apart[apart <= 5.0 * float(np.median(apart)) + 0.002]
    # Of the mean of a folded normal distribution, for the difference of two.
    return float(inner.mean()) * math.sqrt(math.pi) / 2.0


def _apart(one: DepthPicture, two: DepthPicture) -> tuple[Floats, Floats]:
    """Difference and distance [m] where both measured something."""
    both = (one > 0) & (two > 0)
    a, b = one[both].astype(np.float64), two[both].astype(np.float64)
    return np.abs(a - b), 0.5 * (a + b)


@dataclass(slots=True)
class DepthJudge:
    """Gathers what pictures of one camera tell of its depth: noise, and units in a scan."""

    camera: str
    _noises: list[float] = field(default_factory=list[float])
    _far: list[float] = field(default_factory=list[float])
    _measured: list[float] = field(default_factory=list[float])

    def twice(self, one: DepthPicture, two: DepthPicture) -> None:
        """Two depths of one place."""
        found = noise_m(one, two)
        if math.isfinite(found):
            self._noises.append(found)

    def looked_at(self, depth_m: DepthPicture, T_base_camera: Pose, target: Vector) -> None:
        """Depth of a picture whose middle is at ``target`` [m] of the base's frame. DataError as
        soon as the depth is surely in other units.
        """
        h, w = depth_m.shape
        middle = depth_m[h * 3 // 8 : h * 5 // 8 + 1, w * 3 // 8 : w * 5 // 8 + 1]
        if not (middle > 0).any():
            return
        self._measured.append(float(np.median(middle[middle > 0])))
        self._far.append(float((target - T_base_camera[:3, 3]) @ T_base_camera[:3, 2]))
        if len(self._far) < _LEAST_PICTURES:
            return
        text = units_problem(np.array(self._far), np.array(self._measured))
        if text:
            raise DataError(
                f"camera '{self.camera}': {text}. What was taken is kept: correct"
                f" cameras.{self.camera}.depth.scale_m in capture.yaml if all of it is so"
            )

    def store_noise(self, folder: Path) -> float:
        """Write the noise [m] into capture.yaml where it is more than is taken for granted (what is
        wrong at rest, too, does not show in it); returns what was measured (NaN: nothing).
        """
        if not self._noises:
            return math.nan
        found = float(np.median(self._noises))
        if found > DEPTH.noise_m:
            path = folder / "capture.yaml"
            text = path.read_text(encoding="utf-8")
            where = ("cameras", self.camera, "depth", "noise_m")
            write_atomic(path, set_number(text, where, found))
        return found
