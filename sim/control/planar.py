"""Turns a scene's commands into actuator set-points.

A :class:`Controller` owns ``data.ctrl`` of one env. ``scene.yaml`` chooses it by ``control.kind``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import mujoco
import numpy as np

from robolearn.config import from_dict
from robolearn.errors import ConfigError, SceneError, did_you_mean
from robolearn.types import Command, SentBlock
from sim.control.arm_xy import ArmXyController
from sim.control.arms import ArmsController
from sim.control.none import NoController
from sim.scene.config import Frame, SceneConfig, frame_of, require_name
from sim.scene.samples import SentLog
from sim.shapes import Indices


@runtime_checkable
class Controller(Protocol):
    """Turns commands into ``data.ctrl``. Built once per env, reset per episode."""

    @property
    def every(self) -> int:
        """Physics steps between two calls of :meth:`substep`; the tick's number of steps (one
        call per tick, before the first step) makes the env step without returning to Python.
        """
        ...

    @property
    def places(self) -> frozenset[str]:
        """Settable signals that :meth:`reset` places itself."""
        ...

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Place the robot (``data.qpos``, ``data.ctrl``) so that its settable signals have the
        values of ``poses``; called after ``mj_resetData`` and after the objects were placed.
        """
        ...

    def set_target(self, command: Command, t_ns: int) -> None:
        """Take a validated command (shape, range, finite) at the tick ``t_ns``."""
        ...

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Write ``data.ctrl`` for the next :attr:`every` physics steps."""
        ...

    def sent(self) -> SentBlock:
        """What was sent since the last call."""
        ...

    @property
    def own_delay(self) -> Indices:
        """Actuators (indices of ``data.ctrl``) whose commands go another way than the arm's, so
        that what delays a scene's set-points is not theirs.
        """
        ...

    @property
    def slowed(self) -> str:
        """What keeps an arm from all that is commanded, in words; "" for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class PlanarConfig:
    """``control`` of kind ``planar``: two position servos that hold a point of the plane.

    The servo's gains are actuators of the MJCF. ``joints`` and ``actuators`` in the order x, y of
    a world-aligned plane; ``action`` is the commanded signal, in the frame of that action.
    """

    kind: str
    joints: tuple[str, str]
    actuators: tuple[str, str]
    action: str


class PlanarController:
    """Position servos of a planar tool; the target holds for the whole tick."""

    def __init__(self, config: SceneConfig, model: mujoco.MjModel) -> None:
        self._config = from_dict(PlanarConfig, config.control, where="scene.yaml: control")
        where = "scene.yaml: control"
        action = next((a for a in config.actions if a.name == self._config.action), None)
        if action is None:
            raise SceneError(
                f"{where}: no action '{self._config.action}'; there are:"
                f" {[a.name for a in config.actions]}"
            )
        self._frame: Frame = frame_of(model, config, action.frame)
        joints = [
            require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, where) for n in self._config.joints
        ]
        self._qpos = np.array([model.jnt_qposadr[j] for j in joints])
        self._ctrl = np.array(
            [
                require_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, n, where)
                for n in self._config.actuators
            ]
        )
        body = int(model.jnt_bodyid[joints[0]])
        self._offset = model.body_pos[body, :2].copy()
        turn, origin = self._frame.rotation.tolist(), self._frame.origin.tolist()
        self._rows = [(a, b, at) for (a, b), at in zip(turn, origin, strict=True)]
        self._every = config.substeps
        self._target = np.zeros(2)
        self._sent = SentLog({self._config.action: 2})

    @property
    def every(self) -> int:
        """Once per tick: the servo itself runs inside MuJoCo."""
        return self._every

    @property
    def places(self) -> frozenset[str]:
        """The tool."""
        return frozenset((self._config.action,))

    @property
    def own_delay(self) -> Indices:
        """None."""
        return np.array([], dtype=np.intp)

    @property
    def slowed(self) -> str:
        """Nothing."""
        return ""

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Put the tool at the pose of the action's signal and hold it there."""
        del model
        at = poses.get(self._config.action)
        if at is not None:
            data.qpos[self._qpos] = self._frame.to_world(np.array(at)) - self._offset
        self._target = data.qpos[self._qpos].copy()
        self._sent.clear()

    def set_target(self, command: Command, t_ns: int) -> None:
        """Hold this point until the next command."""
        value = np.asarray(command.action[self._config.action], dtype=np.float64)
        # As Frame.to_world, in plain numbers.
        x, y = value.tolist()
        self._target = np.array([a * x + b * y + at for a, b, at in self._rows]) - self._offset
        self._sent.add(command.seq, t_ns, {self._config.action: value})

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Write the servo's set-point."""
        del model
        data.ctrl[self._ctrl] = self._target

    def sent(self) -> SentBlock:
        """One row per command."""
        return self._sent.drain()


Build = Callable[[SceneConfig, mujoco.MjModel], Controller]
CONTROLLERS: dict[str, Build] = {
    "planar": PlanarController,
    "arm_xy": ArmXyController,
    "arms": ArmsController,
    "none": NoController,
}


def require_controller(control: Mapping[str, Any], where: str) -> Build:
    """Look the ``kind`` of a ``control`` section up; the error lists what exists."""
    kind = str(control.get("kind", ""))
    if kind not in CONTROLLERS:
        raise SceneError(
            f"{where}: control.kind '{kind}' is unknown.{did_you_mean(kind, CONTROLLERS)}"
            f" Known: {sorted(CONTROLLERS)}"
        )
    return CONTROLLERS[kind]


def build_controller(config: SceneConfig, model: mujoco.MjModel) -> Controller:
    """Build the controller that a scene names."""
    try:
        return require_controller(config.control, "scene.yaml")(config, model)
    except ConfigError as error:
        raise SceneError(str(error)) from error
