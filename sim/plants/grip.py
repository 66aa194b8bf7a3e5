"""Simulates the lab's workcell with a gripper in PyBullet: a UR5e, two fingers, a cube on a table.

Satisfies ``hardware.emulators.plant.Plant`` and ``FingerPlant`` by shape (siblings do not import
each other). As in ``sim/plants/pusht.py`` the physics is hidden: friction, mass and damping are
drawn around the configured values from a seed. Fingers, cube and table collide; the arm's links do
not.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robolearn.arms.models import UR5E
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import (
    ObjectPose,
    Pose,
    PoseValues,
    RotvecPose,
    Vector,
    inverse,
    pose,
    quat_from_rotation,
    rot_z,
    rotation_from_quat,
    rotvec_from_rotation,
)
from robolearn.seeding import child_seed
from sim.plants.engine_plant import EnginePlant
from sim.plants.urdf import arm_urdf
from sim.robots.grippers import WIDE_GRIPPER as GRIPPER

# What lies on the table; the goal is a mark that nothing touches.
CUBE, GOAL = "cube", "goal"
# The scene that draws this workcell.
DRAWN_BY = "pick_place_ur5e"
# What the engine's solver may leave over: its own figure, with which a cube that rests creeps by
# 7 um/s (millimetres while a table is scanned), and one with which it does by 0.02 um/s.
_HANDLED, _RESTING = 1e-7, 1e-12


@dataclass(frozen=True, slots=True)
class GripPlantConfig:
    """Geometry and hidden physics. The hand is that of ``sim/robots/grippers.py: WIDE_GRIPPER``.

    ``spread``: relative half-width of the uniform draw around mass, friction and damping.
    """

    # The table's frame in the arm's base frame [m]; level, x as the base's.
    origin_m: tuple[float, float, float] = (0.5, 0.0, 0.0)
    # Joint angles at the start [rad].
    home: tuple[float, ...] = (2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407)
    # Where the cube is at the start, x, y [m], yaw [rad].
    cube_pose: tuple[float, float, float] = (0.0, 0.0, 0.0)
    # Where the goal is marked on the table at the start, x, y [m], yaw [rad].
    goal_pose: tuple[float, float, float] = (0.1, 0.1, 0.0)
    cube_side_m: float = 0.04
    # A box of these sides instead of the cube [m]; empty: the cube.
    box_m: tuple[float, ...] = ()
    # The scene that draws this workcell for cameras: a packaged one, or a scene's folder.
    drawn_by: str = DRAWN_BY
    cube_mass_kg: float = 0.06
    table_friction: float = 0.5
    pad_friction: float = 1.2
    # [N m s/rad].
    joint_damping: float = 0.4
    # Share of the position error that the arm's servos correct per engine step.
    servo_gain: float = 0.35
    spread: float = 0.1
    step_hz: float = 500.0

    def __post_init__(self) -> None:
        if len(self.home) != UR5E.dof:
            raise ConfigError(f"home needs {UR5E.dof} joint angles, got {len(self.home)}")
        if len(self.box_m) not in (0, 3):
            raise ConfigError(f"box_m has three sides [m], or none, got {list(self.box_m)}")
        hidden = (self.table_friction, self.pad_friction, self.joint_damping)
        sizes = (*self.size_m, self.cube_mass_kg)
        fine = all(0.0 <= v < math.inf for v in hidden) and all(0.0 < v < math.inf for v in sizes)
        if not (fine and 0 <= self.spread < 1 and 0 < self.servo_gain <= 1 and self.step_hz >= 100):
            raise ConfigError(
                "frictions and damping of at least 0, a positive cube, spread in [0, 1),"
                f" servo_gain in (0, 1] and step_hz >= 100 are needed, got {self}"
            )

    @property
    def size_m(self) -> tuple[float, ...]:
        """Sides of the cube, or of the box that is there instead, in its own frame [m]."""
        return self.box_m or (self.cube_side_m,) * 3


class GripPlant(EnginePlant):
    """One physics client; see ``hardware.emulators.plant`` for the methods' contracts."""

    def __init__(self, config: GripPlantConfig, seed: int = 0) -> None:
        self.config = config
        super().__init__(config.step_hz)
        self._left_over = _HANDLED
        self._T_base_table = pose(rot_z(0.0), config.origin_m)
        self.engine.restart()
        self._build(_drawn(config, seed))
        self.set_joints(np.array(config.home))
        for finger in self._fingers:
            self._p.resetJointState(self._arm, finger, 0.5 * self.stroke_m, 0.0, **self._id)
        self.set_target(self.stroke_m, 1.0)
        self.place_object(CUBE, np.array(config.cube_pose))
        self.place_object(GOAL, np.array(config.goal_pose))

    @property
    def object_names(self) -> tuple[str, ...]:
        """The cube, and the mark where it belongs."""
        return (CUBE, GOAL)

    @property
    def T_base_table(self) -> Pose:  # noqa: N802  (a transform)
        """The table's frame in the arm's base frame."""
        return self._T_base_table.copy()

    def tool_pose(self) -> RotvecPose:
        """Between the finger tips, in the base frame: position [m] and rotation vector."""
        T = UR5E.fk(self.engine.q)
        tip = T[:3, 3] + T[:3, 2] * GRIPPER.reach_m
        return np.concatenate([tip, rotvec_from_rotation(T[:3, :3])])

    def tool_force(self) -> Vector:
        """Sum of the contact forces on hand and fingers [N] in the base frame."""
        return self.engine.contact_force((self._hand, *self._fingers))

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the joint servos [rad], [rad/s]."""
        self.engine.servo(q, qd, self.config.servo_gain, UR5E.max_torque)

    def step(self, dt_s: float) -> None:
        """Advance by ``dt_s`` [s], a whole number of engine steps. The cube rests exactly until the
        arm comes near; grasps are the engine's own, which hold less evenly when solved exactly.
        """
        near = bool(self._p.getContactPoints(self._cube, self._arm, **self._id))
        self._solve_to(_HANDLED if near else _RESTING)
        self.engine.step(dt_s)

    def place_object(self, name: str, pose: ObjectPose) -> None:
        """Put the cube or the goal at rest at ``[x, y, z, qw, qx, qy, qz]`` of the table frame, or
        on the table at ``[x, y, yaw]``.
        """
        self._require(name)
        T = _placed(pose, 0.5 * self.config.size_m[2] if name == CUBE else 0.0)
        if name == GOAL:
            self._T_table_goal = T
            return
        T = self._T_base_table @ T
        w, x, y, z = quat_from_rotation(T[:3, :3]).tolist()
        self._p.resetBasePositionAndOrientation(
            self._cube, T[:3, 3].tolist(), [x, y, z, w], **self._id
        )
        self._p.resetBaseVelocity(self._cube, [0.0] * 3, [0.0] * 3, **self._id)

    def true_pose(self, name: str) -> PoseValues:
        """Where the cube or the goal is: ``[x, y, z, qw, qx, qy, qz]`` in the table frame."""
        T = self._on_table(name)
        return np.concatenate([T[:3, 3], quat_from_rotation(T[:3, :3])])

    # -- fingers ---------------------------------------------------------------------------------

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        return GRIPPER.opening_m

    def width(self) -> float:
        """Distance of the fingers [m]."""
        states = self._p.getJointStates(self._arm, self._fingers, **self._id)
        return float(sum(s[0] for s in states))

    def set_target(self, width_m: float, force_share: float) -> None:
        """Where the fingers' servos pull [m], with at most this share of their force."""
        self._p.setJointMotorControlArray(
            *(self._arm, self._fingers, self._p.POSITION_CONTROL),
            targetPositions=[0.5 * width_m] * 2,
            positionGains=[0.2] * 2,
            velocityGains=[1.0] * 2,
            forces=[force_share * GRIPPER.force_n] * 2,
            **self._id,
        )

    def object_height(self, name: str) -> float:
        """Height of the cube's centre (or the goal) over the table [m]."""
        return float(self._on_table(name)[2, 3])

    # -- inside ----------------------------------------------------------------------------------

    def _require(self, name: str) -> None:
        if name not in self.object_names:
            raise DataError(f"no object '{name}'; the workcell has: {list(self.object_names)}")

    def _on_table(self, name: str) -> Pose:
        self._require(name)
        if name == GOAL:
            return self._T_table_goal
        at, turn = self._p.getBasePositionAndOrientation(self._cube, **self._id)
        R = np.array(self._p.getMatrixFromQuaternion(turn)).reshape(3, 3)
        return inverse(self._T_base_table) @ pose(R, at)

    def _build(self, hidden: GripPlantConfig) -> None:
        p = self._p
        # More exactly than the engine does by itself: the cube hangs on friction alone.
        p.setPhysicsEngineParameter(numSolverIterations=100, enableConeFriction=1, **self._id)
        table = self._box([0.4, 0.5, 0.05], 0.0, -0.05)
        half = [0.5 * side for side in hidden.size_m]
        self._cube = self._box(half, hidden.cube_mass_kg, half[2])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "arm.urdf"
            file.write_text(gripping_urdf())
            flags = p.URDF_USE_INERTIA_FROM_FILE
            self._arm = p.loadURDF(str(file), useFixedBase=True, flags=flags, **self._id)
        joints = list(range(UR5E.dof))
        self.engine.mount(self._arm, joints)
        self._hand = UR5E.dof
        self._fingers = [UR5E.dof + 1, UR5E.dof + 2]
        # Bullet multiplies the two frictions of a contact: the cube carries 1.
        p.changeDynamics(table, -1, lateralFriction=hidden.table_friction, **self._id)
        p.changeDynamics(
            *(self._cube, -1), lateralFriction=1.0, spinningFriction=0.002,
            activationState=p.ACTIVATION_STATE_DISABLE_SLEEPING, **self._id,
        )  # fmt: skip
        for joint in joints:
            p.changeDynamics(self._arm, joint, jointDamping=hidden.joint_damping, **self._id)
        for finger in self._fingers:
            p.changeDynamics(self._arm, finger, lateralFriction=hidden.pad_friction, **self._id)

    def _solve_to(self, left_over: float) -> None:
        if left_over != self._left_over:
            self._p.setPhysicsEngineParameter(solverResidualThreshold=left_over, **self._id)
            self._left_over = left_over

    def _box(self, half: list[float], mass_kg: float, height_m: float) -> int:
        """A box over the middle of the table, its centre at a height [m]."""
        p = self._p
        at = self._T_base_table @ np.array([0.0, 0.0, height_m, 1.0])
        shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=half, **self._id)
        return int(p.createMultiBody(mass_kg, shape, -1, at[:3].tolist(), **self._id))


