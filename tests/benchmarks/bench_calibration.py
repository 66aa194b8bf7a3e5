"""Drawn rigs of two cameras (on the flange, beside the arm), corners off by 0.3 px, 40 pictures;
20 pictures of each of two lab cells from poses that the product's own tour chooses; and pairs of
poses for a camera whose lens is known.

make bench ONLY=calibration

Lenses, places and boards are drawn from seeds; what was drawn is the reference of every figure.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.calibration.hand_eye_causes import calibrate
from robolearn.calibration.rig import calibrate_rig
from robolearn.errors import DataError
from robolearn.geometry import inverse, pose_error, rotvec_from_rotation
from tests.benchmarks.floors import at_most
from tests.robolearn.calibration.captures import capture
from tests.robolearn.calibration.rigs import draw_rig
from tests.robolearn.operations.capture.drawn_board import DrawnTour, Where

DRAWS, LONG_DRAWS, PICTURES = 10, 100, 40
PAIRS = (12, 20)
TOURS, LONG_TOURS, TOUR_PICTURES = 3, 100, 20
CELLS: tuple[Where, ...] = ("beside", "riding")


def rows(long: bool = False) -> list[dict[str, Any]]:
    """The worst of all draws, and how often intervals hold the truth."""
    every = [figures(seed) for seed in range(LONG_DRAWS if long else DRAWS)]
    count = 2 * len(every)
    inside = np.concatenate([f["inside"] for f in every])
    worst = {name: max(f[name] for f in every) for name in ("focal", "mm", "deg")}
    outside = 1.0 - float(inside.mean())
    print(
        f"{count} cameras, {inside.size} numbers; by kind (lens 8, place 3 + 3):"
        f" {inside.mean(axis=0).round(3).tolist()}",
        file=sys.stderr,
    )
    tours = [toured(where, s) for where in CELLS for s in range(LONG_TOURS if long else TOURS)]
    off = np.array([t for t in tours if t is not None])
    refused = 1.0 - len(off) / len(tours)
    hand_eye = [row for poses in PAIRS for row in hand_eye_rows(poses, long)]
    what = f"chosen poses, {TOUR_PICTURES} pictures, {len(tours)} tours"
    print(f"{what}: degrees {np.quantile(off[:, 1], [0.5, 0.95]).round(3)}", file=sys.stderr)
    return [
        at_most(f"{what}: camera's place, worst", "mm", float(off[:, 0].max()), 2.0),
        at_most(f"{what}: camera's orientation, worst", "deg", float(off[:, 1].max()), 0.3),
        at_most(f"{what}: refused", "", refused, 0.05),
        at_most(f"focal length, worst of {count} cameras", "%", 100 * worst["focal"], 0.3),
        at_most("camera's place, worst", "mm", worst["mm"], 2.0),
        at_most("camera's orientation, worst", "deg", worst["deg"], 0.3),
        at_most("numbers outside their 95 % interval", "", outside, 0.07),
        *hand_eye,
    ]


def hand_eye_rows(poses: int, long: bool = False) -> list[dict[str, Any]]:
    """The worst of all draws of so many pairs of poses, and how often intervals hold the truth."""
    draws = LONG_DRAWS if long else DRAWS
    inside: list[Any] = []
    off: list[tuple[float, float]] = []
    for seed in range(draws):
        T, pairs = capture(seed, poses, setup="eye-to-hand" if seed % 2 else "eye-in-hand")
        found = calibrate(pairs)
        away = np.abs(found.T_parent_camera[:3, 3] - T[:3, 3])
        turned = rotvec_from_rotation(found.T_parent_camera[:3, :3] @ inverse(T)[:3, :3])
        inside.append(np.concatenate([away <= found.half_m, np.abs(turned) <= found.half_rad]))
        off.append((1e3 * float(np.linalg.norm(away)), float(np.degrees(np.linalg.norm(turned)))))
    mm, deg = np.array(off).T
    held = np.array(inside)
    what = f"hand-eye, {poses} pairs of poses, {draws} draws"
    print(
        f"{what}: mm {np.quantile(mm, [0.5, 0.95]).round(3)}, degrees"
        f" {np.quantile(deg, [0.5, 0.95]).round(3)}; inside {held.mean(axis=0).round(3).tolist()}",
        file=sys.stderr,
    )
    return [
        at_most(f"{what}: camera's place, worst", "mm", float(mm.max()), 2.0),
        at_most(f"{what}: camera's orientation, worst", "deg", float(deg.max()), 0.3),
        at_most(f"{what}: numbers outside their 95 % interval", "", 1.0 - held.mean(), 0.07),
    ]


def figures(seed: int) -> dict[str, Any]:
    """The worst of one rig's cameras."""
    cameras, views, true = draw_rig(seed, PICTURES)
    found = calibrate_rig(cameras, views)
    inside, focal, mm, deg = [], [], [], []
    for camera in found.cameras:
        lens, T = true.cameras[camera.name]
        if camera.place is None:
            raise AssertionError(camera.name)
        place = camera.place
        turned = rotvec_from_rotation(place.T[:3, :3] @ inverse(T)[:3, :3])
        inside.append(
            np.concatenate(
                [
                    np.abs(camera.lens - lens) <= camera.lens_half,
                    np.abs(place.T[:3, 3] - T[:3, 3]) <= place.half_m,
                    np.abs(turned) <= place.half_rad,
                ]
            )
        )
        focal.append(float(np.abs(camera.lens[:2] / lens[:2] - 1.0).max()))
        away, angle = pose_error(place.T, T)
        mm.append(1e3 * away)
        deg.append(float(np.degrees(angle)))
    return {"inside": np.array(inside), "focal": max(focal), "mm": max(mm), "deg": max(deg)}


def toured(where: Where, seed: int) -> tuple[float, float] | None:
    """By how much a camera's place is off [mm, deg]; None where the pictures are refused."""
    with tempfile.TemporaryDirectory() as folder:
        tour = DrawnTour(where, seed, TOUR_PICTURES, Path(folder) / "capture")
        tour.run()
    try:
        (camera,) = tour.found().cameras
    except DataError as error:
        print(f"{where}, seed {seed}: {error}", file=sys.stderr)
        return None
    if camera.place is None:
        raise AssertionError(camera.name)
    away, angle = pose_error(camera.place.T, tour.T_parent_camera)
    return 1e3 * away, float(np.degrees(angle))
