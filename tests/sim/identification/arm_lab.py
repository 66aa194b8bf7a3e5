"""A hidden arm in process: the lab's plant behind its drive train, at 500 Hz, without a clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardware.emulators.drivetrain import DrivetrainConfig, behind
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from robolearn.arms.shapes import JointRows, Joints
from sim.identification.arm_excitation import Excitation, Room
from sim.identification.arm_model import ArmModel
from sim.identification.arm_motion import ArmMotion
from sim.plants.scene import ScenePlant, ScenePlantConfig

DT_S = 0.002


@dataclass(frozen=True)
class Hidden:
    """What a seed hides."""

    plant: ScenePlantConfig
    drivetrain: DrivetrainConfig
    seed: int

    @property
    def delay_s(self) -> float:
        truth = self.drivetrain.drawn(6, self.seed)
        return truth.command_delay_s + truth.state_delay_s


def hidden(seed: int, scene: str = "pusht_ur5e", backlash_rad: float = 0.0) -> Hidden:
    rng = np.random.default_rng(seed)
    plant = ScenePlantConfig(
        scene=scene,
        joint_damping=float(rng.uniform(1.0, 8.0)),
        joint_friction=float(rng.uniform(0.5, 4.0)),
        servo_gain=float(np.exp(rng.uniform(-0.7, 0.3))),
        armature=float(np.exp(rng.uniform(-0.5, 0.7))),
        payload_kg=float(rng.uniform(0.2, 2.0)),
        spread=0.2,
    )
    drive = DrivetrainConfig(
        backlash_rad=(backlash_rad,) if backlash_rad else (),
        command_delay_s=float(rng.uniform(0.004, 0.05)),
        position_noise_rad=5e-5,
        velocity_noise_rad_s=1e-3,
        spread=0.2,
    )
    return Hidden(plant, drive, seed)


def room(model: ArmModel, home: Joints | None = None) -> Room:
    """That of a table-top cell, the arm lifted; the tool at most at 0.5 m/s."""
    arm = model.arm
    at = np.array([-0.33, -1.45, 2.1, -2.2, -1.57, -0.33]) if home is None else home
    return Room(
        arm, at, at - 0.8, at + 0.8, np.full(arm.dof, 3.0), np.full(arm.dof, 15.0),
        tool_m=float(model.mount.tip[2]), tool_speed=0.5,
    )  # fmt: skip


def record(
    world: Hidden, motion: Excitation, name: str = "lab", *, smoothing: bool = False
) -> ArmMotion:
    """Make the motion: what was told and what the encoders said. ``smoothing``: by the controller
    of an emulated UR, as set-points over RTDE are.
    """
    plant = ScenePlant(world.plant, world.seed)
    arm = behind(plant, world.drivetrain, world.seed)
    arm_q = motion.q
    arm.set_joints(arm_q[0]) if hasattr(arm, "set_joints") else plant.set_joints(arm_q[0])
    qd = np.gradient(arm_q, DT_S, axis=0)
    controller = JointMotion(arm_q[0], MotionLimits())
    measured: JointRows = np.empty_like(arm_q)
    for k, q in enumerate(arm_q):
        if smoothing:
            controller.servo(q, DT_S, 0.03, 500.0, DT_S)
            controller.step(DT_S)
            arm.set_joint_targets(controller.q, controller.qd)
        else:
            arm.set_joint_targets(q, qd[k])
        arm.step(DT_S)
        measured[k] = arm.joint_positions()
    plant.close()
    t_s = DT_S * np.arange(len(arm_q))
    return ArmMotion(name, t_s, arm_q, t_s + DT_S, measured)
