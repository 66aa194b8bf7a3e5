"""Drawn rigs of two cameras (on the flange, beside the arm), corners off by 0.3 px, 40 pictures.

make bench ONLY=calibration

Lenses, places and boards are drawn from seeds; what was drawn is the reference of every figure.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from robolearn.calibration.rig import calibrate_rig
from robolearn.geometry import inverse, pose_error, rotvec_from_rotation
from tests.benchmarks.floors import at_most
from tests.robolearn.calibration.rigs import draw_rig

DRAWS, LONG_DRAWS, PICTURES = 10, 100, 40


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
    return [
        at_most(f"focal length, worst of {count} cameras", "%", 100 * worst["focal"], 0.3),
        at_most("camera's place, worst", "mm", worst["mm"], 2.0),
        at_most("camera's orientation, worst", "deg", worst["deg"], 0.3),
        at_most("numbers outside their 95 % interval", "", outside, 0.07),
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
