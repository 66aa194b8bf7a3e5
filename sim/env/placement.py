"""Puts bodies and joints where a condition says, by signal."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np

from robolearn.arms.tool_commands import pose_from_values, values_from_pose
from robolearn.errors import DataError, SceneError
from robolearn.geometry import PlanarPose, Pose
from sim.scene.config import Frame, SceneConfig, SignalConfig, frame_of, require_name, world_pose
from sim.scene.signals import given_at
from sim.shapes import PoseValues, Values

Placer = Callable[[mujoco.MjModel, mujoco.MjData, Values], None]


def placer(model: mujoco.MjModel, config: SceneConfig, signal: SignalConfig) -> Placer:
    """A function that puts a body, or joints, where a signal says.

    A planar pose needs two slides and a hinge or a free joint; a full pose a free joint or a
    mocap body.
    """
    if signal.kind in ("joint_position", "joint_sum"):
        return _joint_placer(model, signal)
    if signal.kind == "given":
        return _given_placer(given_at(config, signal.name))
    body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], f"signal {signal.name}")
    frame = frame_of(model, config, signal.frame)
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    kinds = [int(model.jnt_type[first + i]) for i in range(count)]
    slide, hinge = int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)
    adr = int(model.jnt_qposadr[first]) if count else 0
    free = [int(mujoco.mjtJoint.mjJNT_FREE)]
    if signal.kind == "body_pose":
        pose = world_pose(model, config.frames[signal.frame])
        if kinds == free:
            return _pose_placer(adr, pose, signal.name)
        mocap = int(model.body_mocapid[body])
        if mocap >= 0:
            return _mocap_placer(mocap, pose, signal.name)
        raise SceneError(
            f"signal {signal.name}: body '{signal.of[0]}' cannot be placed; it needs a free joint,"
            ' or mocap="true" for what only marks a place'
        )
    if kinds == [slide, slide, hinge]:
        return _planar_placer(body, adr, frame)
    if kinds == free:
        return _free_placer(adr, frame)
    raise SceneError(
        f"signal {signal.name}: body '{signal.of[0]}' cannot be placed; it needs two slides and a"
        " hinge, in this order, or one free joint"
    )


def _given_placer(at: slice) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, values: Values) -> None:
        del model
        data.userdata[at] = values

    return place


def _joint_placer(model: mujoco.MjModel, signal: SignalConfig) -> Placer:
    where = f"signal {signal.name}"
    joints = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, where) for n in signal.of]
    adr = np.array([model.jnt_qposadr[j] for j in joints])
    scalar = (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE)
    if any(model.jnt_type[j] not in [int(k) for k in scalar] for j in joints):
        raise SceneError(f"{where}: only slides and hinges can be placed by their position")
    share = len(joints) if signal.kind == "joint_sum" else 1

    def place(model: mujoco.MjModel, data: mujoco.MjData, values: Values) -> None:
        low, high = model.jnt_range[joints].T
        limited = model.jnt_limited[joints].astype(bool)
        at = (values - signal.offset) / (signal.scale * share) + np.zeros(len(joints))
        if np.any(limited & ((at < low - 1e-9) | (at > high + 1e-9))):
            raise DataError(
                f"{signal.name}: {values.tolist()} is beyond the joints' range"
                f" {low.tolist()} to {high.tolist()}"
            )
        data.qpos[adr] = at

    return place


def _pose_placer(adr: int, T: Pose, name: str) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, values: PoseValues) -> None:
        del model
        data.qpos[adr : adr + 7] = _in_world(T, values, name)

    return place


def _mocap_placer(mocap: int, T: Pose, name: str) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, values: PoseValues) -> None:
        del model
        pose = _in_world(T, values, name)
        data.mocap_pos[mocap], data.mocap_quat[mocap] = pose[:3], pose[3:]

    return place


def _in_world(T_world_frame: Pose, values: PoseValues, name: str) -> PoseValues:
    return values_from_pose(T_world_frame @ pose_from_values(values, name))


def _planar_placer(body: int, adr: int, frame: Frame) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, pose: PlanarPose) -> None:
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
    def place(model: mujoco.MjModel, data: mujoco.MjData, pose: PlanarPose) -> None:
        half = 0.5 * (pose[2] + frame.yaw)
        data.qpos[adr : adr + 2] = frame.to_world(pose[:2])
        data.qpos[adr + 2] = model.qpos0[adr + 2]
        data.qpos[adr + 3 : adr + 7] = [np.cos(half), 0.0, 0.0, np.sin(half)]

    return place
