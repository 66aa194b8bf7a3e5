"""What is stated about a lens and a place holds for cameras that are known, drawn many times."""

from __future__ import annotations

import cv2
import numpy as np

from robolearn.calibration.boards import (
    View,
    held_out_px,
    intrinsics,
    place,
    place_held_out_px,
)
from robolearn.calibration.place_error import lens_covariance, place_error
from robolearn.geometry import rot_x, rot_y, rotvec_from_rotation
from tests.robolearn.calibration.studio import SIZE

LENS = np.array([620.0, 615.0, 330.0, 236.0, -0.15, 0.04, 0.001, -0.002])
K = np.array([[LENS[0], 0, LENS[2]], [0, LENS[1], LENS[3]], [0, 0, 1]])
columns, rows = np.meshgrid(np.arange(7) * 0.03, np.arange(5) * 0.03)
POINTS = np.stack([columns, rows, 0 * rows], axis=-1).reshape(-1, 3)
# Corners are off by so much [px]; draws.
NOISE_PX, DRAWS = 0.3, 30


def shown(rng: np.random.Generator, noise_px: float) -> tuple[View, np.ndarray]:
    """The board before the camera, and where the camera is in its frame."""
    turn = rot_x(np.pi + rng.uniform(-0.6, 0.6)) @ rot_y(rng.uniform(-0.6, 0.6))
    move = np.array([*rng.uniform(-0.12, 0.12, 2), rng.uniform(0.4, 0.6)])
    move -= turn @ POINTS.mean(axis=0)
    at, _ = cv2.projectPoints(POINTS, cv2.Rodrigues(turn)[0], move, K, LENS[4:])
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = turn.T, -turn.T @ move
    pixels = at.reshape(-1, 2) + rng.normal(0, noise_px, (len(POINTS), 2))
    return View(POINTS, pixels), T


def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the lens [8] and of the place [6] in standard errors that are stated."""
    rng = np.random.default_rng(seed)
    views = [shown(rng, NOISE_PX)[0] for _ in range(14)]
    lens = intrinsics(views, SIZE)
    found = np.array([*lens.focal_px, *lens.centre_px, *lens.distortion])
    stated = np.array([*lens.focal_error_px, *lens.centre_error_px, *lens.distortion_error])
    covariance = lens_covariance(lens, views)
    # Ours, of all numbers together, and OpenCV's agree.
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), stated, rtol=0.05)
    view, T = shown(rng, NOISE_PX)
    placed = place(view.points, view.pixels, lens.focal_px, lens.centre_px, lens.distortion)
    error = place_error(view.points, view.pixels, lens, placed, covariance)
    at = placed.lens.T_frame_camera
    turned = rotvec_from_rotation(at[:3, :3] @ T[:3, :3].T)
    off = [(at[:3, 3] - T[:3, 3]) / error.position_m, turned / error.rotation_rad]
    return (found - LENS) / stated, np.concatenate(off)


def test_standard_errors_are_as_large_as_errors_are() -> None:
    lens, places = (np.stack(v) for v in zip(*(draw(k) for k in range(DRAWS)), strict=True))
    for of in (lens, places):
        # Each number's own, of 30 draws: 1 +- 0.13.
        assert (np.sqrt((of**2).mean(axis=0)) < 1.4).all()
        assert (np.sqrt((of**2).mean(axis=0)) > 0.6).all()
        assert (np.abs(of) < 1.96).mean() > 0.92
    # Without the lens's part a place would pass for far better known than it is.
    rng = np.random.default_rng(0)
    views = [shown(rng, NOISE_PX)[0] for _ in range(14)]
    found = intrinsics(views, SIZE)
    view, _ = shown(rng, NOISE_PX)
    placed = place(view.points, view.pixels, found.focal_px, found.centre_px, found.distortion)
    alone = place_error(view.points, view.pixels, found, placed, lens_covariance(found, []))
    both = place_error(view.points, view.pixels, found, placed, lens_covariance(found, views))
    assert np.linalg.norm(both.position_m) > 1.3 * np.linalg.norm(alone.position_m)


def test_views_that_were_left_out_are_farther_off_than_those_that_were_fitted() -> None:
    rng = np.random.default_rng(1)
    views = [shown(rng, NOISE_PX)[0] for _ in range(14)]
    lens = intrinsics(views, SIZE)
    away = held_out_px(views, SIZE)
    # Two coordinates of a corner; what either half's pose is off by comes on top.
    assert NOISE_PX * 2**0.5 < away < 1.5 * NOISE_PX * 2**0.5
    assert lens.rms_px < away
    view, _ = shown(rng, NOISE_PX)
    placed = place(view.points, view.pixels, lens.focal_px, lens.centre_px, lens.distortion)
    assert placed.rms_px < place_held_out_px(view.points, view.pixels, placed.lens) < 1.0
    # Six corners fit a place; three of them say none.
    some = [0, 3, 6, 28, 31, 34]
    assert np.isnan(place_held_out_px(POINTS[some], view.pixels[some], placed.lens))
