"""Finds the table: its plane among all points that were seen, and the table's frame.

RANSAC (Fischler and Bolles 1981) chooses the plane, least squares fits it, and every picture is
held against it: one whose own table lies elsewhere has a wrong pose, and is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.errors import DataError
from robolearn.geometry import Pose, Vector, pose, rotation_from_rotvec
from robolearn.shapes import Floats
from sim.reconstruction.frames import Assumed, PosedFrame, WorldFrame, points_of
from sim.reconstruction.shapes import Points

_TRIES = 400
# Points this near to the plane are of the table [m], beside the depth's own noise.
_NEAR_M = 0.004
# Share of the points that the table must have.
_LEAST_SHARE = 0.15
# A picture whose table lies farther off, or is tilted more, is not believed.
WORST_FRAME_M, WORST_FRAME_DEG = 0.010, 2.0
# The table of the poses' own frame may be this far off before its origin is moved.
_OWN_M, _OWN_DEG = 0.03, 5.0


@dataclass(frozen=True, slots=True)
class Table:
    """The table's plane and frame.

    ``T_table_world``: from the frame of the poses to that of the table (z up, z = 0 on the table).
    ``rms_m``: of the points about the plane; ``height_m`` and ``tilt_deg``: how far the plane was
    from z = 0 of the poses' frame. ``low``, ``high``: the part of it that was seen, x and y [m].
    """

    T_table_world: Pose
    rms_m: float
    height_m: float
    tilt_deg: float
    share: float
    low: tuple[float, float]
    high: tuple[float, float]


def find_table(
    frames: Sequence[PosedFrame], world: WorldFrame, noise_m: float
) -> tuple[Table, list[Assumed]]:
    """The table under what ``frames`` saw; DataError when there is no plane that explains it."""
    clouds = [points_of(f.depth_m(), f.K, f.T_table_camera, _stride(f)) for f in frames]
    eyes = np.stack([f.T_table_camera[:3, 3] for f in frames])
    points = np.concatenate(clouds)
    if len(points) < 100:
        raise DataError("the depth pictures hold almost no points; check the camera's range")
    near = _NEAR_M + 2.0 * noise_m
    normal, offset = _ransac(points, near)
    if float((eyes @ normal + offset).mean()) < 0:
        normal, offset = -normal, -offset
    for _ in range(3):
        inside = points[np.abs(points @ normal + offset) < near]
        middle = inside.mean(axis=0)
        axis = np.linalg.svd(inside - middle, full_matrices=False)[2][2]
        normal = axis * np.sign(float(axis @ normal))
        offset = -float(normal @ middle)
    left = points @ normal + offset
    inside = np.abs(left) < near
    share = float(inside.mean())
    if share < _LEAST_SHARE:
        raise DataError(
            f"no table: the largest plane holds {share:.0%} of what was seen, at least"
            f" {_LEAST_SHARE:.0%} are needed. Keep more of the table in view; poses that are wrong"
            " (arm and pictures out of step, a camera that slipped) tear it apart, too"
        )
    T, assumed, tilt = _frame(normal, offset, points[inside], world)
    flat = points[inside] @ T[:3, :3].T + T[:3, 3]
    low, high = np.quantile(flat[:, :2], [0.005, 0.995], axis=0)
    table = Table(
        T,
        float(np.sqrt((left[inside] ** 2).mean())),
        -offset,
        tilt,
        share,
        (float(low[0]), float(low[1])),
        (float(high[0]), float(high[1])),
    )
    return table, assumed


def misplaced(frames: Sequence[PosedFrame], noise_m: float) -> dict[str, str]:
    """Pictures (in the table's frame) whose own table lies elsewhere, and where."""
    out: dict[str, str] = {}
    for f in frames:
        own = _own_table(f, noise_m)
        if own is None:
            out[f.name] = "shows no table where the others have it"
            continue
        # Only level planes are the table; a large box's top is level, too, but not the largest.
        if own.share < 0.3:
            continue
        if abs(own.height_m) > WORST_FRAME_M or own.tilt_deg > WORST_FRAME_DEG:
            out[f.name] = (
                f"sees the table {1e3 * own.height_m:+.0f} mm off, tilted by {own.tilt_deg:.1f} deg"
            )
    return out


def heights(frames: Sequence[PosedFrame], noise_m: float) -> tuple[Floats, Floats]:
    """How high ``[n]`` [m] and how tilted ``[n]`` [deg] every picture alone sees the table."""
    own = [found for f in frames if (found := _own_table(f, noise_m)) is not None]
    return np.array([o.height_m for o in own]), np.array([o.tilt_deg for o in own])


@dataclass(frozen=True, slots=True)
class _OwnTable:
    """The table as one picture sees it."""

    height_m: float
    tilt_deg: float
    share: float


def _own_table(f: PosedFrame, noise_m: float) -> _OwnTable | None:
    points = points_of(f.depth_m(), f.K, f.T_table_camera, _stride(f))
    near = points[np.abs(points[:, 2]) < 0.08]
    if len(near) < 50:
        return None
    normal, offset = _ransac(near, _NEAR_M + 2.0 * noise_m, 60, 600)
    inside = near[np.abs(near @ normal + offset) < _NEAR_M + 2.0 * noise_m]
    middle = inside.mean(axis=0)
    axis = np.linalg.svd(inside - middle, full_matrices=False)[2][2]
    tilt = float(np.degrees(np.arccos(min(1.0, abs(float(axis[2]))))))
    return _OwnTable(float(middle[2]), tilt, len(inside) / len(near))


def _stride(f: PosedFrame) -> int:
    """About 2000 points per picture."""
    width, height = f.frame.camera.size
    return max(1, round((width * height / 2000) ** 0.5))


def _ransac(
    points: Points, near: float, tries: int = _TRIES, most: int = 4000
) -> tuple[Vector, float]:
    rng = np.random.default_rng(0)
    some = points[rng.choice(len(points), min(len(points), most), replace=False)]
    best, agreed = (np.array([0.0, 0.0, 1.0]), 0.0), -1
    for _ in range(tries):
        a, b, c = some[rng.choice(len(some), 3, replace=False)]
        normal = np.cross(b - a, c - a)
        length = float(np.linalg.norm(normal))
        if length < 1e-6:
            continue
        normal = normal / length
        offset = -float(normal @ a)
        count = int((np.abs(some @ normal + offset) < near).sum())
        if count > agreed:
            best, agreed = (normal, offset), count
    return best


def _frame(
    normal: Vector, offset: float, inside: Points, world: WorldFrame
) -> tuple[Pose, list[Assumed], float]:
    """The table's frame: z along the normal by the smallest turn; the origin stays where the poses
    had it when theirs is the table's or the arm's frame, else below what the cameras looked at.
    """
    up = np.array([0.0, 0.0, 1.0])
    tilt = float(np.arccos(np.clip(normal @ up, -1.0, 1.0)))
    axis = np.cross(normal, up)
    size = float(np.linalg.norm(axis))
    turn = axis / size * tilt if size > 1e-9 else np.array([tilt, 0.0, 0.0])
    T = pose(rotation_from_rotvec(turn), (0.0, 0.0, offset))
    level = np.degrees(tilt) < _OWN_DEG
    if world == "table" and (not level or abs(offset) > _OWN_M):
        raise DataError(
            f"the table is {-1e3 * offset:.0f} mm and {np.degrees(tilt):.1f} degrees off z = 0 of"
            " the table's frame that capture.yaml speaks of; check T_table_board, T_table_base or"
            " the camera's place, and that z points up"
        )
    assumed: list[Assumed] = []
    if world == "unknown" and not (level and abs(offset) < _OWN_M):
        middle = T[:3, :3] @ np.median(inside, axis=0) + T[:3, 3]
        T = pose(None, (-middle[0], -middle[1], 0.0)) @ T
        assumed.append(
            Assumed(
                "origin of the table's frame",
                "below the middle of what was seen",
                "the poses' frame is none of the table's",
            )
        )
    return T, assumed, float(np.degrees(tilt))
