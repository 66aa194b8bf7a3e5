"""Draws small captures of an arm that carries a camera over a board on the table, and poisons them.

Everything is known: lens, places, clocks, depth. Pictures are the board as OpenCV draws it, seen
through a pinhole camera.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import yaml

from robolearn.arms.models import UR5E
from robolearn.calibration.fiducials import dictionary
from robolearn.capture.config import (
    CaptureArm,
    CaptureBoard,
    CaptureCamera,
    CaptureConfig,
    CaptureDepth,
    CaptureLens,
    CaptureSet,
)
from robolearn.capture.write import CaptureWriter
from robolearn.geometry import inverse, pose, rot_x, rot_z, rotation_from_rotvec

SIZE, FOCAL = (400, 300), 380.0
K = np.array([[FOCAL, 0.0, 199.5], [0.0, FOCAL, 149.5], [0.0, 0.0, 1.0]])
BOARD = CaptureBoard("charuco", (7, 5), 0.03, 0.022)
# The board's middle before the arm, the camera on the flange.
T_BASE_BOARD = pose(rot_z(0.3), (0.45, 0.1, 0.0)) @ pose(None, (-0.105, -0.075, 0.0))
T_TOOL_CAMERA = pose(rot_z(0.6) @ rot_x(0.15), (0.05, 0.02, 0.04))
STOOD_S, MOVED_S = 1.0, 1.0


@dataclass(frozen=True)
class Shot:
    """A picture, its depth, the arm's joints and pose, and when it was taken."""

    picture: np.ndarray
    depth_m: np.ndarray
    q: np.ndarray
    T_base_tool: np.ndarray
    t_s: float


def shots(count: int = 12, seed: int = 0) -> tuple[Shot, ...]:
    """The arm stands at every pose for a second, and a picture is taken in the middle of it."""
    rng = np.random.default_rng(seed)
    near = np.array([0.0, -1.5, 1.9, -1.9, -1.57, 0.0])
    out = []
    for k in range(count):
        turn = rotation_from_rotvec(rng.normal(size=3) * np.radians([16, 16, 35])) @ rot_x(np.pi)
        T_camera_board = pose(
            turn, (0.03 * rng.normal(), 0.02 * rng.normal(), rng.uniform(0.3, 0.45))
        ) @ pose(None, (-0.105, -0.075, 0.0))
        T = T_BASE_BOARD @ inverse(T_camera_board) @ inverse(T_TOOL_CAMERA)
        q = UR5E.ik(T, near)
        T_base_camera = UR5E.fk(q) @ T_TOOL_CAMERA
        picture, depth = look(inverse(T_base_camera) @ T_BASE_BOARD, rng)
        t_s = 10.0 + k * (STOOD_S + MOVED_S) + 0.5 * STOOD_S
        out.append(Shot(picture, depth, q, UR5E.fk(q), t_s))
    return tuple(out)


def look(T_camera_board: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The board on a speckled table, and the table's depth [m]."""
    dots, per = 20, 0.03 / 20
    made = cv2.aruco.CharucoBoard((7, 5), 0.03, 0.022, dictionary("4x4_50"))
    drawn = made.generateImage((7 * dots, 5 * dots))
    to_board = np.array([[per, 0, per / 2], [0, -per, 0.15 - per / 2], [0, 0, 1.0]])
    H = K @ T_camera_board[:3, [0, 1, 3]] @ to_board
    fine = np.array([[1, 0, 1.5], [0, 1, 1.5], [0, 0, 1.0]]) @ np.diag([4.0, 4.0, 1.0]) @ H
    large = (4 * SIZE[0], 4 * SIZE[1])
    ink = cv2.warpPerspective(drawn, fine, large, borderValue=170)
    grey = cv2.resize(ink, SIZE, interpolation=cv2.INTER_AREA)
    noise = rng.normal(0.0, 2.0, grey.shape)
    picture = np.clip(grey[..., None] + noise[..., None], 0, 255).astype(np.uint8)
    row, column = np.indices(grey.shape)
    rays = np.stack([(column - K[0, 2]) / FOCAL, (row - K[1, 2]) / FOCAL, np.ones_like(row)], -1)
    T = inverse(T_camera_board)
    depth = -T[2, 3] / (rays @ T[2, :3])
    return np.repeat(picture, 3, axis=2), depth.astype(np.float32)


def write(folder: Path, taken: tuple[Shot, ...]) -> Path:
    """A good capture."""
    lens = CaptureLens((FOCAL, FOCAL), (199.5, 149.5))
    config = CaptureConfig(
        schema=1,
        name="armed",
        cameras={"wrist": CaptureCamera("flange", SIZE, lens, depth=CaptureDepth(0.001, 0.002))},
        sets=(CaptureSet("handeye", "wrist", "handeye"),),
        arm=CaptureArm("ur5e"),
        board=BOARD,
    )
    writer = CaptureWriter(folder, config)
    for s in taken:
        writer.add("handeye", s.picture, s.depth_m, t_s=s.t_s, T_base_tool=s.T_base_tool)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["t_s", *(f"q{i + 1}" for i in range(6))])
    for t, q in record(taken):
        table.writerow([f"{t:.3f}", *(f"{v:.6f}" for v in q)])
    (folder / "robot.csv").write_text(text.getvalue())
    return folder


def record(taken: tuple[Shot, ...]) -> list[tuple[float, np.ndarray]]:
    """The arm: it stands for a second at every pose, and moves evenly to the next; recorded from
    two seconds before the first to two seconds after the last.
    """
    times = [t for s in taken for t in (s.t_s - 0.5 * STOOD_S, s.t_s + 0.5 * STOOD_S)]
    joints = np.array([s.q for s in taken for _ in range(2)])
    t_s = np.arange(times[0] - 2.0, times[-1] + 2.0, 0.05)
    return [(t, np.array([np.interp(t, times, column) for column in joints.T])) for t in t_s]


def change(folder: Path, edit: Callable[[dict], None]) -> None:
    """Edit capture.yaml."""
    path = folder / "capture.yaml"
    raw = yaml.safe_load(path.read_text())
    edit(raw)
    path.write_text(yaml.safe_dump(raw, sort_keys=False))


def rewrite(folder: Path, edit: Callable[[list[dict[str, str]]], None]) -> None:
    """Edit the rows of the set's frames.csv."""
    path = folder / "handeye" / "frames.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    edit(rows)
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
