"""Finds where a camera stands over the table today, by what its photograph shows of the table.

What is matched between two photographs (SIFT, Lowe 2004) on the table's plane places the camera;
what is matched beside the table says whether the room stands still in the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import cv2
import mujoco
import numpy as np
from scipy import optimize

from robolearn.calibration.boards import BoardFinder
from robolearn.capture.config import CaptureBoard
from robolearn.config import from_dict
from robolearn.errors import DataError, SceneError, did_you_mean
from robolearn.geometry import (
    CameraMatrix,
    Pose,
    Vector,
    XYRows,
    inverse,
    pose,
    rotation_from_rotvec,
    rotvec_from_rotation,
)
from robolearn.shapes import Flags, OwnFloats, Picture
from sim.reconstruction.appearance import pixels_of
from sim.reconstruction.shapes import MoveCovariance, Points
from sim.rendering.cameras import apply_intrinsics, calibration, camera_pose, photograph
from sim.rendering.renderer import View
from sim.scene.config import Scene, world_pose

_least_squares: Any = cast("Any", optimize).least_squares

# Matches on the table that say where the camera is; beside it, whether the room is still.
LEAST_TABLE, LEAST_ROOM = 12, 10
# The best match is this much nearer than the next one.
_RATIO = 0.75
# A match agrees within [px]; what moves less stands still.
_AGREES_PX, _STILL_PX = 3.0, 1.0
# Nothing is found better than this [px], whatever is left over says.
_FOUND_PX = 0.25
# Table points that agree lie all over the picture: of its width, at least.
_LEAST_SPREAD = 0.12


@dataclass(frozen=True, slots=True)
class Eye:
    """A camera of a scene that has a photograph behind it: straight, in the table's frame.

    ``low``, ``high``: the table in its own frame [m]. ``distortion``: of the real lens, which the
    photograph no longer has.
    """

    name: str
    K: CameraMatrix
    distortion: tuple[float, ...]
    T_table_camera: Pose
    photo: Picture
    low: tuple[float, float]
    high: tuple[float, float]
    board: CaptureBoard | None


@dataclass(frozen=True, slots=True)
class Shift:
    """How a camera stands to the table now.

    ``move``: rotation vector in the camera's frame [rad] and position in the table's [m] against
    before, and its covariance; ``middle``: of the table points that say so [m]; ``by``: what was
    recognised; ``room_still``: whether what lies beside the table stands still in the picture
    (None: too little is seen of it).
    """

    camera: str
    T_before: Pose
    T_now: Pose
    covariance: MoveCovariance
    middle: Vector
    by: str
    room_still: bool | None


def eye_of(scene: Scene, camera: str) -> Eye:
    """A camera of a scene. SceneError lists those that have a photograph."""
    having = {c.name: c for c in scene.config.cameras if c.background}
    if camera not in having:
        raise SceneError(
            f"'{scene.name}' has no camera '{camera}' with a photograph behind it."
            f"{did_you_mean(camera, having)} It has: {sorted(having) or 'none'}. A capture with a"
            " fixed camera and a set with 'purpose: background' gives one (docs/real_to_sim.md)"
        )
    config = having[camera]
    model = scene.compile()
    apply_intrinsics(model, [config])
    T_table_scene = inverse(world_pose(model, scene.config.frames["table"]))
    details = scene.config.provenance.reconstructed
    low, high = _extent(model, T_table_scene)
    board = details.get("board")
    return Eye(
        camera,
        calibration(model, View(config.name, config.width, config.height)).K,
        tuple(float(v) for v in details.get("distortion", {}).get(camera, ())),
        T_table_scene @ camera_pose(model, mujoco.MjData(model), camera),
        photograph(scene.path, config, f"{scene.path}/scene.yaml: camera {camera}"),
        low,
        high,
        None if board is None else from_dict(CaptureBoard, board, "provenance.details.board"),
    )


def shift_of(eye: Eye, photo: Picture) -> Shift:
    """Where the camera that took ``photo`` stands. DataError: too little of the table is
    recognised; SceneError: the picture is of another size.
    """
    if photo.shape != eye.photo.shape:
        raise SceneError(
            f"the photograph has {photo.shape[1]} x {photo.shape[0]} px, camera '{eye.name}' of the"
            f" scene {eye.photo.shape[1]} x {eye.photo.shape[0]}: take it with the same settings"
        )
    if any(eye.distortion):
        straight = cv2.undistort(photo, eye.K, np.array(eye.distortion))
        photo = np.asarray(straight, dtype=np.uint8)
    before, now = _matched(eye.photo, photo)
    points, on_table = _on_table(eye, before)
    agree = _agreeing(before[on_table], now[on_table], eye.photo.shape[1])
    by = f"{int(agree.sum())} marks of the table"
    if agree.sum() >= LEAST_TABLE:
        there, pixels = points[on_table][agree], now[on_table][agree]
    else:
        there, pixels = _board(eye, photo, int(agree.sum()))
        by = "the board, if it lies where it lay"
    T, covariance = _placed(eye, there, pixels)
    still = _room_still(before[~on_table], now[~on_table])
    return Shift(eye.name, eye.T_table_camera, T, covariance, there.mean(axis=0), by, still)


def _extent(
    model: mujoco.MjModel, T_table_scene: Pose
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The table's rectangle in its frame [m]; a metre each way where no box is the table."""
    geom = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "table")
    if geom < 0 or model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_BOX:
        return (-1.0, -1.0), (1.0, 1.0)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    signs = np.array([[a, b, 1.0] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    T = pose(data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom])
    T = T_table_scene @ T
    corners = (signs * model.geom_size[geom]) @ T[:3, :3].T + T[:3, 3]
    low, high = corners.min(axis=0), corners.max(axis=0)
    return (float(low[0]), float(low[1])), (float(high[0]), float(high[1]))


def _matched(before: Picture, now: Picture) -> tuple[XYRows, XYRows]:
    """Pixels of what is recognised in both pictures, ``[n, 2]`` each."""
    sift: Any = cv2.SIFT.create(4000)
    found = [
        sift.detectAndCompute(cv2.cvtColor(p, cv2.COLOR_RGB2GRAY), None) for p in (before, now)
    ]
    (keys_a, a), (keys_b, b) = found
    if a is None or b is None or min(len(a), len(b)) < 2:
        return np.zeros((0, 2)), np.zeros((0, 2))
    pairs: Any = cv2.BFMatcher(cv2.NORM_L2).knnMatch(a, b, k=2)
    best = {
        m.trainIdx: m
        for m, other in sorted(pairs, key=lambda p: -p[0].distance)
        if m.distance < _RATIO * other.distance
    }
    good = list(best.values())
    one = np.array([keys_a[m.queryIdx].pt for m in good], dtype=np.float64).reshape(-1, 2)
    two = np.array([keys_b[m.trainIdx].pt for m in good], dtype=np.float64).reshape(-1, 2)
    return one, two


def _on_table(eye: Eye, pixels: XYRows) -> tuple[Points, Flags]:
    """Where the rays of pixels meet the table's plane [m], and whether that is on the table."""
    rays = (pixels - eye.K[:2, 2]) / [eye.K[0, 0], eye.K[1, 1]]
    directions = np.column_stack([rays, np.ones(len(rays))]) @ eye.T_table_camera[:3, :3].T
    down = directions[:, 2] < -1e-6
    far = np.where(down, -eye.T_table_camera[2, 3] / np.where(down, directions[:, 2], -1.0), 0.0)
    points = eye.T_table_camera[:3, 3] + far[:, None] * directions
    points[:, 2] = 0.0
    inside = down & (points[:, :2] > eye.low).all(axis=1) & (points[:, :2] < eye.high).all(axis=1)
    return points, inside


def _agreeing(before: XYRows, now: XYRows, width: int) -> Flags:
    """Matches that one motion of a plane explains; none where they lie too near to each other."""
    none = np.zeros(len(before), dtype=np.bool_)
    if len(before) < LEAST_TABLE:
        return none
    _, mask = cv2.findHomography(before, now, cv2.RANSAC, _AGREES_PX)
    found: Any = mask  # None where nothing fits, whatever the stubs say
    agree = none if found is None else np.asarray(found).ravel() > 0
    if agree.sum() < LEAST_TABLE or np.ptp(now[agree], axis=0).min() < _LEAST_SPREAD * width:
        return none
    return agree


def _board(eye: Eye, photo: Picture, recognised: int) -> tuple[Points, XYRows]:
    """Corners of the board that lay on the table when the scene was made."""
    view = None
    if eye.board is not None and eye.board.T_table_board is not None:
        view = BoardFinder(eye.board.board()).find(photo)
    if view is None or eye.board is None:
        board = (
            "lay the capture's board where it lay"
            if eye.board is not None
            else "lay a board onto the table in the next capture"
        )
        raise DataError(
            f"{recognised} marks of the table are recognised in the photograph of '{eye.name}', at"
            f" least {LEAST_TABLE} that lie apart are needed: a table without texture says nothing."
            f" Clear the table, light it as before, {board}, or touch it (--touched)"
        )
    T = np.array(eye.board.T_table_board, dtype=np.float64)
    return view.points @ T[:3, :3].T + T[:3, 3], view.pixels


def _placed(eye: Eye, points: Points, pixels: XYRows) -> tuple[Pose, MoveCovariance]:
    """The camera's pose by points of the table, and the covariance of its move."""
    method = cv2.SOLVEPNP_IPPE if float(np.ptp(points[:, 2])) < 1e-9 else cv2.SOLVEPNP_SQPNP
    middle = points.mean(axis=0)
    _, turn, shift = cv2.solvePnP(points - middle, pixels, eye.K, np.zeros(4), flags=method)
    R = np.asarray(cv2.Rodrigues(turn)[0], dtype=np.float64)
    T = inverse(pose(R, np.asarray(shift).ravel() - R @ middle))
    T_before = eye.T_table_camera

    def moved(p: OwnFloats) -> Pose:
        return pose(T_before[:3, :3] @ rotation_from_rotvec(p[:3]), T_before[:3, 3] + p[3:])

    def left(p: OwnFloats) -> OwnFloats:
        return (pixels_of(points, eye.K, moved(p))[0] - pixels).ravel()

    turned = rotvec_from_rotation(T_before[:3, :3].T @ T[:3, :3])
    start = np.concatenate([turned, T[:3, 3] - T_before[:3, 3]])
    fit = _least_squares(left, start, x_scale="jac", loss="soft_l1", f_scale=1.0)
    residual = left(fit.x)
    freedom = max(1, len(residual) - 6)
    px = max(_FOUND_PX, float(np.sqrt((np.minimum(np.abs(residual), 3.0) ** 2).sum() / freedom)))
    J = np.asarray(fit.jac, dtype=np.float64)
    return moved(fit.x), px**2 * np.linalg.inv(J.T @ J)


def _room_still(before: XYRows, now: XYRows) -> bool | None:
    """Whether what lies beside the table is where it was in the picture."""
    if len(before) < LEAST_ROOM:
        return None
    moved = np.linalg.norm(now - before, axis=1)
    if (moved < _STILL_PX).sum() >= max(LEAST_ROOM, 0.5 * len(moved)):
        return True
    _, mask = cv2.findHomography(before, now, cv2.RANSAC, _AGREES_PX)
    found: Any = mask  # None where nothing fits, whatever the stubs say
    agree = 0 if found is None else int((np.asarray(found) > 0).sum())
    return False if agree >= max(LEAST_ROOM, 0.5 * len(moved)) else None
