"""Reads signals from, and writes poses into, MuJoCo's state."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError, SceneError
from robolearn.geometry import quat_conjugate, quat_from_rotation
from sim.scene import Frame, SceneConfig, SignalConfig, frame_of, require_name, world_pose
from sim.tool_commands import pose_from_values, values_from_pose

Reader = Callable[[mujoco.MjData], NDArray[np.float64]]
Placer = Callable[[mujoco.MjModel, mujoco.MjData, NDArray[np.float64]], None]

# Components, unit and angles by kind, where scene.yaml leaves them out.
SHAPES = {"site_xy": 2, "body_pose_xy": 3, "site_pose": 7, "body_pose": 7, "joint_sum": 1}
POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")


def signal_size(signal: SignalConfig) -> int:
    """Number of values of a signal."""
    return SHAPES.get(signal.kind, len(signal.of))


def signal_components(signal: SignalConfig) -> tuple[str, ...]:
    """Names of the values: those of scene.yaml, or those that the kind fixes."""
    return signal.components or (POSE if signal_size(signal) == 7 and signal.frame else ())


def reader(model: mujoco.MjModel, config: SceneConfig, signal: SignalConfig) -> Reader:
    """A function that reads one signal; positions need ``mj_kinematics`` to be current."""
    at = f"signal {signal.name}"
    if signal.kind == "site_xy":
        site = require_name(model, mujoco.mjtObj.mjOBJ_SITE, signal.of[0], at)
        return _site_reader(site, frame_of(model, config, signal.frame))
    if signal.kind == "body_pose_xy":
        body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], at)
        return _body_reader(body, frame_of(model, config, signal.frame))
    if signal.kind == "site_pose":
        site = require_name(model, mujoco.mjtObj.mjOBJ_SITE, signal.of[0], at)
        frame = _Pose(world_pose(model, config.frames[signal.frame]), signal.near)
        return lambda data: frame.values(data.site_xpos[site], data.site_xmat[site])
    if signal.kind == "body_pose":
        body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], at)
        frame = _Pose(world_pose(model, config.frames[signal.frame]), signal.near)
        return lambda data: frame.values(data.xpos[body], data.xmat[body])
    joints = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, at) for n in signal.of]
    if signal.kind == "joint_sum":
        at_joints = np.array([model.jnt_qposadr[j] for j in joints])
        return lambda data: data.qpos[at_joints].sum(keepdims=True)
    if signal.kind == "joint_position":
        qpos = np.array([model.jnt_qposadr[j] for j in joints])
        return lambda data: data.qpos[qpos]
    dofs = np.array([model.jnt_dofadr[j] for j in joints])
    return lambda data: data.qvel[dofs]


def placer(model: mujoco.MjModel, config: SceneConfig, signal: SignalConfig) -> Placer:
    """A function that puts a body, or joints, where a signal says.

    A planar pose needs two slides and a hinge or a free joint; a full pose a free joint or a
    mocap body.
    """
    if signal.kind in ("joint_position", "joint_sum"):
        return _joint_placer(model, signal)
    body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], f"signal {signal.name}")
    frame = frame_of(model, config, signal.frame)
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    kinds = [int(model.jnt_type[first + i]) for i in range(count)]
    slide, hinge = int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)
    adr = int(model.jnt_qposadr[first]) if count else 0
    free = [int(mujoco.mjtJoint.mjJNT_FREE)]
    if signal.kind == "body_pose":
        pose = _Pose(world_pose(model, config.frames[signal.frame]))
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


class _Pose:
    """A fixed frame in space: reads and writes poses of 7 values in it, quaternions on the side
    of ``near``.
    """

    def __init__(
        self,
        T_world_frame: NDArray[np.float64],
        near: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0),
    ) -> None:
        self._near = np.array(near)
        self._T = T_world_frame
        self._rotation, self._origin = T_world_frame[:3, :3], T_world_frame[:3, 3]
        self._turned = bool(np.abs(self._rotation - np.eye(3)).max() > 1e-12)
        self._back = quat_conjugate(quat_from_rotation(self._rotation))
        self._quat = np.empty(4)

    def values(
        self, position: NDArray[np.float64], matrix: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Position ``[3]`` and rotation ``[9]`` in the world as 7 values in the frame."""
        out = np.empty(7)
        out[:3] = (position - self._origin) @ self._rotation
        mujoco.mju_mat2Quat(self._quat, matrix)
        if self._turned:
            mujoco.mju_mulQuat(self._quat, self._back, self._quat.copy())
        out[3:] = -self._quat if self._quat @ self._near < 0.0 else self._quat
        return out

    def to_world(self, values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        """Inverse of :meth:`values`: 7 values in the world."""
        return values_from_pose(self._T @ pose_from_values(values, name))


def _joint_placer(model: mujoco.MjModel, signal: SignalConfig) -> Placer:
    where = f"signal {signal.name}"
    joints = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, where) for n in signal.of]
    adr = np.array([model.jnt_qposadr[j] for j in joints])
    scalar = (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE)
    if any(model.jnt_type[j] not in [int(k) for k in scalar] for j in joints):
        raise SceneError(f"{where}: only slides and hinges can be placed by their position")
    share = len(joints) if signal.kind == "joint_sum" else 1

    def place(model: mujoco.MjModel, data: mujoco.MjData, values: NDArray[np.float64]) -> None:
        low, high = model.jnt_range[joints].T
        limited = model.jnt_limited[joints].astype(bool)
        at = values / share + np.zeros(len(joints))
        if np.any(limited & ((at < low - 1e-9) | (at > high + 1e-9))):
            raise DataError(
                f"{signal.name}: {values.tolist()} is beyond the joints' range"
                f" {low.tolist()} to {high.tolist()}"
            )
        data.qpos[adr] = at

    return place


def _pose_placer(adr: int, frame: _Pose, name: str) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, values: NDArray[np.float64]) -> None:
        del model
        data.qpos[adr : adr + 7] = frame.to_world(values, name)

    return place


def _mocap_placer(mocap: int, frame: _Pose, name: str) -> Placer:
    def place(model: mujoco.MjModel, data: mujoco.MjData, values: NDArray[np.float64]) -> None:
        del model
        pose = frame.to_world(values, name)
        data.mocap_pos[mocap], data.mocap_quat[mocap] = pose[:3], pose[3:]

    return place


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
