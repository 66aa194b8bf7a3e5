"""Rebuilds a compiled MuJoCo model in PyBullet: bodies, inertias, joints, shapes, friction.

What Bullet has no equal of is refused: explicit contact pairs, several joints per body, joints off
the body's origin, meshes that collide, actuators other than position servos on joints.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from robolearn.errors import SceneError
from robolearn.geometry import Vector, rotation_from_quat
from sim.shapes import Wxyz, Xyzw

_FREE, _HINGE = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_HINGE)
_G = mujoco.mjtGeom
_SHAPES = {
    int(_G.mjGEOM_BOX): "box",
    int(_G.mjGEOM_SPHERE): "sphere",
    int(_G.mjGEOM_CAPSULE): "capsule",
    int(_G.mjGEOM_CYLINDER): "cylinder",
}


@dataclass(frozen=True, slots=True)
class Servo:
    """A position servo: MuJoCo's control, its joint, and the torque or force limit."""

    control: int
    joint: int
    limit: float
    offset: float = 0.0
    factor: float = 1.0


def check_model(model: mujoco.MjModel, scene: str) -> None:
    """Raise :class:`SceneError` that lists everything that cannot be rebuilt."""
    wrong: list[str] = []
    if model.npair:
        wrong.append(f"{model.npair} explicit contact pairs")
    wrong += [
        f"body '{model.body(b).name}' has {model.body_jntnum[b]} joints"
        for b in range(model.nbody)
        if model.body_jntnum[b] > 1
    ]
    for joint in range(model.njnt):
        kind = int(model.jnt_type[joint])
        if kind == int(mujoco.mjtJoint.mjJNT_BALL) or np.abs(model.jnt_pos[joint]).max() > 1e-9:
            wrong.append(f"joint '{model.joint(joint).name}' (a ball, or off the body's origin)")
    for geom in _colliding(model):
        kind = int(model.geom_type[geom])
        if kind not in _SHAPES and kind != int(_G.mjGEOM_PLANE):
            wrong.append(f"geom {geom} collides and is no primitive")
    for actuator in range(model.nu):
        servo = model.actuator_gainprm[actuator, 0] == -model.actuator_biasprm[actuator, 1] != 0
        if model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT or not servo:
            wrong.append(f"actuator '{model.actuator(actuator).name}' is no position servo")
    if wrong:
        raise SceneError(f"scene '{scene}' cannot be rebuilt in PyBullet: {'; '.join(wrong)}")


def servos(model: mujoco.MjModel) -> list[Servo]:
    """One per actuator, and one per joint that an equality couples to an actuated one."""
    found = [
        Servo(a, int(model.actuator_trnid[a, 0]), float(model.actuator_forcerange[a, 1]))
        for a in range(model.nu)
    ]
    by_joint = {s.joint: s for s in found}
    for e in range(model.neq):
        if model.eq_type[e] != mujoco.mjtEq.mjEQ_JOINT:
            continue
        first, second = int(model.eq_obj1id[e]), int(model.eq_obj2id[e])
        offset, factor = model.eq_data[e, :2].tolist()
        # The first joint is held at offset + factor times the second one.
        if second in by_joint and first not in by_joint:
            of = by_joint[second]
            found.append(Servo(of.control, first, of.limit, offset, factor))
        elif first in by_joint and second not in by_joint:
            of = by_joint[first]
            found.append(Servo(of.control, second, of.limit, -offset / factor, 1.0 / factor))
    return found


def roots(model: mujoco.MjModel) -> list[int]:
    """Bodies that move and whose parent does not."""
    fixed = model.body_weldid == 0
    return [b for b in range(1, model.nbody) if not fixed[b] and fixed[model.body_parentid[b]]]


def subtree(model: mujoco.MjModel, root: int) -> list[int]:
    """``root`` and everything below it, parents first."""
    inside = {root}
    for body in range(root + 1, model.nbody):
        if int(model.body_parentid[body]) in inside:
            inside.add(body)
    return sorted(inside)


def tree_urdf(model: mujoco.MjModel, root: int) -> str:
    """The articulated tree of ``root`` on a fixed link; names are ``b<body>`` and ``j<joint>``."""
    # Bullet complains about a link without inertia, on standard output.
    parts = [
        (
            '<link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0"'
            ' ixz="0" iyz="0"/></inertial></link>'
        )
    ]
    for body in subtree(model, root):
        parent = "base" if body == root else f"b{model.body_parentid[body]}"
        parts.append(_link(model, body))
        origin = _origin(model.body_pos[body], model.body_quat[body])
        ends = f'<parent link="{parent}"/><child link="b{body}"/>{origin}'
        if not model.body_jntnum[body]:
            parts.append(f'<joint name="f{body}" type="fixed">{ends}</joint>')
            continue
        joint = int(model.body_jntadr[body])
        kind = "revolute" if model.jnt_type[joint] == _HINGE else "prismatic"
        limited = bool(model.jnt_limited[joint])
        low, high = model.jnt_range[joint].tolist() if limited else (-math.pi, math.pi)
        x, y, z = model.jnt_axis[joint].tolist()
        parts.append(
            f'<joint name="j{joint}" type="{kind}">{ends}<axis xyz="{x} {y} {z}"/>'
            f'<limit lower="{low}" upper="{high}" effort="1e4" velocity="100"/></joint>'
        )
    return '<robot name="tree">' + "".join(parts) + "</robot>"


