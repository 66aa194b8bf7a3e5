"""Maps between pixels and a cell: intrinsics, distortion, and the camera's pose in a named frame.

Vision's conventions: whole numbers are pixel centres, the camera looks along +z with x to the right
and y down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from robolearn.errors import ConfigError
from robolearn.geometry import CameraMatrix, Pose, VectorRows, XYRows, pose, rotation_from_quat
from robolearn.shapes import Floats

# What a camera is fixed to: the table it looks at, or the arm's flange, with which it moves.
LensFrame = Literal["table", "flange"]


@dataclass(frozen=True, slots=True)
class LensConfig:
    """The calibration of one camera at one size."""

    # Focal lengths in x and y [px].
    focal_px: tuple[float, float]
    # Principal point [px].
    centre_px: tuple[float, float]
    # The camera in its frame [m].
    position_m: tuple[float, float, float]
    # Its orientation there, w x y z (unit length).
    quaternion: tuple[float, float, float, float]
    # OpenCV's coefficients k1 k2 p1 p2 [k3 ...]; none for a straight picture.
    distortion: tuple[float, ...] = ()
    # The frame that position and orientation are given in.
    frame: LensFrame = "table"

    def __post_init__(self) -> None:
        numbers = [*self.focal_px, *self.centre_px, *self.position_m, *self.distortion]
        if min(self.focal_px) <= 0 or not np.isfinite(numbers).all():
            raise ConfigError(
                f"a lens has positive focal lengths and finite numbers, got {self.focal_px},"
                f" {self.centre_px}, {self.position_m}, distortion {self.distortion}"
            )
        # A comparison with NaN is false, too.
        if not abs(float(np.linalg.norm(self.quaternion)) - 1.0) <= 1e-3:
            raise ConfigError(
                f"a camera's quaternion (w x y z) has unit length, got {self.quaternion}"
            )
        if len(self.distortion) not in (0, 4, 5, 8, 12, 14):
            raise ConfigError(
                f"distortion has 4, 5, 8, 12 or 14 coefficients, got {len(self.distortion)}"
            )

    @property
    def K(self) -> CameraMatrix:  # noqa: N802  (the field's name)
        """The camera matrix ``[3, 3]`` [px]."""
        return camera_matrix(self.focal_px, self.centre_px)

    @property
    def T_frame_camera(self) -> Pose:  # noqa: N802  (the field's name)
        """The camera's pose ``[4, 4]`` in the lens's frame."""
        q = np.array(self.quaternion)
        return pose(rotation_from_quat(q / np.linalg.norm(q)), self.position_m)

    @property
    def T_table_camera(self) -> Pose:  # noqa: N802  (the field's name)
        """The camera's pose ``[4, 4]`` in the table's frame; :class:`ConfigError` for a camera
        that moves with the arm.
        """
        if self.frame != "table":
            raise ConfigError(
                f"a camera that stands still over the table is needed here (lens.frame: table);"
                f" this one is fixed to the {self.frame} and moves with the arm. Use a camera of"
                f" the cell, or calibrate this one in the table's frame"
            )
        return self.T_frame_camera

    @property
    def _coefficients(self) -> Floats:
        return coefficients(self.distortion)

    def on_plane(self, pixels: XYRows, height_m: float) -> XYRows:
        """Where the rays of ``pixels [n, 2]`` meet the plane ``height_m`` over the table:
        ``[n, 2]`` [m]. NaN for rays that never do.
        """
        flat = cv2.undistortPoints(
            np.ascontiguousarray(pixels, dtype=np.float64).reshape(-1, 1, 2),
            self.K,
            self._coefficients,
        ).reshape(-1, 2)
        T = self.T_table_camera
        rays = np.column_stack([flat, np.ones(len(flat))]) @ T[:3, :3].T
        with np.errstate(divide="ignore", invalid="ignore"):
            far = (height_m - T[2, 3]) / rays[:, 2]
        far = np.where(np.isfinite(far) & (far > 0), far, np.nan)
        return T[:2, 3] + rays[:, :2] * far[:, None]

    def pixels(self, points: VectorRows) -> XYRows:
        """Where points ``[n, 3]`` of the lens's frame [m] are in the picture, ``[n, 2]`` [px]."""
        T = self.T_frame_camera
        in_camera = (points - T[:3, 3]) @ T[:3, :3]
        out, _ = cv2.projectPoints(
            in_camera.reshape(-1, 1, 3), np.zeros(3), np.zeros(3), self.K, self._coefficients
        )
        return np.asarray(out, dtype=np.float64).reshape(-1, 2)


def camera_matrix(focal_px: tuple[float, float], centre_px: tuple[float, float]) -> CameraMatrix:
    """``[3, 3]`` [px]."""
    (fx, fy), (cx, cy) = focal_px, centre_px
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def coefficients(distortion: tuple[float, ...]) -> Floats:
    """As OpenCV takes them: four zeros for a lens without."""
    return np.array(distortion or (0.0,) * 4, dtype=np.float64)
