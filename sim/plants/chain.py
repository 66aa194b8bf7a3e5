"""Simulates any arm of ``robolearn/arms/models.py`` in PyBullet, behind an emulated controller.

Satisfies ``hardware.emulators.plant.ServoPlant`` by shape (siblings do not import each other).
Nothing but the arm's own weight, motors and friction: an arm on an empty table top.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robolearn.arms.kinematics import Link, SerialArm
from robolearn.arms.models import named_arm
from robolearn.arms.shapes import JointFlags, Joints
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import (
    ObjectPose,
    Rotation,
    RotvecPose,
    Vector,
    pose,
    pose_from_rpy,
    rot_x,
    rotvec_from_rotation,
)
from robolearn.seeding import child_seed
from sim.plants.engine_plant import EnginePlant
from sim.robots.so101 import JAW_CLOSED, JAW_OPEN

# The jaw of the SO-101 (TheRobotStudio/SO-ARM100, Simulation/SO101/so101_new_calib.urdf), as a
# link behind the last one.
_JAWS: dict[str, Link] = {
    "so101": Link(
        *(0.0, 0.0, 0.0),
        mass_kg=0.012,
        com=(-0.00157495, -0.0300244, 0.0192755),
        inertia=(6.61427e-06, 1.89032e-06, 5.28738e-06, -3.19807e-07, -5.90717e-09, -1.09945e-07),
        origin=(0.0202, 0.0188, -0.0234, 0.5 * math.pi, 0.0, 0.0),
    )
}
_JAW_RANGE = (JAW_CLOSED, JAW_OPEN)


@dataclass(frozen=True, slots=True)
class ChainPlantConfig:
    """The arm and its hidden physics.

    ``spread``: relative half-width of the uniform draw around damping and friction.
    """

    # Joint angles at the start, with the jaw's behind them where the arm has one [rad].
    home: tuple[float, ...]
    # Viscous friction [N m s/rad].
    joint_damping: float = 0.02
    # What a motor without power resists [N m].
    joint_friction: float = 0.05
    # Share of the position error that is corrected per engine step.
    servo_gain: float = 0.2
    spread: float = 0.1
    # Engine steps per second [Hz].
    step_hz: float = 500.0

    def __post_init__(self) -> None:
        hidden = (self.joint_damping, self.joint_friction)
        if not all(0.0 <= v < math.inf for v in hidden):
            raise ConfigError(f"joint_damping and joint_friction must be at least 0, got {hidden}")
        if not (0 <= self.spread < 1 and self.step_hz >= 100 and 0 < self.servo_gain <= 1):
            raise ConfigError(
                "spread in [0, 1), servo_gain in (0, 1] and step_hz >= 100 are needed, got"
                f" {self.spread}, {self.servo_gain}, {self.step_hz}"
            )


class ChainPlant(EnginePlant):
    """One physics client; see ``hardware.emulators.plant.ServoPlant`` for the methods' contract."""

    def __init__(self, arm: str, config: ChainPlantConfig, seed: int = 0) -> None:
        self.arm, self.config = named_arm(arm), config
        self._jaw = _JAWS.get(arm)
        dof = self.arm.dof + (self._jaw is not None)
        if len(config.home) != dof:
            raise ConfigError(f"home of {arm} needs {dof} joint angles, got {len(config.home)}")
        torque = [*self.arm.max_torque, *self.arm.max_torque[-1:]][:dof]
        self._full_torque = np.array(torque)
        self._powered = np.ones(dof, dtype=np.bool_)
        super().__init__(config.step_hz)
        self._hidden = _drawn(config, seed)
        self._joints = list(range(dof))
        self.engine.restart()
        self._build()
        self.set_joints(np.array(config.home))

    @property
    def object_names(self) -> tuple[str, ...]:
        """None: the table is empty."""
        return ()

    def full_torque(self) -> Joints:
        """Largest motor torques [N m]."""
        return self._full_torque.copy()

    def tool_pose(self) -> RotvecPose:
        """Flange in the base frame: position [m] and rotation vector."""
        T = self.arm.fk(self.engine.q[: self.arm.dof])
        return np.concatenate([T[:3, 3], rotvec_from_rotation(T[:3, :3])])

    def tool_force(self) -> Vector:
        """Zero: there is nothing to touch."""
        return np.zeros(3)

    def set_powered(self, powered: JointFlags) -> None:
        """Which motors hold; the others are limp but for their friction."""
        self._powered = powered.copy()

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the joint servos [rad], [rad/s]."""
        gain = self.config.servo_gain
        for joint in self._joints:
            if self._powered[joint]:
                self._p.setJointMotorControl2(
                    *(self._body, joint, self._p.POSITION_CONTROL),
                    targetPosition=float(q[joint]),
                    targetVelocity=float(qd[joint]),
                    positionGain=gain,
                    velocityGain=1.0,
                    force=float(self._full_torque[joint]),
                    **self._id,
                )
            else:
                self._p.setJointMotorControl2(
                    *(self._body, joint, self._p.VELOCITY_CONTROL),
                    targetVelocity=0.0,
                    force=self._hidden.joint_friction,
                    **self._id,
                )

    def place_object(self, name: str, pose: ObjectPose) -> None:  # noqa: ARG002  (there is none)
        """Raises DataError: the table is empty."""
        raise DataError(f"no object '{name}'; this lab has an arm only")

    def true_pose(self, name: str) -> ObjectPose:
        """Raises DataError: the table is empty."""
        raise DataError(f"no object '{name}'; this lab has an arm only")

    def _build(self) -> None:
        p = self._p
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "arm.urdf"
            file.write_text(chain_urdf(self.arm, self._jaw))
            flags = p.URDF_USE_INERTIA_FROM_FILE
            self._body = p.loadURDF(str(file), useFixedBase=True, flags=flags, **self._id)
        self.engine.mount(self._body, self._joints)
        for joint in self._joints:
            p.changeDynamics(self._body, joint, jointDamping=self._hidden.joint_damping, **self._id)


def chain_urdf(arm: SerialArm, jaw: Link | None = None) -> str:
    """Links and joints without shapes; every link's frame is its joint's axis (z).

    Where a DH frame is from there: ``modified`` at ``Tz(d)``, ``standard`` at
    ``Tz(d) Tx(a) Rx(alpha)``; inertias are given in DH frames.
    """
    parts = [
        (
            '<link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"'
            ' ixy="0" ixz="0" iyz="0"/></inertial></link>'
        )
    ]
    parent, T_parent_next = "base", np.eye(4)
    links = [*zip(arm.links, arm.joint_names, strict=True)]
    lows, highs = list(arm.low), list(arm.high)
    if jaw is not None:
        links.append((jaw, "jaw"))
        lows.append(_JAW_RANGE[0])
        highs.append(_JAW_RANGE[1])
    for i, (link, name) in enumerate(links):
        row = pose(rot_x(link.alpha), (link.a, 0.0, 0.0))
        along = pose(None, (0.0, 0.0, link.d))
        if arm.convention == "standard":
            T_joint, T_axis_frame = T_parent_next, along @ row
        else:
            T_joint, T_axis_frame = T_parent_next @ pose_from_rpy(link.origin) @ row, along
        com = (T_axis_frame @ np.array([*link.com, 1.0]))[:3]
        R = T_axis_frame[:3, :3]
        ixx, iyy, izz, ixy, ixz, iyz = link.inertia
        inertia = R @ np.array([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]]) @ R.T
        (a, b, c), (_, d, e), (_, _, f) = inertia.tolist()
        torque = arm.max_torque[min(i, arm.dof - 1)]
        parts.append(
            f'<link name="{name}_link"><inertial><origin xyz="{_words(com)}" rpy="0 0 0"/>'
            f'<mass value="{link.mass_kg}"/><inertia ixx="{a}" iyy="{d}" izz="{f}" ixy="{b}"'
            f' ixz="{c}" iyz="{e}"/></inertial></link>'
        )
        parts.append(
            f'<joint name="{name}" type="revolute"><parent link="{parent}"/>'
            f'<child link="{name}_link"/><origin xyz="{_words(T_joint[:3, 3])}"'
            f' rpy="{_words(_rpy(T_joint[:3, :3]))}"/><axis xyz="0 0 1"/>'
            f'<limit lower="{lows[i]}" upper="{highs[i]}" effort="{torque}" velocity="10"/></joint>'
        )
        parent, T_parent_next = f"{name}_link", T_axis_frame
    return f'<robot name="{arm.name}">\n' + "\n".join(parts) + "\n</robot>\n"


def _rpy(R: Rotation) -> tuple[float, float, float]:
    """Roll, pitch, yaw of ``Rz(yaw) Ry(pitch) Rx(roll)``, as URDF has them."""
    pitch = math.atan2(-R[2, 0], math.hypot(R[0, 0], R[1, 0]))
    if abs(math.cos(pitch)) < 1e-9:
        return math.atan2(-R[1, 2], R[1, 1]), pitch, 0.0
    return math.atan2(R[2, 1], R[2, 2]), pitch, math.atan2(R[1, 0], R[0, 0])


def _words(values: Vector | tuple[float, ...]) -> str:
    return " ".join(f"{float(v):.12g}" for v in values)


def _drawn(config: ChainPlantConfig, seed: int) -> ChainPlantConfig:
    rng = np.random.default_rng(child_seed(seed, "physics"))
    damping, friction = 1.0 + config.spread * rng.uniform(-1.0, 1.0, size=2)
    return replace(
        config,
        joint_damping=float(config.joint_damping * damping),
        joint_friction=float(config.joint_friction * friction),
    )
