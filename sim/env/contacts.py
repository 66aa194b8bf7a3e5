"""Says which bodies touch, and with what force: what a demonstration never touched, nothing made
from it should.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import mujoco
import numpy as np

from robolearn.contracts import Env
from robolearn.geometry import Vector
from robolearn.shapes import OwnFlags


@runtime_checkable
class TouchingEnv(Env, Protocol):
    """An env that can say what touches."""

    def contacts(self) -> frozenset[tuple[str, str]]:
        """Pairs of bodies that touch now, by name, each in alphabetical order."""
        ...


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> frozenset[tuple[str, str]]:
    """Pairs of bodies whose shapes overlap in ``data.contact``."""
    deep = np.asarray(data.contact.dist) < 0.0
    pairs = model.geom_bodyid[np.asarray(data.contact.geom)[deep]].reshape(-1, 2)
    names = [
        sorted(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, b) or str(b) for b in pair)
        for pair in {(int(a), int(b)) for a, b in pairs}
    ]
    return frozenset((first, second) for first, second in names)


def geoms_behind(model: mujoco.MjModel, joint: int) -> OwnFlags:
    """Geoms ``[ngeom]`` of the body that a joint moves and of all that hangs on it."""
    root = int(model.jnt_bodyid[joint])
    return np.array([inside(model, int(b), root) for b in model.geom_bodyid], dtype=np.bool_)


def inside(model: mujoco.MjModel, body: int, root: int) -> bool:
    """Whether a body is ``root`` or hangs on it."""
    while body > root:
        body = int(model.body_parentid[body])
    return body == root


def force_on(model: mujoco.MjModel, data: mujoco.MjData, geoms: OwnFlags) -> Vector:
    """Sum of the contact forces ``[3]`` [N] on ``geoms [ngeom]`` from all others in the last step,
    in the world's frame.
    """
    force, wrench = np.zeros(3), np.zeros(6)
    pairs = geoms[np.asarray(data.contact.geom).reshape(-1, 2)]
    for i in np.flatnonzero(pairs[:, 0] != pairs[:, 1]):
        mujoco.mj_contactForce(model, data, int(i), wrench)
        # The frame's rows are the contact's axes; the force acts on the second geom.
        acting = data.contact[int(i)].frame.reshape(3, 3).T @ wrench[:3]
        force += acting if pairs[i, 1] else -acting
    return force