def gripping_urdf() -> str:
    """The arm with a round hand (``tool``) and two fingers on slides along its y axis."""
    hand_m = GRIPPER.finger_z_m
    arm = arm_urdf(UR5E, hand_m, 0.5 * GRIPPER.hand_boxes[0][1][0])
    hx, hy, hz = GRIPPER.finger_half_m
    parts: list[str] = []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        at = f'<origin xyz="0 {sign * hy} {hz}" rpy="0 0 0"/>'
        parts.append(
            f'<link name="finger_{side}"><inertial>{at}<mass value="{GRIPPER.finger_mass_kg}"/>'
            '<inertia ixx="2e-5" iyy="2e-5" izz="5e-6" ixy="0" ixz="0" iyz="0"/></inertial>'
            f'<collision>{at}<geometry><box size="{2 * hx} {2 * hy} {2 * hz}"/></geometry>'
            "</collision></link>"
            f'<joint name="finger_{side}" type="prismatic"><parent link="tool"/>'
            f'<child link="finger_{side}"/><origin xyz="0 0 {hand_m}" rpy="0 0 0"/>'
            f'<axis xyz="0 {sign} 0"/><limit lower="0" upper="{0.5 * GRIPPER.opening_m}"'
            f' effort="{GRIPPER.force_n}" velocity="1"/></joint>'
        )
    return arm.replace("</robot>", "\n".join(parts) + "\n</robot>")


def _placed(values: ObjectPose, height_m: float) -> Pose:
    """The pose of an object that is given in space, or on the table with its middle so high."""
    if len(values) > 3:
        return pose(rotation_from_quat(values[3:] / np.linalg.norm(values[3:])), values[:3])
    x, y, yaw = values.tolist()
    return pose(rot_z(yaw), (x, y, height_m))


def _drawn(config: GripPlantConfig, seed: int) -> GripPlantConfig:
    """The physics of this seed: every hidden value within ``spread`` of the configured one."""
    rng = np.random.default_rng(child_seed(seed, "physics"))
    names = ("cube_mass_kg", "table_friction", "pad_friction", "joint_damping")
    scale = 1.0 + config.spread * rng.uniform(-1.0, 1.0, size=len(names))
    values = {n: float(getattr(config, n) * s) for n, s in zip(names, scale, strict=True)}
    return replace(config, **values)
