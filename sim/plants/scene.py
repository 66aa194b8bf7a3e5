"""Simulates a scene package as the lab's workcell: MuJoCo behind the emulated controllers.

Satisfies ``hardware.emulators.plant.ServoPlant`` by shape (siblings do not import each other).
Bodies, servos and frictions are the scene's own; what ``ScenePlantConfig`` changes of them is drawn
from the lab's seed, and nothing outside reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np

from robolearn.arms.shapes import JointFlags, Joints
from robolearn.errors import ConfigError, DataError, PhysicsDivergedError, did_you_mean
from robolearn.geometry import (
    ObjectPose,
    Pose,
    RotvecPose,
    Vector,
    inverse,
    rotvec_from_rotation,
)
from robolearn.seeding import child_seed
from robolearn.shapes import Picture
from sim.control.servos import Gains, apply_gains, servo_lead
from sim.env.contacts import force_on
from sim.env.placement import placer
from sim.perturbations.model import object_bodies, object_signals
from sim.plants.bracket import Bracket, with_bracket
from sim.plants.bullet_engine import engine_steps
from sim.plants.mount import ArmMount, find_mount, loaded
from sim.plants.person import Carrying, with_carried
from sim.plants.printed import PrintedBoard, with_board
from sim.rendering.renderer import Renderer, View, update_poses
from sim.scene.config import Scene, SignalConfig, world_pose
from sim.scene.load import load_scene
from sim.scene.payload import set_payload
from sim.scene.signals import reader


@dataclass(frozen=True, slots=True)
class ScenePlantConfig:
    """The scene and its hidden physics; what is not given is the scene's own."""

    # A packaged scene, or a scene's folder; its first arm is the lab's.
    scene: str = "pusht_ur5e"
    # Joint angles at the start, of serial servos with the jaw's behind them [rad]; empty: the
    # scene's.
    home: tuple[float, ...] = ()
    # An arm of serial servos: they carry its weight (elsewhere the controller makes up for it, as
    # in the scene), and the gripper's joint is one more motor.
    serial_servos: bool = False
    # Where objects are at the start, x, y [m], yaw [rad] on the table.
    objects: dict[str, tuple[float, float, float]] = field(
        default_factory=dict[str, tuple[float, float, float]]
    )
    # Factor on mass and inertia of the objects.
    mass: float = 1.0
    # Factor on all sliding friction.
    friction: float = 1.0
    # Viscous friction of the joints beside the servos' [N m s/rad].
    joint_damping: float = 0.0
    # Dry friction of the joints [N m].
    joint_friction: float = 0.0
    # Factor on the servos' stiffness; their damping follows its root.
    servo_gain: float = 1.0
    # Factor on the inertia of the joints' rotors; 1: exactly the scene's.
    armature: float = 1.0
    # What the tool carries [kg].
    payload_kg: float = 0.0
    # Relative half-width of the uniform draw around all of these.
    spread: float = 0.1

    def __post_init__(self) -> None:
        factors = (self.mass, self.friction, self.servo_gain, self.armature)
        hidden = (self.joint_damping, self.joint_friction, self.payload_kg)
        if not all(0.0 < v < math.inf for v in factors) or not all(
            0.0 <= v < math.inf for v in hidden
        ):
            raise ConfigError(
                "mass, friction, servo_gain and armature are factors above 0, joint_damping,"
                f" joint_friction and payload_kg at least 0; got {factors}, {hidden}"
            )
        if not 0.0 <= self.spread < 1.0:
            raise ConfigError(f"spread in [0, 1) is needed, got {self.spread}")