def body_urdf(model: mujoco.MjModel, body: int) -> str:
    """A free body alone."""
    return f'<robot name="body">{_link(model, body)}</robot>'


def static_urdf(model: mujoco.MjModel, geom: int) -> str:
    """A geom of the world, at the origin of its own frame."""
    return (
        '<robot name="static"><link name="g"><inertial><mass value="0"/><inertia ixx="0" iyy="0"'
        f' izz="0" ixy="0" ixz="0" iyz="0"/></inertial><collision>{_shape(model, geom)}'
        "</collision></link></robot>"
    )


def static_geoms(model: mujoco.MjModel) -> list[int]:
    """Geoms that collide and belong to bodies that cannot move."""
    return [g for g in _colliding(model) if model.body_weldid[model.geom_bodyid[g]] == 0]


def load(bullet: Any, client: int, urdf: str, position: Vector, xyzw: Xyzw, *, fixed: bool) -> int:
    """Load URDF text; Bullet reads files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.urdf"
        path.write_text(urdf)
        return int(
            bullet.loadURDF(
                str(path),
                position.tolist(),
                xyzw.tolist(),
                useFixedBase=fixed,
                flags=bullet.URDF_USE_INERTIA_FROM_FILE | bullet.URDF_MAINTAIN_LINK_ORDER,
                physicsClientId=client,
            )
        )


def friction(model: mujoco.MjModel, geoms: list[int], *, free: bool) -> float:
    """Bullet multiplies the coefficients of two bodies, MuJoCo takes the larger one.

    With ``m`` the friction of free bodies (their mean), a free body gets ``sqrt(m)`` and another
    one ``max(its own, m) / sqrt(m)``: both products then equal MuJoCo's maximum.
    """
    movable = [
        float(model.geom_friction[g, 0])
        for g in _colliding(model)
        if _is_free(model, int(model.geom_bodyid[g]))
    ]
    m = float(np.mean(movable)) if movable else 1.0
    own = max((float(model.geom_friction[g, 0]) for g in geoms), default=m)
    return math.sqrt(m) if free else max(own, m) / math.sqrt(m)


def meets(model: mujoco.MjModel, first: list[int], second: list[int]) -> bool:
    """Whether any two geoms of two bodies collide by MuJoCo's bits."""
    contype, affinity = model.geom_contype, model.geom_conaffinity
    return any(contype[a] & affinity[b] or contype[b] & affinity[a] for a in first for b in second)


def geoms_of(model: mujoco.MjModel, body: int) -> list[int]:
    """Geoms of a body that collide."""
    return [g for g in _colliding(model) if model.geom_bodyid[g] == body]


def _is_free(model: mujoco.MjModel, body: int) -> bool:
    return bool(model.body_jntnum[body] and model.jnt_type[model.body_jntadr[body]] == _FREE)


def _colliding(model: mujoco.MjModel) -> list[int]:
    bits = model.geom_contype | model.geom_conaffinity
    return [int(g) for g in np.flatnonzero(bits)]


def _link(model: mujoco.MjModel, body: int) -> str:
    ixx, iyy, izz = model.body_inertia[body].tolist()
    mass = float(model.body_mass[body])
    shapes = "".join(
        f"<collision>{_origin(model.geom_pos[g], model.geom_quat[g])}{_shape(model, g)}</collision>"
        for g in geoms_of(model, body)
    )
    # A frame without mass (a flange): Bullet wants a little.
    if mass == 0.0:
        mass, ixx, iyy, izz = 1e-3, 1e-6, 1e-6, 1e-6
    return (
        f'<link name="b{body}"><inertial>{_origin(model.body_ipos[body], model.body_iquat[body])}'
        f'<mass value="{mass}"/><inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="0" ixz="0"'
        f' iyz="0"/></inertial>{shapes}</link>'
    )


def _shape(model: mujoco.MjModel, geom: int) -> str:
    a, b, c = (2.0 * model.geom_size[geom]).tolist()
    kind = _SHAPES.get(int(model.geom_type[geom]), "plane")
    if kind == "box":
        inner = f'<box size="{a} {b} {c}"/>'
    elif kind == "sphere":
        inner = f'<sphere radius="{a / 2}"/>'
    elif kind == "plane":
        inner = '<plane normal="0 0 1"/>'
    else:
        inner = f'<{kind} radius="{a / 2}" length="{b}"/>'
    return f"<geometry>{inner}</geometry>"


def _origin(position: Vector, quaternion: Wxyz) -> str:
    x, y, z = position.tolist()
    R = rotation_from_quat(quaternion)
    # URDF: R = Rz(yaw) Ry(pitch) Rx(roll).
    pitch = math.asin(max(-1.0, min(1.0, -R[2, 0])))
    if abs(R[2, 0]) < 1.0 - 1e-9:
        roll, yaw = math.atan2(R[2, 1], R[2, 2]), math.atan2(R[1, 0], R[0, 0])
    else:
        roll, yaw = 0.0, math.atan2(-R[0, 1], R[1, 1])
    return f'<origin xyz="{x} {y} {z}" rpy="{roll} {pitch} {yaw}"/>'
