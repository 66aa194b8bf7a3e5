"""Makes pairs of poses: known places of camera and board, corners as measured in pictures."""

from __future__ import annotations

import cv2
import numpy as np
from scipy.spatial.transform import Rotation as Turn

from robolearn.calibration.pose_pairs import PosePairs, Setup, inverses
from robolearn.geometry import Pose, pose

_K = np.array([[600.0, 0.0, 320.0], [0.0, 600.0, 240.0], [0.0, 0.0, 1.0]])
_X, _Y = np.meshgrid(np.arange(9) * 0.025 - 0.1, np.arange(6) * 0.025 - 0.0625)
_CORNERS = np.column_stack([_X.ravel(), _Y.ravel(), np.zeros(_X.size)])


def any_pose(rng: np.random.Generator, at: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Pose:
    """Turned by half a radian or so, within 0.1 m or so of ``at``."""
    turn = Turn.from_rotvec(0.5 * rng.normal(size=3)).as_matrix()
    return pose(turn, np.array(at) + 0.1 * rng.normal(size=3))


def capture(
    seed: int, count: int = 15, *, noise_px: float = 0.3, setup: Setup = "eye-in-hand"
) -> tuple[Pose, PosePairs]:
    """The camera's true place, and pairs whose board was found in pictures with corners that are
    off by ``noise_px`` (0: exact poses).
    """
    rng = np.random.default_rng(seed)
    X, Y = any_pose(rng), any_pose(rng, (0.5, 0.0, 0.0))
    down = Turn.from_euler("x", 180, degrees=True).as_matrix()
    true = [
        pose(
            Turn.from_rotvec(rng.normal(size=3) * np.radians([18, 18, 40])).as_matrix() @ down,
            [0.06 * rng.normal(), 0.05 * rng.normal(), rng.uniform(0.35, 0.7)],
        )
        for _ in range(count)
    ]
    A = Y @ inverses(np.array(true)) @ np.linalg.inv(X)
    seen = np.array([_seen(T, noise_px, rng) if noise_px else T for T in true])
    return X, PosePairs(A if setup == "eye-in-hand" else inverses(A), seen, setup)


def _seen(T: Pose, noise_px: float, rng: np.random.Generator) -> Pose:
    points = _CORNERS @ T[:3, :3].T + T[:3, 3]
    pixels = points @ _K.T
    pixels = pixels[:, :2] / pixels[:, 2:] + noise_px * rng.normal(size=(len(points), 2))
    _, turn, at = cv2.solvePnP(_CORNERS, pixels, _K, np.zeros(4), flags=cv2.SOLVEPNP_IPPE)
    turn, at = cv2.solvePnPRefineLM(_CORNERS, pixels, _K, np.zeros(4), turn, at)
    return pose(np.asarray(cv2.Rodrigues(turn)[0], dtype=np.float64), np.asarray(at).ravel())
