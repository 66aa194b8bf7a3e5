"""Draws the things of a scene from above: what a person at a page sees of them.

A thing is a body whose pose is a signal; its outline are the hulls of its visible geoms, and of
those of bodies that are fixed to it, as they stand in ``scene.xml``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from robolearn.geometry import VectorRows, rot_z, yaw_of
from robolearn.shapes import Flags
from robolearn.types import Outline
from sim.scene.config import SignalConfig

_KINDS = ("body_pose", "body_pose_xy")
# Geoms of higher groups are hidden (collision shapes).
_SHOWN_GROUPS = 3
_CIRCLE = np.linspace(0.0, 2.0 * math.pi, 24, endpoint=False)
# Fine enough to be drawn [decimals of a metre].
_DECIMALS = 4


def scene_outlines(signals: Sequence[SignalConfig], model: mujoco.MjModel) -> tuple[Outline, ...]:
    """One for every body whose pose is a signal and that can be seen, named as the signal's part:
    convex polygons in the body's own frame, level [m].
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    found: list[Outline] = []
    for signal in signals:
        if signal.kind not in _KINDS:
            continue
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0])
        level = rot_z(-yaw_of(data.xmat[body].reshape(3, 3)))
        polygons: list[tuple[tuple[float, float], ...]] = []
        for geom in np.flatnonzero(_fixed_to(model, body)[model.geom_bodyid]).tolist():
            if not _visible(model, geom):
                continue
            points = _points(model, geom) @ data.geom_xmat[geom].reshape(3, 3).T
            from_body = (points + data.geom_xpos[geom] - data.xpos[body]) @ level.T
            polygons += _hull(from_body)
        if polygons:
            found.append(Outline(signal.name.partition("/")[0], tuple(polygons)))
    return tuple(found)


def _fixed_to(model: mujoco.MjModel, body: int) -> Flags:
    """Of each body: whether it is ``body`` or moves with it."""
    fixed = np.zeros(model.nbody, dtype=bool)
    fixed[body] = True
    # Parents come before their children.
    for child in range(body + 1, model.nbody):
        fixed[child] = fixed[model.body_parentid[child]] and model.body_jntnum[child] == 0
    return fixed


def _visible(model: mujoco.MjModel, geom: int) -> bool:
    shown = model.geom_group[geom] < _SHOWN_GROUPS
    return bool(shown and model.geom_rgba[geom, 3] > 0.0)


def _points(model: mujoco.MjModel, geom: int) -> VectorRows:
    """Points whose hull is the geom, in its own frame."""
    kind, size = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        return model.mesh_vert[first : first + count].astype(np.float64)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=3))) * size
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return np.concatenate([_ring(size[0], z) for z in (-size[1], size[1])])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return np.concatenate(
            [_ball(size[0]) + np.array([0.0, 0.0, z]) for z in (-size[1], size[1])]
        )
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return _ball(size[0])
    if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        return _ball(1.0) * size
    # Planes and height fields are the ground.
    return np.zeros((0, 3))


def _ring(radius: float, z: float) -> VectorRows:
    return np.stack(
        [radius * np.cos(_CIRCLE), radius * np.sin(_CIRCLE), np.full(len(_CIRCLE), z)], axis=1
    )


def _ball(radius: float) -> VectorRows:
    heights = np.linspace(-1.0, 1.0, 9)
    return np.concatenate([_ring(radius * math.sqrt(1.0 - h * h), radius * h) for h in heights])


def _hull(points: VectorRows) -> list[tuple[tuple[float, float], ...]]:
    """The hull from above; nothing of what has no area."""
    if len(points) < 3:
        return []
    try:
        corners = points[ConvexHull(points[:, :2]).vertices, :2]
    except QhullError:
        return []
    return [tuple((round(x, _DECIMALS), round(y, _DECIMALS)) for x, y in corners.tolist())]
