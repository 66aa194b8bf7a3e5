"""Says how well a camera's place is known: from its corners' scatter, and from the lens's own.

    pixel = f(lens, place);  a place that was fitted with a lens d lens beside the true one lies
    (P^T P)^-1 P^T L d lens beside its own; P, L: slopes of f

The lens's covariance is that of all its views with their poses eliminated (Schur complement): focal
length and centre are not independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.calibration.boards import Intrinsics, Placed, View, seen_pose
from robolearn.calibration.lens import camera_matrix, coefficients
from robolearn.geometry import Pose, Vector, VectorRows, XYRows, inverse
from robolearn.shapes import OwnFloats

# fx, fy, cx, cy, k1, k2, p1, p2.
LensCovariance = Float64[NDArray[np.float64], "8 8"]
Slopes = Float64[NDArray[np.float64], "_ _"]


@dataclass(frozen=True, slots=True)
class PlaceError:
    """Standard errors of a camera's position along the table's axes [m] and of its orientation
    about them [rad].
    """

    position_m: Vector
    rotation_rad: Vector


def lens_covariance(lens: Intrinsics, views: Sequence[View]) -> LensCovariance:
    """Of the lens that these views told; zero where there are none (a lens that was given)."""
    told, squares, count = np.zeros((8, 8)), 0.0, 0
    for view in views:
        T = seen_pose(view, lens.focal_px, lens.centre_px, lens.distortion)
        if T is None:
            continue
        P, L, left = _slopes(view.points, view.pixels, T, lens)
        told += L.T @ L - L.T @ P @ np.linalg.solve(P.T @ P, P.T @ L)
        squares += float(left @ left)
        count += len(left) - 6
    if count <= 8:
        return np.zeros((8, 8))
    return np.linalg.inv(told) * squares / (count - 8)


def place_error(
    points: VectorRows, pixels: XYRows, lens: Intrinsics, placed: Placed, covariance: LensCovariance
) -> PlaceError:
    """Of a camera that sees ``points [n, 3]`` [m] at ``pixels [n, 2]``; ``covariance``: how well
    its lens is known.
    """
    T = inverse(placed.lens.T_frame_camera)
    P, L, left = _slopes(points, pixels, T, lens)
    H = np.linalg.inv(P.T @ P)
    # Few corners scatter by chance less than those of the lens's own pictures did.
    scatter = max(float(left @ left) / max(1, len(left) - 6), 0.5 * lens.rms_px**2)
    pull = H @ P.T @ L
    own = H * scatter + pull @ covariance @ pull.T
    # From moves of the points before the camera to those of the camera over the table.
    R = placed.lens.T_frame_camera[:3, :3]
    A = np.zeros((6, 6))
    A[:3, :3], A[3:, 3:] = -R, -R
    sigma = np.sqrt(np.diag(A @ own @ A.T))
    return PlaceError(sigma[:3], sigma[3:])


def _slopes(
    points: VectorRows, pixels: XYRows, T: Pose, lens: Intrinsics
) -> tuple[Slopes, Slopes, OwnFloats]:
    """By a move ``[2 n, 6]`` of the camera in its own frame (of the points before it, turned about
    the camera) and by the lens's numbers ``[2 n, 8]``, and what is left over ``[2 n]`` [px].
    """
    K = camera_matrix(lens.focal_px, lens.centre_px)
    at = points @ T[:3, :3].T + T[:3, 3]
    bent = coefficients(lens.distortion)
    seen, jacobian = cv2.projectPoints(at, np.zeros(3), np.zeros(3), K, bent)
    J = np.asarray(jacobian, dtype=np.float64)
    left = np.asarray(seen, dtype=np.float64).reshape(-1, 2) - pixels
    return np.concatenate([J[:, 3:6], J[:, :3]], axis=1), J[:, 6:14], left.ravel()
