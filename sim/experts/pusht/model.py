"""Models planar pushing: many straight pushes of the T at once, no engine.

The block rests on a table whose resistance is viscous (or so strong that it stops at once) and the
tool's contact has no friction. Then a push of depth ``d`` along the contact normal ``n`` at ``p``
(both relative to the centre of resistance, body frame) moves the block by ``-lambda n`` and turns
it by ``-lambda (p x n) / rho^2`` with ``lambda = d / (1 + (p x n)^2 / rho^2)``: the least motion,
in the metric of the damping, that resolves the overlap. That is the limit which gym-pusht simulates
(``docs/results.md``); on other tables it is a model, and whoever uses it looks again after a push.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.geometry import XY, PlanarPose, VectorRows, XYRows
from robolearn.pusht import GOAL, TOOL_RADIUS_M, tee_polygons
from sim.shapes import AnyAngles, AnyPoints, AnyPoses

PushedPoses = Float64[NDArray[np.float64], "count n 3"]


# Centre of resistance [m] in the block's frame, and squared ratio of turning to sliding
# resistance [m^2]: gym-pusht's centre of gravity and its inertia over mass.
CENTRE = np.array([0.0, -0.045])
GYRATION_M2 = 0.003
# The inner faces of gym-pusht's walls [m].
WALL_LOW, WALL_HIGH = 0.007, 0.504

_PARTS = [p - CENTRE for p in tee_polygons()]
# Centre x, y and half size x, y of bar and stem, relative to the centre of resistance.
RECTS = [
    (*(0.5 * (p.min(axis=0) + p.max(axis=0))), *(0.5 * (p.max(axis=0) - p.min(axis=0))))
    for p in _PARTS
]
CORNERS = np.concatenate([*_PARTS])


def rotate(vector: AnyPoints, angle: Any) -> AnyPoints:
    """Vectors ``[..., 2]`` turned by ``angle [...]`` [rad]."""
    c, s = np.cos(angle), np.sin(angle)
    x, y = vector[..., 0], vector[..., 1]
    return np.stack([c * x - s * y, s * x + c * y], axis=-1)


def _shift(pose: AnyPoses, by: XY) -> AnyPoses:
    out = np.array(pose, dtype=np.float64)
    out[..., :2] += rotate(np.broadcast_to(by, out[..., :2].shape), out[..., 2])
    return out


def to_centre(pose: AnyPoses) -> AnyPoses:
    """Poses ``[..., 3]`` of the block's origin to those of its centre of resistance."""
    return _shift(pose, CENTRE)


def from_centre(pose: AnyPoses) -> AnyPoses:
    """Inverse of :func:`to_centre`."""
    return _shift(pose, -CENTRE)


GOAL_CENTRE = to_centre(np.array(GOAL))


def to_body(point: AnyPoints, pose: AnyPoses) -> AnyPoints:
    """World points ``[..., 2]`` in the frame of the centre pose ``[..., 3]``."""
    d = point - pose[..., :2]
    c, s = np.cos(pose[..., 2]), np.sin(pose[..., 2])
    return np.stack([c * d[..., 0] + s * d[..., 1], c * d[..., 1] - s * d[..., 0]], axis=-1)


def to_world(point: AnyPoints, pose: AnyPoses) -> AnyPoints:
    """Inverse of :func:`to_body`."""
    return rotate(point, pose[..., 2]) + pose[..., :2]


def distance_to_block(point: AnyPoints) -> Any:
    """Distance ``[...]`` [m] of body-frame points ``[..., 2]`` to the T; 0 inside."""
    x, y = point[..., 0], point[..., 1]
    best: AnyAngles | None = None
    for cx, cy, hx, hy in RECTS:
        ex = np.maximum(np.abs(x - cx) - hx, 0.0)
        ey = np.maximum(np.abs(y - cy) - hy, 0.0)
        d = ex * ex + ey * ey
        best = d if best is None else np.minimum(best, d)
    return np.sqrt(best) if best is not None else np.zeros_like(x)


def pose_error(pose: AnyPoses, goal: PlanarPose = GOAL_CENTRE) -> Any:
    """How far the block is from ``goal`` [m]: shift and turn, the turn times the T's radius of
    gyration, so that 3 mm and 3 degrees weigh the same.
    """
    d = pose[..., :2] - goal[:2]
    turn = (pose[..., 2] - goal[2] + np.pi) % (2.0 * np.pi) - np.pi
    return np.sqrt(d[..., 0] ** 2 + d[..., 1] ** 2 + GYRATION_M2 * turn**2)


def outside(pose: AnyPoses, margin: float = 0.0) -> Any:
    """How far [m] the block at ``pose [n, 3]`` reaches beyond the walls (0: not at all)."""
    c, s = np.cos(pose[..., 2]), np.sin(pose[..., 2])
    worst = np.zeros(pose.shape[:-1])
    for x, y in CORNERS:
        for value in (pose[..., 0] + c * x - s * y, pose[..., 1] + s * x + c * y):
            worst = np.maximum(worst, WALL_LOW + margin - value)
            worst = np.maximum(worst, value - WALL_HIGH + margin)
    return worst


def push(pose: VectorRows, tool: XYRows, step: XYRows, count: int) -> PushedPoses:
    """Poses ``[count, n, 3]`` of the block while the tool moves on by ``step [n, 2]`` each time.

    ``pose [n, 3]`` is the centre's pose, ``tool [n, 2]`` where the tool starts, in the world.
    Steps should be shorter than a quarter of the tool's radius.
    """
    x, y, yaw = (pose[:, i].copy() for i in range(3))
    q = to_body(tool, pose)
    qx, qy = q[:, 0].copy(), q[:, 1].copy()
    out = np.empty((count, len(pose), 3))
    c, s = np.cos(yaw), np.sin(yaw)
    for k in range(count):
        qx += c * step[:, 0] + s * step[:, 1]
        qy += c * step[:, 1] - s * step[:, 0]
        for cx, cy, hx, hy in (*RECTS, *RECTS):
            dx, dy = qx - cx, qy - cy
            px = np.minimum(np.maximum(dx, -hx), hx)
            py = np.minimum(np.maximum(dy, -hy), hy)
            ex, ey = dx - px, dy - py
            square = ex * ex + ey * ey
            if not (square < TOOL_RADIUS_M**2).any():
                continue
            gap = np.sqrt(square) + 1e-12
            depth = np.maximum(TOOL_RADIUS_M - gap, 0.0)
            nx, ny = ex / gap, ey / gap
            arm = (px + cx) * ny - (py + cy) * nx
            amount = depth / (1.0 + arm * arm / GYRATION_M2)
            tx, ty, turn = -nx * amount, -ny * amount, -arm * amount / GYRATION_M2
            x += c * tx - s * ty
            y += s * tx + c * ty
            yaw += turn
            ax, ay = qx - tx, qy - ty
            ct, st = np.cos(turn), np.sin(turn)
            qx, qy = ct * ax + st * ay, ct * ay - st * ax
            c, s = c * ct - s * st, s * ct + c * st
        out[k, :, 0], out[k, :, 1], out[k, :, 2] = x, y, yaw
    return out