class ScenePlant:
    """One model; see ``hardware.emulators.plant.ServoPlant`` for the methods' contract.

    Raises :class:`ConfigError` for what the scene does not have.
    """

    def __init__(
        self,
        config: ScenePlantConfig,
        seed: int = 0,
        board: PrintedBoard | None = None,
        brackets: Mapping[str, Bracket] | None = None,
        carried: Mapping[str, Carrying] | None = None,
    ) -> None:
        """In pictures alone: a ``board`` that is printed, cameras on the flange and in somebody's
        hand by their names.
        """
        self.config = config
        self.scene = load_scene(config.scene)
        self.model = self._compile(board, brackets or {}, carried or {})
        self.data = mujoco.MjData(self.model)
        self._mount = find_mount(self.scene.config, self.model, serial_servos=config.serial_servos)
        self.arm = self._mount.arm
        model, mount = self.model, self._mount
        self._signals = {s.name.partition("/")[0]: s for s in object_signals(self.scene)}
        _hide(model, self.scene, mount, config, seed)
        self._lead = servo_lead(model, mount.actuators)
        self._gains = model.actuator_gainprm[mount.actuators].copy()
        self._bias = model.actuator_biasprm[mount.actuators].copy()
        self._places = {
            name: placer(model, self.scene.config, s) for name, s in self._signals.items()
        }
        self._heights: dict[str, float] = {}
        self._renderer: Renderer | None = None
        self._start()

    # -- contract --------------------------------------------------------------------------------

    @property
    def time_s(self) -> float:
        """Simulated time [s]."""
        return float(self.data.time)

    @property
    def object_names(self) -> tuple[str, ...]:
        """What can be placed: the objects whose poses are settable signals of the scene."""
        return tuple(self._signals)

    def joint_positions(self) -> Joints:
        """Joint angles [rad]."""
        return self.data.qpos[self._mount.qpos]

    def joint_velocities(self) -> Joints:
        """Joint velocities [rad/s]."""
        return self.data.qvel[self._mount.dofs]

    def joint_torques(self) -> Joints:
        """Motor torques [N m] of the last step."""
        return self.data.actuator_force[self._mount.actuators]

    def full_torque(self) -> Joints:
        """Largest motor torques [N m]."""
        return self.model.actuator_forcerange[self._mount.actuators, 1].copy()

    def tool_pose(self) -> RotvecPose:
        """Tip of the tool (flange, without a tool) in the base frame: [m], rotation vector."""
        T = self.arm.fk(self.joint_positions()[: self.arm.dof])
        tip = T[:3, 3] + T[:3, 2] * self._mount.tool_length_m
        return np.concatenate([tip, rotvec_from_rotation(T[:3, :3])])

    def tool_force(self) -> Vector:
        """Sum of the contact forces on everything behind the last joint [N], in the base frame."""
        force = force_on(self.model, self.data, self._mount.behind)
        return self._mount.T_world_base[:3, :3].T @ force

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the joint servos [rad], [rad/s]."""
        self.data.ctrl[self._mount.actuators] = q + self._lead * qd

    def set_powered(self, powered: JointFlags) -> None:
        """Which motors hold; the others are limp but for their friction."""
        on, at = powered[:, None], self._mount.actuators
        self.model.actuator_gainprm[at] = np.where(on, self._gains, 0.0)
        self.model.actuator_biasprm[at] = np.where(on, self._bias, 0.0)

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` at rest."""
        self.data.qpos[self._mount.qpos] = q
        self.data.qvel[self._mount.dofs] = 0.0
        self.set_joint_targets(q, np.zeros(len(q)))
        mujoco.mj_forward(self.model, self.data)

    def step(self, dt_s: float) -> None:
        """Advance by ``dt_s`` [s], a whole number of engine steps."""
        steps = engine_steps(dt_s, float(self.model.opt.timestep))
        mujoco.mj_step(self.model, self.data, steps)
        if not np.isfinite(self.data.qpos).all():
            raise PhysicsDivergedError(f"the state of scene '{self.scene.name}' is not finite")

    def place_object(self, name: str, pose: ObjectPose) -> None:
        """Put an object at rest in the table frame, at its own height where none is given."""
        self._put(name, pose)
        body = self.model.body(self._signals[name].of[0])
        first, count = int(body.dofadr[0]), int(body.dofnum[0])
        self.data.qvel[first : first + count] = 0.0
        mujoco.mj_forward(self.model, self.data)

    def show(self, q: Joints, poses: Mapping[str, ObjectPose]) -> None:
        """Put joints and objects there for a picture: nothing else follows them."""
        self.data.qpos[self._mount.qpos] = q
        for name, at in poses.items():
            self._put(name, at)
        update_poses(self.model, self.data)

    def _put(self, name: str, pose: ObjectPose) -> None:
        signal = self._require(name)
        values = np.array(pose, dtype=np.float64)
        if len(values) > 3 and signal.kind != "body_pose":
            raise DataError(f"'{name}' stays on the table; give its pose as [x, y, yaw]")
        if len(values) == 3 and signal.kind == "body_pose":
            x, y, yaw = values.tolist()
            turn = [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]
            values = np.array([x, y, self._heights[name], *turn])
        self._places[name](self.model, self.data, values)

    def true_pose(self, name: str) -> ObjectPose:
        """Where an object is in the table frame: as many numbers as its signal has in the scene."""
        self._require(name)
        mujoco.mj_kinematics(self.model, self.data)
        return self._read()[self._signals[name].name].copy()

    def close(self) -> None:
        """Free what draws; safe to call twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    # -- for who builds the lab ------------------------------------------------------------------

    @property
    def T_base_table(self) -> Pose:  # noqa: N802  (a transform)
        """The table's frame in the arm's base frame."""
        frames = self.scene.config.frames
        table = world_pose(self.model, frames[next(iter(frames))])
        return inverse(self._mount.T_world_base) @ table

    @property
    def T_world_table(self) -> Pose:  # noqa: N802  (a transform)
        """The table's frame in the world."""
        return self._mount.T_world_base @ self.T_base_table

    @property
    def T_world_flange(self) -> Pose:  # noqa: N802  (a transform)
        """The flange in the world, with the joints where they are."""
        q = self.data.qpos[self._mount.qpos][: self.arm.dof]
        return self._mount.T_world_base @ self.arm.fk(q)

    def moves_with_flange(self, body: int) -> bool:
        """Whether a body of the model hangs on the arm's last joint."""
        last = self._mount.joints[self.arm.dof - 1]
        return int(self.model.body_weldid[body]) == int(self.model.joint(last).bodyid[0])

    @property
    def tool_length_m(self) -> float:
        """From the flange to the tool's tip [m]; 0 without a tool."""
        return self._mount.tool_length_m

    def picture(self, view: str, width: int, height: int) -> Picture:
        """A picture ``[height, width, 3]`` by the scene's camera of that name; ``top`` and
        ``perspective`` are its first and its first other one where no camera is called so.
        """
        cameras = [c.name for c in self.scene.config.cameras]
        found = {"top": cameras[:1], "perspective": cameras[1:]}
        if "top" in cameras:
            found["perspective"] = [c for c in cameras if c != "top"]
        found |= {c: [c] for c in cameras}
        if not found.get(view):
            raise DataError(
                f"no view '{view}' of scene '{self.scene.name}', which has the cameras {cameras}"
            )
        if self._renderer is None:
            self._renderer = Renderer(self.model)
        update_poses(self.model, self.data)
        return self._renderer.image(self.data, View(found[view][0], width, height))

    def _compile(
        self,
        board: PrintedBoard | None,
        brackets: Mapping[str, Bracket],
        carried: Mapping[str, Carrying],
    ) -> mujoco.MjModel:
        scene, model = self.scene, self.scene.compile()
        if not (self.config.payload_kg or board or brackets or carried):
            return model
        mount = find_mount(scene.config, model)
        scene = loaded(scene, model, mount) if self.config.payload_kg else scene
        for name, bracket in brackets.items():
            scene = with_bracket(scene, model, mount, name, bracket)
        for name, carrying in carried.items():
            scene = with_carried(scene, model, name, carrying)
        return (scene if board is None else with_board(scene, model, mount, board)).compile()

    def _start(self) -> None:
        config, mount = self.config, self._mount
        self.data.ctrl[:] = [self._held(i) for i in range(self.model.nu)]
        for name in config.objects:
            if name not in self._signals:
                raise ConfigError(f"lab.scene.objects: {self._unknown(name)}")
        self._read = reader(self.model, self.data, self.scene.config, list(self._signals.values()))
        mujoco.mj_kinematics(self.model, self.data)
        values = self._read()
        for name, signal in self._signals.items():
            self._heights[name] = float(values[signal.name][2])
        home = np.array(config.home or mount.home)
        if len(home) != len(mount.actuators):
            raise ConfigError(
                f"home of scene '{self.scene.name}' needs {len(mount.actuators)} joint angles, got"
                f" {len(home)}"
            )
        self.set_joints(home)
        for name, at in config.objects.items():
            self.place_object(name, np.array(at))

    def _held(self, actuator: int) -> float:
        """What keeps a position servo of another joint (a gripper) where the scene has it."""
        joint = int(self.model.actuator_trnid[actuator, 0])
        return float(self.data.qpos[self.model.jnt_qposadr[joint]])

    def _require(self, name: str) -> SignalConfig:
        if name not in self._signals:
            raise DataError(self._unknown(name))
        return self._signals[name]

    def _unknown(self, name: str) -> str:
        names = list(self._signals)
        return (
            f"no object '{name}' in scene '{self.scene.name}'.{did_you_mean(name, names)}"
            f" There are: {names}"
        )


