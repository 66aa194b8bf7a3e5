"""Simulates the lab's workcell in PyBullet: a UR5e with a round tool pushing a T on a table.

Satisfies ``hardware.emulators.plant.Plant`` (by shape; siblings do not import each other). The
physics is meant to be *unknown* to whoever works with the lab: friction, mass and servo behaviour
are drawn around the configured values from a seed, and nothing outside reads them. They were chosen
without looking at the scene packages.
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
from robolearn.geometry import XY, PlanarPose, RotvecPose, Vector, pose, rot_z, rotvec_from_rotation
from robolearn.pusht import (
    BAR_PX,
    GOAL,
    STEM_PX,
    TABLE_SIZE_M,
    TOOL_RADIUS_M,
    Pose,
    transform_points,
    wrap_angle,
)
from robolearn.seeding import child_seed
from robolearn.shapes import Picture
from sim.plants.engine_plant import EnginePlant
from sim.plants.urdf import (
    BLOCK_HEIGHT_M,
    LID_M,
    RIM_CONTACT_HEIGHT_M,
    RIM_HEIGHT_M,
    arm_urdf,
    block_box,
    block_urdf,
    rim_boxes,
)

BLOCK = "block"


@dataclass(frozen=True, slots=True)
class PlantConfig:
    """Workcell geometry (see ``docs/workcell.md``) and hidden physics.

    ``origin_m`` and ``heading_rad`` place the table frame in the arm's base frame; ``home`` are
    the joint angles at start. ``spread`` is the relative half-width of the uniform draw around
    every hidden value (friction, mass, damping).
    """

    origin_m: tuple[float, float, float] = (-0.806, 0.256, 0.0)
    heading_rad: float = -1.5707963267948966
    tool_length_m: float = 0.12
    home: tuple[float, ...] = (-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345)
    block_pose: tuple[float, float, float] = (0.256, 0.256, 0.0)
    block_mass_kg: float = 0.24
    table_friction: float = 0.37
    tool_friction: float = 0.22
    joint_damping: float = 0.4
    servo_gain: float = 0.35
    spread: float = 0.1
    step_hz: float = 500.0

    def __post_init__(self) -> None:
        if len(self.home) != UR5E.dof:
            raise ConfigError(f"home needs {UR5E.dof} joint angles, got {len(self.home)}")
        hidden = (self.block_mass_kg, self.table_friction, self.tool_friction, self.joint_damping)
        if not all(0 <= value < math.inf for value in hidden) or not self.block_mass_kg > 0:
            raise ConfigError(
                "block_mass_kg must be positive, table_friction, tool_friction and joint_damping"
                f" at least 0, got {hidden}"
            )
        if not (0 <= self.spread < 1 and self.step_hz >= 100 and 0 < self.servo_gain <= 1):
            raise ConfigError(
                "spread in [0, 1), servo_gain in (0, 1] and step_hz >= 100 are needed, got"
                f" {self.spread}, {self.servo_gain}, {self.step_hz}"
            )


class PyBulletPlant(EnginePlant):
    """One physics client; see ``hardware.emulators.plant.Plant`` for the methods' contract."""

    def __init__(self, config: PlantConfig, seed: int = 0, goal: Pose = GOAL) -> None:
        self.config = config
        # Printed on the table, for people and cameras.
        self._goal = goal
        super().__init__(config.step_hz)
        self._T_base_table = pose(rot_z(config.heading_rad), config.origin_m)
        self._hidden = _drawn(config, seed)
        self.reset()

    @property
    def object_names(self) -> tuple[str, ...]:
        """The T."""
        return (BLOCK,)

    def tool_pose(self) -> RotvecPose:
        """Tip of the tool in the base frame: position [m] and rotation vector."""
        T = UR5E.fk(self.engine.q)
        tip = T[:3, 3] + T[:3, 2] * self.config.tool_length_m
        return np.concatenate([tip, rotvec_from_rotation(T[:3, :3])])

    def tool_force(self) -> Vector:
        """Sum of the contact forces on the tool [N] in the base frame."""
        return self.engine.contact_force((self._tool,))

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the joint servos [rad], [rad/s]."""
        self.engine.servo(q, qd, self.config.servo_gain, UR5E.max_torque)

    def reset(self) -> None:
        """Back to the start, in a new engine: a used one keeps impulses, and what follows shall
        repeat bit for bit.
        """
        self.engine.restart()
        self._build(self._hidden)
        self.set_joints(np.array(self.config.home))
        self.place_object(BLOCK, np.array(self.config.block_pose))

    def place_object(self, name: str, pose: PlanarPose) -> None:
        """Put the T at rest at ``[x, y, yaw]`` of the table frame."""
        self._require(name)
        x, y, yaw = pose.tolist()
        R = self._T_base_table[:3, :3] @ rot_z(yaw)
        origin = self._T_base_table @ np.array([x, y, 0.5 * BLOCK_HEIGHT_M, 1.0])
        com = origin[:3] + R @ self._com
        heading = self.config.heading_rad + yaw
        quaternion = [0.0, 0.0, float(np.sin(heading / 2)), float(np.cos(heading / 2))]
        self._p.resetBasePositionAndOrientation(self._block, com.tolist(), quaternion, **self._id)
        self._p.resetBaseVelocity(self._block, [0.0] * 3, [0.0] * 3, **self._id)

    def true_pose(self, name: str) -> PlanarPose:
        """Where the T is: ``[x, y, yaw]`` in the table frame."""
        self._require(name)
        position, orientation = self._p.getBasePositionAndOrientation(self._block, **self._id)
        R = np.array(self._p.getMatrixFromQuaternion(orientation)).reshape(3, 3)
        origin = np.array(position) - R @ self._com
        R_table = self._T_base_table[:3, :3]
        xy = (R_table.T @ (origin - self._T_base_table[:3, 3]))[:2]
        along = R_table.T @ R[:, 0]
        return np.array([xy[0], xy[1], float(wrap_angle(np.arctan2(along[1], along[0])))])

    def picture(self, view: str, width: int, height: int) -> Picture:
        """Software-rendered picture ``[height, width, 3]``: ``top`` (the table square, x right,
        y up) or ``perspective``.
        """
        p, T = self._p, self._T_base_table
        centre = T @ np.array([TABLE_SIZE_M / 2, TABLE_SIZE_M / 2, 0.0, 1.0])
        if view == "top":
            # From far above, so that nothing hides behind height; the near plane cuts the arm off
            # above the flange.
            eye, up = centre[:3] + np.array([0.0, 0.0, 8.0]), T[:3, 1]
            fov, near = 2.0 * np.degrees(np.arctan(0.5 * TABLE_SIZE_M / 8.0)), 7.9
        elif view == "perspective":
            eye = (T @ np.array([0.80, -0.45, 0.60, 1.0]))[:3]
            up, fov, near = np.array([0.0, 0.0, 1.0]), 45.0, 0.1
        else:
            raise DataError(f"no view '{view}'; there are 'top' and 'perspective'")
        _, _, rgba, _, _ = p.getCameraImage(
            width,
            height,
            p.computeViewMatrix(eye.tolist(), centre[:3].tolist(), up.tolist()),
            p.computeProjectionMatrixFOV(fov, width / height, near, 10.0),
            renderer=p.ER_TINY_RENDERER,
            lightDirection=[-0.6, 0.4, 1.5],
            shadow=0,
            flags=p.ER_NO_SEGMENTATION_MASK,
            **self._id,
        )
        image = np.asarray(rgba, dtype=np.uint8).reshape(height, width, 4)
        return np.ascontiguousarray(image[:, :, :3])

    def _require(self, name: str) -> None:
        if name != BLOCK:
            raise DataError(f"no object '{name}'; the workcell has: {list(self.object_names)}")

    def _build(self, hidden: PlantConfig) -> None:
        p = self._p
        p.setPhysicsEngineParameter(
            deterministicOverlappingPairs=1, enableConeFriction=1, **self._id
        )
        size = [0.5, 0.55, 0.05]
        centre = self._T_base_table @ np.array([TABLE_SIZE_M / 2, TABLE_SIZE_M / 2, -size[2], 1.0])
        shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=size, **self._id)
        look = p.createVisualShape(
            p.GEOM_BOX, halfExtents=size, rgbaColor=[0.94, 0.93, 0.90, 1.0], **self._id
        )
        table = p.createMultiBody(0.0, shape, look, centre[:3].tolist(), **self._id)
        with tempfile.TemporaryDirectory() as folder:
            arm_file, block_file = Path(folder) / "arm.urdf", Path(folder) / "block.urdf"
            arm_file.write_text(arm_urdf(UR5E, hidden.tool_length_m, TOOL_RADIUS_M))
            block_file.write_text(block_urdf(hidden.block_mass_kg))
            flags = p.URDF_USE_INERTIA_FROM_FILE
            self._arm = p.loadURDF(str(arm_file), useFixedBase=True, flags=flags, **self._id)
            self._block = p.loadURDF(str(block_file), flags=flags, **self._id)
        self._joints = list(range(UR5E.dof))
        self._tool = UR5E.dof
        self.engine.mount(self._arm, self._joints)
        self._com = np.array(p.getDynamicsInfo(self._block, -1, **self._id)[3])
        # Bullet multiplies the two frictions of a contact: the block carries 1.
        p.changeDynamics(table, -1, lateralFriction=hidden.table_friction, **self._id)
        p.changeDynamics(
            self._block,
            -1,
            lateralFriction=1.0,
            rollingFriction=0.0,
            linearDamping=0.0,
            angularDamping=0.0,
            activationState=p.ACTIVATION_STATE_DISABLE_SLEEPING,
            **self._id,
        )
        for joint in self._joints:
            p.changeDynamics(self._arm, joint, jointDamping=hidden.joint_damping, **self._id)
        p.changeDynamics(self._arm, self._tool, lateralFriction=hidden.tool_friction, **self._id)
        self._add_rim()
        self._mark_table()

    def _add_rim(self) -> None:
        """A rim that stops the block and lets the tool pass over it."""
        p, height = self._p, RIM_CONTACT_HEIGHT_M
        for at, (width, depth) in rim_boxes():
            half = [width / 2, depth / 2, height / 2]
            shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=half, **self._id)
            look = p.createVisualShape(
                p.GEOM_BOX,
                halfExtents=[*half[:2], RIM_HEIGHT_M / 2],
                visualFramePosition=[0.0, 0.0, (RIM_HEIGHT_M - height) / 2],
                rgbaColor=[0.66, 0.68, 0.71, 1.0],
                **self._id,
            )
            centre, quaternion = self._on_table(np.array(at), 0.0, height / 2)
            bar = p.createMultiBody(0.0, shape, look, centre, quaternion, **self._id)
            p.changeDynamics(bar, -1, lateralFriction=0.1, **self._id)
            p.setCollisionFilterPair(bar, self._arm, -1, self._tool, 0, **self._id)
        self._add_lid()

    def _add_lid(self) -> None:
        """Nothing that squeezes the block lifts or tips it; never touched on the open table."""
        p = self._p
        half = [TABLE_SIZE_M, TABLE_SIZE_M, 0.05]
        shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=half, **self._id)
        middle = np.full(2, 0.5 * TABLE_SIZE_M)
        centre, quaternion = self._on_table(middle, 0.0, LID_M + half[2])
        # Without a look of its own a body is drawn as it collides: a grain under the table.
        look = p.createVisualShape(
            p.GEOM_SPHERE, radius=1e-4, visualFramePosition=[0.0, 0.0, -0.1], **self._id
        )
        lid = p.createMultiBody(0.0, shape, look, centre, quaternion, **self._id)
        p.changeDynamics(lid, -1, lateralFriction=0.0, **self._id)
        p.setCollisionFilterPair(lid, self._arm, -1, self._tool, 0, **self._id)

    def _on_table(self, at: XY, yaw: float, height: float) -> tuple[list[float], list[float]]:
        """Position and quaternion in the base frame of what is at ``at [2]`` [m] of the table."""
        centre = self._T_base_table @ np.array([at[0], at[1], height, 1.0])
        heading = self.config.heading_rad + yaw
        return centre[:3].tolist(), [
            0.0,
            0.0,
            float(np.sin(heading / 2)),
            float(np.cos(heading / 2)),
        ]

    def _mark_table(self) -> None:
        """Print the goal on the table (looks only)."""
        for corners in (BAR_PX, STEM_PX):
            (x, y), size = block_box(corners)
            at = transform_points(np.array([[x, y]]), self._goal)[0]
            self._print(at, size, self._goal[2], [0.56, 0.83, 0.56, 1.0])

    def _print(self, at: XY, size: tuple[float, ...], yaw: float, colour: list[float]) -> None:
        half = [size[0] / 2, size[1] / 2, 0.0005]
        look = self._p.createVisualShape(
            self._p.GEOM_BOX, halfExtents=half, rgbaColor=colour, **self._id
        )
        centre, quaternion = self._on_table(at, yaw, 0.0)
        self._p.createMultiBody(0.0, -1, look, centre, quaternion, **self._id)


def _drawn(config: PlantConfig, seed: int) -> PlantConfig:
    """The physics of this seed: every hidden value within ``spread`` of the configured one."""
    rng = np.random.default_rng(child_seed(seed, "physics"))
    names = ("block_mass_kg", "table_friction", "tool_friction", "joint_damping")
    scale = 1.0 + config.spread * rng.uniform(-1.0, 1.0, size=len(names))
    values = {n: float(getattr(config, n) * s) for n, s in zip(names, scale, strict=True)}
    return replace(config, **values)
