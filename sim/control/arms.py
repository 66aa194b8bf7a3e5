"""Controls one or more arms with grippers, by tool pose or joint position (kind ``arms``).

Once per tick the tool's pose becomes joint targets (damped least squares within the joint limits,
the redundant freedom pulled towards ``home``); ``robolearn.arms.joint_path`` turns them into
set-points within the arm's speed and acceleration. MuJoCo's position servos follow these, so
between two set-points no Python runs.

With ``limits`` it is the tool's way that is limited, set-point by set-point, by the code that runs
in a cell's supervisor (``robolearn.arms.tool_drive``).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.arms.joint_path import JointLimits, JointPath
from robolearn.arms.kinematics import ik_dls, track
from robolearn.arms.shapes import Joints
from robolearn.arms.slowed_words import slowed_words
from robolearn.arms.slowing import Slowed
from robolearn.arms.slowing_watch import SlowingWatch
from robolearn.arms.tool_commands import TOOL_COMMANDS, pose_from_values
from robolearn.arms.tool_drive import ToolDrive
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.config import from_dict
from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import Pose, inverse, pose
from robolearn.shapes import OwnFloats
from robolearn.types import Command, SentBlock
from sim.control.gripper_drive import DrivenFingers, GripperDrive
from sim.control.own_arm import arm_of
from sim.control.servos import Gains, apply_gains, servo_lead, setpoint_steps
from sim.scene.config import ActionConfig, SceneConfig, require_name, world_pose
from sim.scene.samples import SentLog
from sim.shapes import Indices, Values

WHERE = "scene.yaml: control"
# One step of inverse kinematics per tick follows a moving target to a fraction of a millimetre and
# converges when it rests; after a larger jump there are more.
_TOLERANCE = 1e-6
_JUMP, _ITERATIONS = 0.04, 20
# Beyond this the pose counts as out of reach: what was sent is the nearest pose found.
_OUT_OF_REACH = 2e-3
_PULL = 0.05


@dataclass(frozen=True, slots=True)
class GripperConfig:
    """A gripper whose opening [m] is ``ratio`` times the joint's way from its lower limit.

    For two slides that move together the ratio is 2, for a jaw it is the length of its lever.
    ``joints``: the driven one first, then those that follow it. ``max_speed`` [m/s] and
    ``max_acceleration`` [m/s^2] of the opening; with ``drive`` (identified) it moves as that does,
    and what delays and smooths the scene's set-points is the arm's alone.
    """

    action: str
    joints: tuple[str, ...]
    actuator: str
    ratio: float = 2.0
    max_speed: float = 0.1
    max_acceleration: float = 1.0
    drive: GripperDrive | None = None


@dataclass(frozen=True, slots=True)
class ArmConfig:
    """One arm. ``actuators`` are position servos of ``joints``, in the arm's order.

    ``base``: the body at the arm's base frame; ``tool``: a site behind the last joint. Speeds
    [rad/s] default to the arm's published ones. ``gains`` (identified) replace those of scene.xml.
    """

    arm: str
    action: str
    joints: tuple[str, ...]
    actuators: tuple[str, ...]
    base: str
    tool: str
    home: tuple[float, ...]
    max_acceleration: tuple[float, ...]
    max_speed: tuple[float, ...] = ()
    gains: Gains | None = None
    gripper: GripperConfig | None = None
    # Those of a cell that is commanded by its tool's pose: the tool then moves as it does there.
    limits: ToolPathLimits | None = None


@dataclass(frozen=True, slots=True)
class ArmsConfig:
    """``control`` of kind ``arms``. ``natural_frequency`` [rad/s] of the law that follows targets:
    the tool lags about two ticks plus ``2 / natural_frequency``.
    """

    kind: str
    arms: tuple[ArmConfig, ...]
    setpoint_rate_hz: float = 100.0
    natural_frequency: float = 30.0


class _Arm:
    """Turns one arm's action into joint targets; addresses in the model."""

    def __init__(self, cfg: ArmConfig, config: SceneConfig, model: mujoco.MjModel) -> None:
        self.cfg, self.arm = cfg, arm_of(model, cfg)
        # "left_tool/pose" belongs to the arm whose signals begin with "left_".
        prefix = cfg.action.split("/")[0].removesuffix("tool").removesuffix("arm")
        self.tool_signal, self.joint_signal = f"{prefix}tool/pose", f"{prefix}arm/joint_position"
        self.action = _action(cfg.action, config)
        self._check_sizes()
        self.qpos = _addresses(model, cfg.joints)
        self.ctrl = [_id(model, mujoco.mjtObj.mjOBJ_ACTUATOR, n) for n in cfg.actuators]
        if cfg.gains is not None:
            apply_gains(model, np.array(self.ctrl), cfg.gains)
        self.home = np.array(cfg.home)
        _id(model, mujoco.mjtObj.mjOBJ_BODY, cfg.base)
        _id(model, mujoco.mjtObj.mjOBJ_SITE, cfg.tool)
        data = mujoco.MjData(model)
        data.qpos[self.qpos] = self.home
        mujoco.mj_kinematics(model, data)
        T_world_base = _pose_of(data.body(cfg.base))
        frame = config.frames.get(self.action.frame, "")
        self._T_base_frame = inverse(T_world_base) @ (
            world_pose(model, frame) if frame else T_world_base
        )
        T_base_tool = inverse(T_world_base) @ _pose_of(data.site(cfg.tool))
        self._T_tool_flange = inverse(T_base_tool) @ self.arm.fk(self.home)
        # The tool must be fixed to the flange: the same offset in another configuration.
        self._check_tool(model, data, T_world_base)
        self._command = TOOL_COMMANDS.get(cfg.action.partition("/")[2])
        self.drive: ToolDrive | None = None
        self._rate_hz = config.rate_hz
        self._watch, self._slowed = SlowingWatch(self._rate_hz), Slowed.OVER
        self.q, self.T_frame_tool = self.home, np.eye(4)

    def limit(self, period_s: float) -> None:
        """Make the drive of an arm with limits; ``period_s`` of its set-points."""
        if self.cfg.limits is None:
            return
        if self._command is None:
            raise SceneError(
                f"{WHERE}: 'limits' are of an arm that is commanded by its tool's pose; action"
                f" {self.cfg.action} names joints"
            )
        kinematics = ToolKinematics(self.arm, self._T_base_frame, inverse(self._T_tool_flange))
        self.drive = ToolDrive(kinematics, self.cfg.limits, period_s)
        self._rate_hz = 1.0 / period_s

    def advance(self, drive: ToolDrive) -> Joints:
        """The next set-point ``[dof]`` of the tool's way."""
        q = drive.advance()
        told = self._watch.changed(drive.limited)
        self._slowed = self._slowed if told is None else told
        return q

    @property
    def slowed(self) -> str:
        """What keeps the tool from its command; "" for nothing."""
        if self.drive is None or self._slowed is Slowed.OVER:
            return ""
        return slowed_words(self._slowed, self.drive.kinematics, self.drive.q)

    def _check_sizes(self) -> None:
        cfg, dof = self.cfg, self.arm.dof
        for key in ("joints", "actuators", "home", "max_acceleration"):
            if len(getattr(cfg, key)) != dof:
                raise SceneError(f"{WHERE}: {cfg.arm} has {dof} joints, {key} {getattr(cfg, key)}")
        part = cfg.action.partition("/")[2]
        sizes = {name: c.size for name, c in TOOL_COMMANDS.items()} | {"joint_position": dof}
        if part not in sizes:
            raise SceneError(
                f"{WHERE}: an arm takes no '{part}'.{did_you_mean(part, sizes)} Known after the"
                f" slash: {sorted(sizes)}"
            )
        if len(self.action.low) != sizes[part]:
            raise SceneError(
                f"{WHERE}: action {cfg.action} has {sizes[part]} values, scene.yaml gives"
                f" {len(self.action.low)}"
            )
        relative = part == "delta_pose" or (
            part == "joint_position" and self.action.mode == "relative"
        )
        if (self.action.mode == "relative") != relative:
            raise SceneError(
                f"{WHERE}: action {cfg.action} is {'relative' if relative else 'absolute'};"
                f" scene.yaml says {self.action.mode}"
            )

    def _check_tool(self, model: mujoco.MjModel, data: mujoco.MjData, T_world_base: Pose) -> None:
        q = np.clip(self.home + 0.3, self.arm.low, self.arm.high)
        data.qpos[self.qpos] = q
        mujoco.mj_kinematics(model, data)
        T = inverse(T_world_base) @ _pose_of(data.site(self.cfg.tool)) @ self._T_tool_flange
        if np.abs(T - self.arm.fk(q)).max() > 1e-5:
            raise SceneError(
                f"{WHERE}: the bodies of scene.xml between '{self.cfg.base}' and the site"
                f" '{self.cfg.tool}' do not move like a {self.cfg.arm}; check base, joints and tool"
            )

    def limits(self) -> JointLimits:
        """Position, speed and acceleration of the joints, then of the gripper's slide."""
        cfg, arm = self.cfg, self.arm
        speed = cfg.max_speed or arm.max_speed
        return JointLimits(arm.low, arm.high, speed, cfg.max_acceleration)

    def reset(self, poses: Mapping[str, tuple[float, ...]]) -> None:
        """At the pose or joint positions of the condition, or at home."""
        if self.joint_signal in poses:
            self.q = np.array(poses[self.joint_signal])
        elif self.tool_signal in poses:
            at = pose_from_values(np.array(poses[self.tool_signal]), self.tool_signal)
            self.q = self._solve(at)
        else:
            self.q = self.home.copy()
        self.T_frame_tool = (
            inverse(self._T_base_frame) @ self.arm.fk(self.q) @ inverse(self._T_tool_flange)
        )
        if self.drive is not None:
            self.drive.reset(self.q)
            self._watch, self._slowed = SlowingWatch(self._rate_hz), Slowed.OVER

    def _solve(self, T_frame_tool: Pose) -> Joints:
        goal = self._T_base_frame @ T_frame_tool @ self._T_tool_flange
        return ik_dls(self.arm, goal, self.home, tolerance=1e-7, posture=self.home)

    def _track(self, goal: Pose) -> float:
        self.q, error = track(
            self.arm,
            goal,
            self.q,
            tolerance=_TOLERANCE,
            iterations=_ITERATIONS,
            accept=_JUMP,
            posture=self.home,
            pull=_PULL,
        )
        return error

    def follow(self, value: Values) -> Values:
        """Take an action; returns what is really followed."""
        if self._command is None:
            low, high = self.arm.low, self.arm.high
            target = value + self.q if self.action.mode == "relative" else value
            self.q = np.minimum(np.maximum(target, low), high)
            return value
        T_frame_tool = self._command.target(value, self.T_frame_tool)
        if self.drive is not None:
            self.drive.follow(T_frame_tool)
            self.T_frame_tool = T_frame_tool
            return value
        # ``dot`` has a third of the overhead of ``@``.
        goal = self._T_base_frame.dot(T_frame_tool).dot(self._T_tool_flange)
        error = self._track(goal)
        self.T_frame_tool = T_frame_tool
        if error > _OUT_OF_REACH:
            reached = self.arm.fk(self.q) @ inverse(self._T_tool_flange)
            self.T_frame_tool = inverse(self._T_base_frame) @ reached
            return (
                value if self._command.report is None else self._command.report(self.T_frame_tool)
            )
        return value


