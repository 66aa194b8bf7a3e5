"""Finds the arm in a scene's model: for the lab, which hides its physics, and for identification,
which finds it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import mujoco
import numpy as np

from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import named_arm
from robolearn.arms.shapes import Joints
from robolearn.config import from_dict
from robolearn.errors import ConfigError
from robolearn.geometry import Pose, Vector, inverse, pose
from robolearn.shapes import OwnFlags, OwnIndex
from sim.control.arm_xy import arm_xy_config
from sim.control.arms import ArmConfig, ArmsConfig
from sim.control.own_arm import arm_of
from sim.control.servos import Gains
from sim.env.contacts import geoms_behind, inside
from sim.scene.config import Scene, SceneConfig, require_name
from sim.scene.payload import PAYLOAD, add_payload

_KINDS = ("arm_xy", "arms")


@dataclass(frozen=True, slots=True)
class ArmMount:
    """Where an arm is in a scene's model: its joints and servos in their order.

    ``bodies``: all of the arm, ``behind``: geoms behind its last joint, ``tip``: the tool's tip in
    the flange's frame [m], ``tool_length_m`` of a bare tool on it; ``gains``: identified ones,
    which replace those of scene.xml.
    """

    arm: SerialArm
    home: tuple[float, ...]
    joints: tuple[str, ...]
    servos: tuple[str, ...]
    gains: Gains | None
    tool_length_m: float
    tip: Vector
    T_world_base: Pose
    qpos: OwnIndex
    dofs: OwnIndex
    actuators: OwnIndex
    bodies: OwnFlags
    behind: OwnFlags


def find_mount(
    config: SceneConfig, model: mujoco.MjModel, *, serial_servos: bool = False
) -> ArmMount:
    """The first arm of a scene; ``serial_servos``: with its gripper's joint as one more.

    Raises :class:`ConfigError` for a scene without one, :class:`SceneError` for missing names.
    """
    where = f"scene '{config.name}'"
    kind = config.control.get("kind")
    if kind not in _KINDS:
        raise ConfigError(f"{where} has no arm (control.kind '{kind}'); expected one of {_KINDS}")
    tool_length_m, T_world_base = 0.0, np.eye(4)
    extra: ArmConfig | None = None
    if kind == "arm_xy":
        table = arm_xy_config(config.control)
        arm, joints, actuators, home = (
            *(named_arm(table.arm), table.joints, table.actuators, table.home),
        )
        gains, tool_length_m = table.gains, table.tool_length_m
        tip = np.array([0.0, 0.0, tool_length_m])
    else:
        extra = from_dict(ArmsConfig, config.control, where="scene.yaml: control").arms[0]
        arm, joints, actuators, home = (
            *(arm_of(model, extra), extra.joints, extra.actuators, extra.home),
        )
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        body = data.body(extra.base)
        T_world_base = pose(body.xmat.reshape(3, 3), body.xpos)
        gains = extra.gains
        T_base_flange = arm.fk(_angles(model, data, joints[: arm.dof]))
        site = np.append(data.site(extra.tool).xpos, 1.0)
        tip = (inverse(T_world_base @ T_base_flange) @ site)[:3]
    if serial_servos:
        gripper = None if extra is None else extra.gripper
        if gripper is None or len(gripper.joints) != 1:
            raise ConfigError(f"serial_servos: {where} has no gripper of one joint")
        joints, actuators = (*joints, *gripper.joints), (*actuators, gripper.actuator)
        home = (*home, 0.0)
    at = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, where) for n in joints]
    ids = [require_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, n, where) for n in actuators]
    first = int(model.jnt_bodyid[at[0]])
    return ArmMount(
        arm=arm,
        home=home,
        joints=joints,
        servos=actuators,
        gains=gains,
        tool_length_m=tool_length_m,
        tip=tip,
        T_world_base=T_world_base,
        qpos=np.array([model.jnt_qposadr[j] for j in at], dtype=np.int64),
        dofs=np.array([model.jnt_dofadr[j] for j in at], dtype=np.int64),
        actuators=np.array(ids, dtype=np.int64),
        bodies=np.array([inside(model, b, first) for b in range(model.nbody)]),
        behind=geoms_behind(model, at[arm.dof - 1]),
    )


def loaded(scene: Scene, model: mujoco.MjModel, mount: ArmMount) -> Scene:
    """The scene with a body ``payload`` at the tool's tip, unless it has one; ``model`` is its own,
    compiled.
    """
    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, PAYLOAD) >= 0:
        return scene
    last = mount.joints[mount.arm.dof - 1]
    x, y, z = tip_in_last_link(model, mount).tolist()

    def edit(spec: mujoco.MjSpec) -> None:
        add_payload(spec, last, (x, y, z))

    return dataclasses.replace(scene, edits=(*scene.edits, edit))


def tip_in_last_link(model: mujoco.MjModel, mount: ArmMount) -> Vector:
    """The tool's tip in the frame of the last joint's body [m]."""
    link, flange = _last_link(model, mount)
    tip = (flange @ np.append(mount.tip, 1.0))[:3]
    return link[:3, :3].T @ (tip - link[:3, 3])


def flange_in_last_link(model: mujoco.MjModel, mount: ArmMount) -> Pose:
    """The flange ``[4, 4]`` in the frame of the last joint's body."""
    link, flange = _last_link(model, mount)
    return inverse(link) @ flange


def _last_link(model: mujoco.MjModel, mount: ArmMount) -> tuple[Pose, Pose]:
    """The last joint's body and the flange in the world, in the initial state."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    arm = mount.arm
    joints = mount.joints[: arm.dof]
    body = data.body(int(model.jnt_bodyid[model.joint(joints[-1]).id]))
    flange = mount.T_world_base @ arm.fk(_angles(model, data, joints))
    return pose(body.xmat.reshape(3, 3), body.xpos), flange


def _angles(model: mujoco.MjModel, data: mujoco.MjData, joints: tuple[str, ...]) -> Joints:
    return np.array([data.qpos[model.joint(name).qposadr[0]] for name in joints])