def _hide(
    model: mujoco.MjModel, scene: Scene, mount: ArmMount, config: ScenePlantConfig, seed: int
) -> None:
    """Draw the hidden values and write them into the model."""
    rng = np.random.default_rng(child_seed(seed, "physics"))
    mass, friction, damping, dry, gain = 1.0 + config.spread * rng.uniform(-1.0, 1.0, 5)
    rotor, load = 1.0 + config.spread * rng.uniform(-1.0, 1.0, 2)
    groups = object_bodies(model, scene)
    if config.mass != 1.0 and not groups:
        raise ConfigError(f"mass: scene '{scene.name}' has no object; leave it out")
    for bodies in groups.values():
        model.body_mass[bodies] *= config.mass * mass
        model.body_inertia[bodies] *= config.mass * mass
    colliding = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    pairs = model.pair_dim > 1
    if config.friction != 1.0 and not (pairs.any() or (colliding & (model.geom_condim > 1)).any()):
        raise ConfigError(
            f"friction: nothing in scene '{scene.name}' has sliding friction; leave it out"
        )
    model.geom_friction[colliding, 0] *= config.friction * friction
    model.pair_friction[pairs, :2] *= config.friction * friction
    model.dof_damping[mount.dofs] += config.joint_damping * damping
    model.dof_frictionloss[mount.dofs] += config.joint_friction * dry
    model.dof_armature[mount.dofs] *= config.armature * (rotor if config.armature != 1.0 else 1.0)
    if config.payload_kg:
        set_payload(model, config.payload_kg * load)
    if config.serial_servos:
        model.body_gravcomp[mount.bodies] = 0.0
    kp = model.actuator_gainprm[mount.actuators, 0] * config.servo_gain * gain
    kv = -model.actuator_biasprm[mount.actuators, 2] * math.sqrt(config.servo_gain * gain)
    apply_gains(model, mount.actuators, Gains(tuple(kp.tolist()), tuple(kv.tolist())))
    mujoco.mj_setConst(model, mujoco.MjData(model))
