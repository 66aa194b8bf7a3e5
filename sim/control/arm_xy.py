"""Controls the tool of an arm so that it follows a point of the table (kind ``arm_xy``).

The limiter of the real robot (``robolearn.arms.limiter``) turns targets into joint set-points at
``setpoint_rate_hz``; between them the joints follow a cubic through position and speed, so the
servos in the MJCF get a smooth set-point at every physics step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.arms.limiter import PathLimits, Setpoint, SetpointGenerator, TableMapping
from robolearn.arms.models import ARMS
from robolearn.config import from_dict
from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import pose_error
from robolearn.types import Command, SentBlock
from sim.control.servos import Gains, apply_gains, servo_lead, setpoint_steps
from sim.scene.config import SceneConfig, require_name
from sim.scene.samples import SentLog
from sim.shapes import Indices

WHERE = "scene.yaml: control"


@dataclass(frozen=True, slots=True)
class ArmXyConfig:
    """``control`` of kind ``arm_xy``. Lengths [m], angles [rad]; see ``docs/workcell.md``.

    ``actuators`` are position servos (``kp``, ``kv``) of ``joints``, in the arm's order; ``gains``
    (identified) replace those of scene.xml.
    """

    kind: str
    arm: str
    joints: tuple[str, ...]
    actuators: tuple[str, ...]
    action: str
    setpoint_rate_hz: float
    table_origin_m: tuple[float, float, float]
    table_yaw: float
    tool_length_m: float
    tip_height_m: float
    tool_yaw: float
    home: tuple[float, ...]
    limits: PathLimits = field(default_factory=PathLimits)
    gains: Gains | None = None

    def mapping(self) -> TableMapping:
        """Where the table is and how the arm holds its tool over it."""
        return TableMapping.level(
            self.table_origin_m,
            self.table_yaw,
            tool_length_m=self.tool_length_m,
            tip_height_m=self.tip_height_m,
            tool_yaw=self.tool_yaw,
            home=self.home,
        )


def arm_xy_config(control: Mapping[str, object]) -> ArmXyConfig:
    """Read the ``control`` section of a scene with an arm."""
    return from_dict(ArmXyConfig, control, where=WHERE)


class ArmXyController:
    """Limiter, inverse kinematics and interpolation in front of the arm's servos."""

    def __init__(self, config: SceneConfig, model: mujoco.MjModel) -> None:
        self._config = cfg = arm_xy_config(config.control)
        if cfg.arm not in ARMS:
            raise SceneError(
                f"{WHERE}.arm: no arm '{cfg.arm}'.{did_you_mean(cfg.arm, ARMS)} Known:"
                f" {sorted(ARMS)}"
            )
        if cfg.action not in [a.name for a in config.actions]:
            raise SceneError(
                f"{WHERE}: no action '{cfg.action}'; there are: {[a.name for a in config.actions]}"
            )
        self._arm, self._mapping = ARMS[cfg.arm], cfg.mapping()
        self._steps = setpoint_steps(cfg.setpoint_rate_hz, config)
        self._every = 1
        self._generator = SetpointGenerator(
            self._arm, self._mapping, cfg.limits, self._steps * config.physics.timestep_s
        )
        self._qpos = _joint_addresses(model, cfg.joints, self._arm.dof)
        self._ctrl = np.array(
            [require_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, n, WHERE) for n in cfg.actuators]
        )
        if cfg.gains is not None:
            apply_gains(model, self._ctrl, cfg.gains)
        self._lead = servo_lead(model, self._ctrl)
        self._basis = _cubic(self._steps, config.physics.timestep_s)
        _check_table(config, model, self._mapping)
        self._sent = SentLog({self._config.action: 2})
        self._last = Setpoint(np.zeros(0), np.zeros(0), np.zeros(2), (), True)
        self._table = np.zeros((self._steps, self._arm.dof))
        self._phase = 0

    @property
    def every(self) -> int:
        """Every physics step."""
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
        """Nothing that is told."""
        return ""

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Put the tool at the pose of the action's signal, or at home, at rest."""
        del model
        q = np.array(self._config.home)
        if self._config.action in poses:
            q = self._mapping.joints(self._arm, poses[self._config.action])
        else:
            q = self._mapping.joints(self._arm, self._mapping.xy(self._arm, q))
        self._generator.reset(q)
        data.qpos[self._qpos] = q
        data.ctrl[self._ctrl] = q
        self._last = Setpoint(q, np.zeros_like(q), self._mapping.xy(self._arm, q), (), True)
        self._sent.clear()
        self._phase = 0

    def set_target(self, command: Command, t_ns: int) -> None:
        """Follow this point until the next command."""
        self._generator.set_target(command.action[self._config.action], t_ns * 1e-9)
        self._sent.add(command.seq, t_ns, {self._config.action: self._generator.target})

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Write the servos' set-points for the next physics step."""
        del model
        if self._phase == 0:
            after = self._generator.step()
            before = self._last
            values = np.stack([before.q, before.qd, after.q, after.qd])
            self._table = self._basis[0] @ values + self._lead * (self._basis[1] @ values)
            self._last = after
        data.ctrl[self._ctrl] = self._table[self._phase]
        self._phase = (self._phase + 1) % self._steps

    def sent(self) -> SentBlock:
        """One row per command: the target that the limiter follows."""
        return self._sent.drain()


def _joint_addresses(model: mujoco.MjModel, names: tuple[str, ...], dof: int) -> NDArray[np.intp]:
    if len(names) != dof:
        raise SceneError(f"{WHERE}.joints: the arm has {dof} joints, got {list(names)}")
    joints = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, WHERE) for n in names]
    return np.array([int(model.jnt_qposadr[j]) for j in joints])


def _cubic(steps: int, dt: float) -> NDArray[np.float64]:
    """Hermite weights ``[2, steps, 4]`` (position, speed) of (q0, qd0, q1, qd1) at step ends."""
    s = (np.arange(steps) + 1.0) / steps
    span = steps * dt
    h00, h10 = 2 * s**3 - 3 * s**2 + 1, (s**3 - 2 * s**2 + s) * span
    h01, h11 = -2 * s**3 + 3 * s**2, (s**3 - s**2) * span
    d00, d10 = (6 * s**2 - 6 * s) / span, 3 * s**2 - 4 * s + 1
    d01, d11 = -d00, 3 * s**2 - 2 * s
    return np.stack(
        [np.stack([h00, h10, h01, h11], axis=1), np.stack([d00, d10, d01, d11], axis=1)]
    )


def _check_table(config: SceneConfig, model: mujoco.MjModel, mapping: TableMapping) -> None:
    """The mapping and the site that is the table frame must say the same."""
    action = next(a for a in config.actions if a.name == config.control["action"])
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    site = data.site(config.frames[action.frame])
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = site.xmat.reshape(3, 3), site.xpos
    distance, angle = pose_error(T, np.array(mapping.T_base_table))
    if distance > 1e-4 or angle > 1e-4:
        raise SceneError(
            f"{WHERE}: table_origin_m and table_yaw put the table {distance * 1e3:.1f} mm and"
            f" {np.degrees(angle):.2f} degrees away from the site '{config.frames[action.frame]}'"
            " of scene.xml; make them agree (the arm's base is the world frame)"
        )