class _Gripper:
    """Turns the opening into the slide's position."""

    def __init__(self, cfg: GripperConfig, config: SceneConfig, model: mujoco.MjModel) -> None:
        self.cfg, self.action = cfg, _action(cfg.action, config)
        if len(self.action.low) != 1 or self.action.mode != "absolute":
            raise SceneError(f"{WHERE}: {cfg.action} must be one absolute value [m]")
        self.qpos = _addresses(model, cfg.joints)
        self.ctrl = _id(model, mujoco.mjtObj.mjOBJ_ACTUATOR, cfg.actuator)
        joint = _id(model, mujoco.mjtObj.mjOBJ_JOINT, cfg.joints[0])
        self.low, self.high = (float(v) for v in model.jnt_range[joint])
        self.q = self.high
        self.fingers: DrivenFingers | None = None

    def drive(self, period_s: float) -> None:
        """Make the drive of a gripper that has its own; ``period_s`` of its set-points."""
        drive = self.cfg.drive
        if drive is not None:
            self.fingers = DrivenFingers(drive, self.cfg.ratio, period_s)

    def limits(self) -> JointLimits:
        """Of the driven slide."""
        cfg = self.cfg
        return JointLimits(
            (self.low,),
            (self.high,),
            (cfg.max_speed / cfg.ratio,),
            (cfg.max_acceleration / cfg.ratio,),
        )

    def reset(self, poses: Mapping[str, tuple[float, ...]]) -> None:
        """Open, or as the condition says."""
        self.q = self.high
        if self.cfg.action in poses:
            self.q = self._slide(poses[self.cfg.action][0])
        if self.fingers is not None:
            self.fingers.reset(self.q)

    def follow(self, value: Values) -> Values:
        """Take an opening [m]."""
        self.q = self._slide(float(value[0]))
        return value

    def _slide(self, opening: float) -> float:
        return min(max(self.low + opening / self.cfg.ratio, self.low), self.high)


