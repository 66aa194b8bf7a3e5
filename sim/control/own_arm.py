"""Reads the kinematics of an arm of one's own out of the scene's own model (``arm: own``).

Frame i lies on joint i, with z along its axis; the flange is the tool's site.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import mujoco
import numpy as np

from robolearn.arms.kinematics import Link, SerialArm, Six
from robolearn.arms.models import ARMS
from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import Pose, Rotation, inverse, pose
from robolearn.shapes import Floats
from sim.scene.config import require_name

OWN = "own"
_HINGE = int(mujoco.mjtJoint.mjJNT_HINGE)


@runtime_checkable
class ArmNames(Protocol):
    """What names an arm in a scene; ``sim.control.arms.ArmConfig`` does."""

    @property
    def arm(self) -> str:
        """One of ``robolearn/arms/models.py``, or ``own``."""
        ...

    @property
    def joints(self) -> tuple[str, ...]:
        """From the base outwards."""
        ...

    @property
    def actuators(self) -> tuple[str, ...]:
        """One per joint."""
        ...

    @property
    def base(self) -> str:
        """A body."""
        ...

    @property
    def tool(self) -> str:
        """A site."""
        ...

    @property
    def max_speed(self) -> tuple[float, ...]:
        """[rad/s]; empty: the arm's published ones."""
        ...


def arm_of(model: mujoco.MjModel, names: ArmNames) -> SerialArm:
    """The arm of that name of ``robolearn/arms/models.py``; ``own``: the one that moves the tool's
    site of ``model`` against the base.

    Raises :class:`SceneError` for names that do not exist, and for what is no chain of hinges with
    limits and servos.
    """
    where, name, joints = "scene.yaml: control", names.arm, names.joints
    if name in ARMS:
        return ARMS[name]
    if name != OWN:
        raise SceneError(
            f"{where}: no arm '{name}'.{did_you_mean(name, [*ARMS, OWN])} Known: {sorted(ARMS)};"
            f" '{OWN}' takes the kinematics from scene.xml"
        )
    ids = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, where) for n in joints]
    servos = [require_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, n, where) for n in names.actuators]
    body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, names.base, where)
    site = require_name(model, mujoco.mjtObj.mjOBJ_SITE, names.tool, where)
    if len(names.max_speed) != len(ids) or len(servos) != len(ids):
        raise SceneError(
            f"{where}: 'arm: {OWN}' needs max_speed [rad/s] and an actuator for each of its"
            f" {len(ids)} joints"
        )
    _require_chain(model, ids, body, int(model.site_bodyid[site]), where)
    data = mujoco.MjData(model)
    data.qpos[[int(model.jnt_qposadr[j]) for j in ids]] = 0.0
    mujoco.mj_kinematics(model, data)
    last = pose(data.xmat[body].reshape(3, 3), data.xpos[body])
    links: list[Link] = []
    for j in ids:
        T = _on_axis(model, data, j)
        links.append(_link(model, data, j, T, inverse(last) @ T))
        last = T
    ranges = model.jnt_range[ids]
    return SerialArm(
        name=OWN,
        links=tuple(links),
        joint_names=joints,
        low=tuple(ranges[:, 0].tolist()),
        high=tuple(ranges[:, 1].tolist()),
        max_speed=names.max_speed,
        max_torque=tuple(_torque(model, a, j) for a, j in zip(servos, ids, strict=True)),
        convention="modified",
        flange=six(inverse(last) @ pose(data.site_xmat[site].reshape(3, 3), data.site_xpos[site])),
    )


def six(T: Pose) -> Six:
    """x, y, z [m], roll, pitch, yaw [rad] of a pose."""
    R = T[:3, :3]
    level = math.hypot(R[0, 0], R[1, 0])
    pitch = math.atan2(-R[2, 0], level)
    if level > 1e-9:
        roll, yaw = math.atan2(R[2, 1], R[2, 2]), math.atan2(R[1, 0], R[0, 0])
    else:
        roll, yaw = math.atan2(-R[1, 2], R[1, 1]), 0.0
    x, y, z = (float(v) for v in T[:3, 3])
    return x, y, z, roll, pitch, yaw


def _require_chain(
    model: mujoco.MjModel, joints: list[int], base: int, tool: int, where: str
) -> None:
    """Every moving body between tool and base turns about one of the joints, in their order."""
    found: list[int] = []
    at = tool
    while at not in (base, 0):
        first, count = int(model.body_jntadr[at]), int(model.body_jntnum[at])
        found = [*range(first, first + count), *found]
        at = int(model.body_parentid[at])
    named = [model.joint(j).name for j in found]
    if at != base or found != joints:
        raise SceneError(
            f"{where}: between the body '{model.body(base).name}' and the tool's site move the"
            f" joints {named}, 'joints' lists {[model.joint(j).name for j in joints]}"
        )
    for j in joints:
        name = model.joint(j).name
        if int(model.jnt_type[j]) != _HINGE or not model.jnt_limited[j]:
            raise SceneError(f"{where}: joint '{name}' of an arm must be a hinge with a range")


def _on_axis(model: mujoco.MjModel, data: mujoco.MjData, joint: int) -> Pose:
    """The body's axes, turned by as little as brings z onto the joint's axis."""
    body = data.xmat[int(model.jnt_bodyid[joint])].reshape(3, 3)
    turn = _from_z(np.asarray(model.jnt_axis[joint], dtype=np.float64))
    return pose(body @ turn, data.xanchor[joint])


def _from_z(axis: Floats) -> Rotation:
    """The least rotation that takes z to ``axis [3]``."""
    x, y, z = (axis / np.linalg.norm(axis)).tolist()
    if z < -1.0 + 1e-12:
        return np.diag([1.0, -1.0, -1.0])
    k = 1.0 / (1.0 + z)
    return np.array(
        [[1.0 - k * x * x, -k * x * y, x], [-k * x * y, 1.0 - k * y * y, y], [-x, -y, z]]
    )


def _link(
    model: mujoco.MjModel, data: mujoco.MjData, joint: int, T_world_link: Pose, origin: Pose
) -> Link:
    body = int(model.jnt_bodyid[joint])
    T = inverse(T_world_link)
    axes = T[:3, :3] @ data.ximat[body].reshape(3, 3)
    inertia = axes @ np.diag(model.body_inertia[body]) @ axes.T
    com = (T @ np.append(data.xipos[body], 1.0))[:3]
    return Link(
        *(0.0, 0.0, 0.0, float(model.body_mass[body])),
        com=(float(com[0]), float(com[1]), float(com[2])),
        inertia=(
            *(float(inertia[0, 0]), float(inertia[1, 1]), float(inertia[2, 2])),
            *(float(inertia[0, 1]), float(inertia[0, 2]), float(inertia[1, 2])),
        ),
        origin=six(origin),
    )


def _torque(model: mujoco.MjModel, actuator: int, joint: int) -> float:
    """The largest that servo or joint allow [N m]; inf where neither says any."""
    most = [
        float(limits[1])
        for limited, limits in (
            (model.actuator_forcelimited[actuator], model.actuator_forcerange[actuator]),
            (model.jnt_actfrclimited[joint], model.jnt_actfrcrange[joint]),
        )
        if limited
    ]
    return min(most, default=math.inf)
