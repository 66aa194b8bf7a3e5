"""Says what a camera of the lab saw, and draws its lens and its place from the lab's seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

from robolearn.geometry import (
    CameraMatrix,
    Pose,
    quat_from_rotation,
    quat_multiply,
    rotation_from_rotvec,
)
from robolearn.seeding import child_seed
from robolearn.shapes import Picture
from sim.rendering.cameras import intrinsics, set_intrinsics
from sim.rendering.renderer import View, camera_id
from sim.shapes import DepthPicture

# Relative half-width of the draws of a lens: focal length, its two directions apart, and the
# principal point [share of the width].
_FOCAL, _ASPECT, _CENTRE = 0.05, 0.002, 0.015
# Half-widths of the draws of a mount: along each axis [m], and about each [rad].
_SHIFT_M, _TURN_RAD = 0.01, math.radians(1.5)


@dataclass(frozen=True, slots=True)
class Look:
    """``picture [height, width, 3]`` RGB; of a camera with depth ``metres [height, width]`` along
    the optical axis (``inf``: nothing there), and the focal length of such a picture [px].
    """

    picture: Picture
    metres: DepthPicture | None
    focal_px: float


@dataclass(frozen=True, slots=True)
class TrueCamera:
    """How a camera of the lab really sees: ``K [3, 3]`` of its pictures, and its pose
    ``T_where_camera [4, 4]`` [m] (vision's axes) on the table, or on the flange that carries it (of
    one in somebody's hand: in the table's frame, before anybody took it).
    """

    width: int
    height: int
    K: CameraMatrix
    where: Literal["table", "flange", "hand"]
    T_where_camera: Pose

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "width": self.width,
            "height": self.height,
            "K": self.K.tolist(),
            "where": self.where,
            "T_where_camera": self.T_where_camera.tolist(),
        }


@dataclass(frozen=True, slots=True)
class Hidden:
    """What of a camera is drawn from ``seed``: its lens, its mount, or both."""

    seed: int
    lens: bool
    mount: bool

    def apply(self, model: mujoco.MjModel, view: View) -> None:
        """Change the camera of ``view`` in ``model``."""
        if self.lens:
            draw_lens(model, view, np.random.default_rng(child_seed(self.seed, "lens")))
        if self.mount:
            draw_mount(model, view.camera, np.random.default_rng(child_seed(self.seed, "mount")))


def draw_lens(model: mujoco.MjModel, view: View, rng: np.random.Generator) -> None:
    """Give a camera of ``model`` a lens that nobody knows."""
    K = intrinsics(model, view)
    focal, aspect, x, y = rng.uniform(-1.0, 1.0, 4).tolist()
    fx = float(K[0, 0]) * (1.0 + _FOCAL * focal)
    fy = fx * float(K[1, 1] / K[0, 0]) * (1.0 + _ASPECT * aspect)
    shift = _CENTRE * view.width
    set_intrinsics(model, view, (fx, fy, float(K[0, 2]) + shift * x, float(K[1, 2]) + shift * y))


def draw_mount(model: mujoco.MjModel, camera: str, rng: np.random.Generator) -> None:
    """Put a camera of ``model`` a little beside its place, looking a little beside its target."""
    index = camera_id(model, camera)
    model.cam_pos[index] += rng.uniform(-_SHIFT_M, _SHIFT_M, 3)
    turn = quat_from_rotation(rotation_from_rotvec(rng.uniform(-_TURN_RAD, _TURN_RAD, 3)))
    model.cam_quat[index] = quat_multiply(model.cam_quat[index].copy(), turn)
