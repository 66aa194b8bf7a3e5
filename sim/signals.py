"""Reads signals from, and writes poses into, MuJoCo's state."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import SceneError
from sim.scene import Frame, SceneConfig, SignalConfig, frame_of, require_name

Reader = Callable[[mujoco.MjData], NDArray[np.float64]]
Placer = Callable[[mujoco.MjModel, mujoco.MjData, NDArray[np.float64]], None]

# Components, unit and angles by kind, where scene.yaml leaves them out.
SHAPES = {"site_xy": 2, "body_pose_xy": 3}


def signal_size(signal: SignalConfig) -> int:
    """Number of values of a signal."""
    return SHAPES.get(signal.kind, len(signal.of))


def reader(model: mujoco.MjModel, config: SceneConfig, signal: SignalConfig) -> Reader:
    """A function that reads one signal; positions need ``mj_kinematics`` to be current."""
    at = f"signal {signal.name}"
    if signal.kind == "site_xy":
        site = require_name(model, mujoco.mjtObj.mjOBJ_SITE, signal.of[0], at)
        return _site_reader(site, frame_of(model, config, signal.frame))
    if signal.kind == "body_pose_xy":
        body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], at)
        return _body_reader(body, frame_of(model, config, signal.frame))
    joints = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, at) for n in signal.of]
    if signal.kind == "joint_position":
        qpos = np.array([model.jnt_qposadr[j] for j in joints])
        return lambda data: data.qpos[qpos]
    dofs = np.array([model.jnt_dofadr[j] for j in joints])
    return lambda data: data.qvel[dofs]


def placer(model: mujoco.MjModel, config: SceneConfig, signal: SignalConfig) -> Placer:
    """A function that puts a body at a planar pose: by two slides and a hinge, or a free joint."""
    body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], f"signal {signal.name}")
    frame = frame_of(model, config, signal.frame)
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    kinds = [int(model.jnt_type[first + i]) for i in range(count)]
    slide, hinge = int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)
    adr = int(model.jnt_qposadr[first]) if count else 0
    if kinds == [slide, slide, hinge]:
        return _planar_placer(body, adr, frame)
    if kinds == [int(mujoco.mjtJoint.mjJNT_FREE)]:
        return _free_placer(adr, frame)
    raise SceneError(
        f"signal {signal.name}: body '{signal.of[0]}' cannot be placed; it needs two slides and a"
        " hinge, in this order, or one free joint"
    )


def _site_reader(site: int, frame: Frame) -> Reader:
    def read(data: mujoco.MjData) -> NDArray[np.float64]:
        return frame.from_world(data.site_xpos[site, :2])

    return read


def _body_reader(body: int, frame: Frame) -> Reader:
    def read(data: mujoco.MjData) -> NDArray[np.float64]:
        xy = frame.from_world(data.xpos[body, :2])
        matrix = data.xmat[body]
        yaw = np.arctan2(matrix[3], matrix[0]) - frame.yaw
        return np.array([xy[0], xy[1], -((np.pi - yaw) % (2 * np.pi) - np.pi)])

    return read


def _planar_placer(body: int, adr: int, frame: Frame) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, pose: NDArray[np.float64]) -> None:
        # The hinge need not be at the body's origin: turn first, then shift what is missing.
        data.qpos[adr : adr + 3] = 0.0
        mujoco.mj_kinematics(model, data)
        matrix = data.xmat[body]
        start = float(np.arctan2(matrix[3], matrix[0]))
        data.qpos[adr + 2] = pose[2] + frame.yaw - start
        mujoco.mj_kinematics(model, data)
        data.qpos[adr : adr + 2] = frame.to_world(pose[:2]) - data.xpos[body, :2]

    return place


def _free_placer(adr: int, frame: Frame) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, pose: NDArray[np.float64]) -> None:
        half = 0.5 * (pose[2] + frame.yaw)
        data.qpos[adr : adr + 2] = frame.to_world(pose[:2])
        data.qpos[adr + 2] = model.qpos0[adr + 2]
        data.qpos[adr + 3 : adr + 7] = [np.cos(half), 0.0, 0.0, np.sin(half)]

    return place
