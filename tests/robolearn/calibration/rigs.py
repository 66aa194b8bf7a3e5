"""Draws rigs that are known: a camera on the flange, one beside the arm, corners with noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation as Turn

from robolearn.calibration.boards import View
from robolearn.calibration.rig import RigCamera, RigView
from robolearn.calibration.rig_fit import project
from robolearn.geometry import inverse, pose, rot_x

SIZE = (640, 480)
_X, _Y = np.meshgrid(np.arange(1, 7) * 0.03, np.arange(1, 5) * 0.03)
CORNERS = np.column_stack([_X.ravel(), _Y.ravel(), 0.0 * _X.ravel()])
_MIDDLE = pose(None, (-0.105, -0.075, 0.0))


@dataclass(frozen=True)
class TrueRig:
    """Lens and place of every camera, and of the boards."""

    cameras: dict[str, tuple[np.ndarray, np.ndarray]]
    T_base_board: np.ndarray
    T_tool_board: np.ndarray


def draw_rig(
    seed: int, count: int, *, noise_px: float = 0.3, held: bool = False
) -> tuple[list[RigCamera], list[RigView], TrueRig]:
    """``count`` pictures of each camera by turns, the board all over the picture; ``held``: both
    cameras stand, and see the board in somebody's hand at the same moments.
    """
    rng = np.random.default_rng(seed)
    lenses = {name: _lens(rng) for name in ("wrist", "top")}
    X = pose(Turn.from_rotvec(0.5 * rng.normal(size=3)).as_matrix(), 0.05 * rng.normal(size=3))
    beside = pose(Turn.from_rotvec(rng.normal(size=3)).as_matrix(), (0.5, 0.5, 0.7))
    T_base_board = pose(Turn.from_rotvec([0.0, 0.0, rng.normal()]).as_matrix(), (0.5, 0.1, 0.0))
    T_tool_board = pose(Turn.from_rotvec(0.3 * rng.normal(size=3)).as_matrix(), (0.02, 0.01, 0.05))
    near = beside @ pose(Turn.from_rotvec([0.0, 0.25, 0.1]).as_matrix(), (-0.12, 0.0, 0.0))
    true = TrueRig(
        {"wrist": (lenses["wrist"], near if held else X), "top": (lenses["top"], beside)},
        T_base_board,
        T_tool_board,
    )
    cameras = [
        RigCamera("wrist", "table" if held else "flange", SIZE),
        RigCamera("top", "table", SIZE),
    ]
    views: list[RigView] = []
    for k in range(count):
        if held:
            T = beside @ _seen(rng)
            for name in ("wrist", "top"):
                lens, place = true.cameras[name]
                view = _view(inverse(place) @ T, lens, noise_px, rng)
                views.append(RigView(f"{name}/{k}", name, view, "hand", None, f"moment {k}"))
            continue
        T = _seen(rng)
        arm = T_base_board @ inverse(T) @ inverse(X)
        view = _view(T, lenses["wrist"], noise_px, rng)
        views.append(RigView(f"wrist/{k}", "wrist", view, "table", arm))
        T = _seen(rng)
        arm = beside @ T @ inverse(T_tool_board)
        views.append(
            RigView(f"top/{k}", "top", _view(T, lenses["top"], noise_px, rng), "flange", arm)
        )
    return cameras, views, true


def _lens(rng: np.random.Generator) -> np.ndarray:
    f = rng.uniform(450.0, 700.0)
    centre = (319.5 + 4 * rng.normal(), 239.5 + 4 * rng.normal())
    bent = (rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.05), *(5e-4 * rng.normal(size=2)))
    return np.array([f, f * rng.uniform(0.995, 1.005), *centre, *bent])


def _seen(rng: np.random.Generator) -> np.ndarray:
    """The board before a camera, tilted to all sides, anywhere in the picture."""
    turn = Turn.from_rotvec(rng.normal(size=3) * np.radians([20, 20, 40])).as_matrix() @ rot_x(
        np.pi
    )
    far = rng.uniform(0.3, 0.5)
    at = (rng.uniform(-0.25, 0.25) * far, rng.uniform(-0.18, 0.18) * far, far)
    return pose(turn, at) @ _MIDDLE


def _view(T: np.ndarray, lens: np.ndarray, noise_px: float, rng: np.random.Generator) -> View:
    pixels = project(CORNERS @ T[:3, :3].T + T[:3, 3], lens)[0]
    return View(CORNERS, pixels + noise_px * rng.normal(size=pixels.shape))