class ArmsController:
    """Inverse kinematics, limiter and interpolation in front of the servos of every arm."""

    def __init__(self, config: SceneConfig, model: mujoco.MjModel) -> None:
        cfg = from_dict(ArmsConfig, config.control, where=WHERE)
        if not cfg.arms:
            raise SceneError(f"{WHERE}: 'arms' is empty; it lists one entry per arm")
        self._arms = [_Arm(a, config, model) for a in cfg.arms]
        self._grippers = [_Gripper(a.gripper, config, model) for a in cfg.arms if a.gripper]
        parts: list[_Arm | _Gripper] = [*self._arms, *self._grippers]
        _check_commanded([p.action.name for p in parts], config)
        self._steps = setpoint_steps(cfg.setpoint_rate_hz, config)
        self._rows = config.substeps // self._steps
        ctrl = [c for a in self._arms for c in a.ctrl] + [g.ctrl for g in self._grippers]
        self._ctrl = np.array(ctrl)
        # Assigning to a slice is faster than to a list of indices.
        ordered = ctrl == list(range(ctrl[0], ctrl[0] + len(ctrl)))
        self._at = slice(ctrl[0], ctrl[0] + len(ctrl)) if ordered else self._ctrl
        limits = [p.limits() for p in parts]
        joined = (tuple(v for l in limits for v in getattr(l, key)) for key in _LIMIT_KEYS)
        self._path = JointPath(
            JointLimits(*joined), 1.0 / config.rate_hz, self._rows, cfg.natural_frequency
        )
        self._path.warm()
        period_s = self._steps * config.physics.timestep_s
        for part in self._arms:
            part.limit(period_s)
        for part in self._grippers:
            part.drive(period_s)
        # Columns of the arms whose tool is limited.
        ends = list(itertools.accumulate(len(a.ctrl) for a in self._arms))
        self._driven = [
            (arm, arm.drive, slice(end - len(arm.ctrl), end))
            for arm, end in zip(self._arms, ends, strict=True)
            if arm.drive is not None
        ]
        # And of grippers with a drive of their own, which come after all arms.
        self._fingers = [
            (gripper, gripper.fingers, ends[-1] + k)
            for k, gripper in enumerate(self._grippers)
            if gripper.fingers is not None
        ]
        # A set-point holds for several physics steps; the middle of its interval is the fairest.
        half_s = 0.5 * self._steps * config.physics.timestep_s
        self._ahead_s = servo_lead(model, self._ctrl) - half_s
        self._sent = SentLog({p.action.name: len(p.action.low) for p in parts})
        self._targets = [0.0] * len(ctrl)
        self._table, self._row = list(np.zeros((self._rows, len(ctrl)))), 0
        self._parts = (*self._arms, *self._grippers)

    @property
    def every(self) -> int:
        """Physics steps per set-point."""
        return self._steps

    @property
    def places(self) -> frozenset[str]:
        """Signals of the tools, arms and grippers."""
        names: set[str] = set()
        for arm in self._arms:
            names |= {arm.tool_signal, arm.joint_signal}
        return frozenset(names | {g.cfg.action for g in self._grippers})

    @property
    def own_delay(self) -> Indices:
        """Grippers with a drive of their own."""
        return self._ctrl[[column for _, _, column in self._fingers]]

    @property
    def slowed(self) -> str:
        """What keeps a tool with limits from its command, in words; "" for nothing."""
        told = "; ".join(words for arm, _, _ in self._driven if (words := arm.slowed))
        return f"slowed: {told}" if told else ""

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Put arms and grippers where the condition says, or home and open, at rest."""
        del model
        for arm in self._arms:
            arm.reset(poses)
            data.qpos[arm.qpos] = arm.q
        for gripper in self._grippers:
            gripper.reset(poses)
            data.qpos[gripper.qpos] = gripper.q
        self._targets = self._joined()
        self._path.reset(self._targets)
        data.ctrl[self._ctrl] = self._targets
        self._sent.clear()
        self._row = 0

    def set_target(self, command: Command, t_ns: int) -> None:
        """Inverse kinematics, once; followed until the next command."""
        sent: dict[str, OwnFloats] = {}
        for part in self._parts:
            value = np.asarray(command.action[part.action.name], dtype=np.float64)
            sent[part.action.name] = part.follow(value)
        self._targets = self._joined()
        self._sent.add(command.seq, t_ns, sent)

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Write the next set-point; the first of a tick computes them all."""
        del model
        row = self._row
        if row == 0:
            q, qd = self._path.advance(self._targets)
            for arm, drive, columns in self._driven:
                for k in range(self._rows):
                    q[k, columns], qd[k, columns] = arm.advance(drive), drive.qd
            for gripper, fingers, column in self._fingers:
                fingers.seen(float(data.qpos[gripper.qpos[0]]), gripper.q)
                for k in range(self._rows):
                    q[k, column], qd[k, column] = fingers.advance(gripper.q)
            self._table = list(q + self._ahead_s * qd)
        data.ctrl[self._at] = self._table[row]
        self._row = (row + 1) % self._rows

    def sent(self) -> SentBlock:
        """One row per command: what is followed (out of reach: the nearest pose)."""
        return self._sent.drain()

    def _joined(self) -> list[float]:
        joints = [v for arm in self._arms for v in arm.q.tolist()]
        return [*joints, *(g.q for g in self._grippers)]


_LIMIT_KEYS = ("low", "high", "speed", "acceleration")


def _action(name: str, config: SceneConfig) -> ActionConfig:
    for action in config.actions:
        if action.name == name:
            return action
    names = [a.name for a in config.actions]
    raise SceneError(f"{WHERE}: no action '{name}'.{did_you_mean(name, names)} There are: {names}")


def _check_commanded(names: list[str], config: SceneConfig) -> None:
    """Every action moves exactly one arm or gripper."""
    for action in config.actions:
        if names.count(action.name) != 1:
            raise SceneError(
                f"{WHERE}: action {action.name} moves {names.count(action.name)} arms or grippers;"
                " each action of scene.yaml moves one"
            )


def _id(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str) -> int:
    return require_name(model, kind, name, WHERE)


def _addresses(model: mujoco.MjModel, joints: tuple[str, ...]) -> NDArray[np.intp]:
    ids = [_id(model, mujoco.mjtObj.mjOBJ_JOINT, n) for n in joints]
    return np.array([int(model.jnt_qposadr[j]) for j in ids])


def _pose_of(view: object) -> Pose:
    return pose(view.xmat.reshape(3, 3), view.xpos)  # type: ignore[attr-defined]
