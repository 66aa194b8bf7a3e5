"""Reads signals from MuJoCo's state, many at once: Python's overhead per tick decides the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from robolearn.errors import SceneError
from robolearn.geometry import (
    POSE_COMPONENTS,
    Pose,
    Vector,
    quat_conjugate,
    quat_from_rotation,
)
from robolearn.shapes import AnyFloats, OwnFloats
from sim.scene.config import (
    UNPHYSICAL,
    Frame,
    SceneConfig,
    SignalConfig,
    frame_of,
    require_name,
    world_pose,
)
from sim.shapes import Values
from sim.tasks.registry import derived_signal

# The values by name, read-only; positions need ``mj_kinematics`` to be current.
Reader = Callable[[], dict[str, OwnFloats]]

# Components, unit and angles by kind, where scene.yaml leaves them out.
SHAPES = {"site_xy": 2, "body_pose_xy": 3, "site_pose": 7, "body_pose": 7, "joint_sum": 1}


def signal_size(signal: SignalConfig) -> int:
    """Number of values of a signal."""
    return SHAPES.get(signal.kind, len(signal.of))


def signal_components(signal: SignalConfig) -> tuple[str, ...]:
    """Names of the values: those of scene.yaml, or those that the kind fixes."""
    if signal.kind in UNPHYSICAL:
        return signal.components or signal.of
    return signal.components or (
        POSE_COMPONENTS if signal_size(signal) == 7 and signal.frame else ()
    )


def reader(
    model: mujoco.MjModel, data: mujoco.MjData, config: SceneConfig, signals: Sequence[SignalConfig]
) -> Reader:
    """A function that reads these signals together from ``data`` (bound: it holds views of it)."""
    derived = [
        (s.name, derived_signal(config.task.name, s.name, f"signal {s.name}"))
        for s in signals
        if s.kind == "derived"
    ]
    signals = [s for s in signals if s.kind != "derived"]
    slices: list[tuple[str, slice]] = []
    end = 0
    for signal in signals:
        slices.append((signal.name, slice(end, end + signal_size(signal))))
        end += signal_size(signal)
    scratch = np.zeros(end)
    copies = [
        _READERS[signal.kind](model, data, config, signal, scratch[place])
        for signal, (_, place) in zip(signals, slices, strict=True)
    ]

    def read() -> dict[str, OwnFloats]:
        for copy in copies:
            copy()
        flat = scratch.copy()
        flat.setflags(write=False)
        return {name: flat[place] for name, place in slices}

    def read_all() -> dict[str, OwnFloats]:
        values = read()
        for name, function in derived:
            values[name] = function(values)
        return values

    return read_all if derived else read


def given_at(config: SceneConfig, name: str) -> slice:
    """Where MuJoCo's ``userdata`` holds a ``given`` signal."""
    start = 0
    for signal in config.signals:
        if signal.kind == "given":
            if signal.name == name:
                return slice(start, start + len(signal.of))
            start += len(signal.of)
    raise SceneError(f"no given signal '{name}'")


_Copy = Callable[[], None]


def _positions(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    del config
    return _gather(data.qpos, [int(model.jnt_qposadr[j]) for j in _joints(model, signal)], out)


def _velocities(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    del config
    return _gather(data.qvel, [int(model.jnt_dofadr[j]) for j in _joints(model, signal)], out)


def _given(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    del model
    place = given_at(config, signal.name)
    return _gather(data.userdata, list(range(place.start, place.stop)), out)


def _sum(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    del config
    qpos, at = data.qpos, [int(model.jnt_qposadr[j]) for j in _joints(model, signal)]

    scale, offset = signal.scale, signal.offset

    def copy() -> None:
        out[0] = scale * sum([qpos.item(j) for j in at]) + offset

    return copy


def _gather(source: AnyFloats, at: list[int], out: Values) -> _Copy:
    """Copies elements; neighbours as one slice, which is several times faster."""
    if at == list(range(at[0], at[0] + len(at))):
        view = source[at[0] : at[0] + len(at)]

        def copy() -> None:
            out[:] = view
    else:
        index = np.array(at)

        def copy() -> None:
            out[:] = source[index]

    return copy


def _joints(model: mujoco.MjModel, signal: SignalConfig) -> list[int]:
    kind, at = mujoco.mjtObj.mjOBJ_JOINT, f"signal {signal.name}"
    return [require_name(model, kind, name, at) for name in signal.of]


def _body_pose(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], f"signal {signal.name}")
    position, quat = data.xpos[body], data.xquat[body]
    finish = _in_frame(world_pose(model, config.frames[signal.frame]), position, signal, out)
    turn = out[3:]

    def copy() -> None:
        turn[:] = quat
        finish()

    return copy


def _site_pose(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    site = require_name(model, mujoco.mjtObj.mjOBJ_SITE, signal.of[0], f"signal {signal.name}")
    position, matrix = data.site_xpos[site], data.site_xmat[site]
    finish = _in_frame(world_pose(model, config.frames[signal.frame]), position, signal, out)
    turn = out[3:]

    def copy() -> None:
        mujoco.mju_mat2Quat(turn, matrix)
        finish()

    return copy


def _in_frame(T: Pose, position: Vector, signal: SignalConfig, out: Values) -> _Copy:
    """Completes ``out``: the position in the frame, and a quaternion that is still the world's."""
    origin, rotation = T[:3, 3].copy(), T[:3, :3]
    turned = bool(np.abs(rotation - np.eye(3)).max() > 1e-12)
    back = quat_conjugate(quat_from_rotation(rotation))
    at, quat, sign = out[:3], out[3:], POSE_COMPONENTS.index(signal.positive)

    def finish() -> None:
        np.subtract(position, origin, out=at)
        if turned:
            at[:] = at @ rotation
            mujoco.mju_mulQuat(quat, back, quat.copy())
        if out.item(sign) < 0.0:
            np.negative(quat, out=quat)

    return finish


def _site_xy(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    site = require_name(model, mujoco.mjtObj.mjOBJ_SITE, signal.of[0], f"signal {signal.name}")
    return in_plane(frame_of(model, config, signal.frame), data.site_xpos[site], out)


def in_plane(frame: Frame, position: Vector, out: Values) -> _Copy:
    """Copies where something is in a planar frame: the inverse of :meth:`Frame.to_world`, in plain
    numbers, which are faster than arrays at this size.
    """
    (a, b), (c, d) = frame.rotation.tolist()
    origin_x, origin_y = frame.origin.tolist()

    def copy() -> None:
        x, y = position.item(0) - origin_x, position.item(1) - origin_y
        out[0], out[1] = x * a + y * c, x * b + y * d

    return copy


def _body_pose_xy(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    config: SceneConfig,
    signal: SignalConfig,
    out: Values,
) -> _Copy:
    body = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], f"signal {signal.name}")
    frame, matrix = frame_of(model, config, signal.frame), data.xmat[body]
    copy_position = in_plane(frame, data.xpos[body], out)

    def copy() -> None:
        copy_position()
        yaw = float(np.arctan2(matrix.item(3), matrix.item(0))) - frame.yaw
        out[2] = -((np.pi - yaw) % (2 * np.pi) - np.pi)

    return copy


_Build = Callable[[mujoco.MjModel, mujoco.MjData, SceneConfig, SignalConfig, Values], _Copy]
_READERS: dict[str, _Build] = {
    "joint_position": _positions,
    "joint_velocity": _velocities,
    "joint_sum": _sum,
    "given": _given,
    "body_pose": _body_pose,
    "site_pose": _site_pose,
    "site_xy": _site_xy,
    "body_pose_xy": _body_pose_xy,
}
