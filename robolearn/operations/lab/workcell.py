"""Builds the workcell of a section ``lab``: its physics and what cameras must know of it.

Here and in ``arm.py`` the emulators of ``hardware`` meet the plants of ``sim``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.cell.load import load_sections
from hardware.emulators.drivetrain import DrivetrainConfig
from hardware.emulators.lab.workcell import DevicesConfig
from hardware.emulators.plant import FingerPlant, KinematicPlant, Plant
from robolearn.arms.models import UR5E
from robolearn.config import from_dict
from robolearn.errors import ConfigError
from robolearn.geometry import pose, rot_z
from robolearn.operations.lab.cameras import LabCameraConfig, Workcell
from robolearn.operations.lab.options import World
from sim.plants.fingers import SceneFingers
from sim.plants.grip import GripPlant, GripPlantConfig
from sim.plants.printed import PrintedBoard
from sim.plants.pusht import BLOCK, PlantConfig, PyBulletPlant
from sim.plants.scene import ScenePlant, ScenePlantConfig
from sim.robots.grippers import WIDE_GRIPPER as GRIPPER


@dataclass(frozen=True, slots=True)
class LabConfig:
    """The section ``lab`` of a hardware config.

    ``world``: ``pybullet`` (``physics``, or ``gripping``: a gripper and a cube), ``mujoco``
    (``scene``), or ``kinematic`` (joints follow exactly, the block never moves) for tests of a
    protocol alone. ``drivetrain``: what hides between controller and arm. ``real_time``: take
    real-time priority where it is permitted, as the controller that this stands for has its
    computer to itself. ``cameras`` see the table, and a printed ``board`` on it or on the flange.
    """

    world: World = "pybullet"
    real_time: bool = True
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    drivetrain: DrivetrainConfig = field(default_factory=DrivetrainConfig)
    physics: PlantConfig = field(default_factory=PlantConfig)
    gripping: GripPlantConfig | None = None
    scene: ScenePlantConfig = field(default_factory=ScenePlantConfig)
    cameras: tuple[LabCameraConfig, ...] = ()
    board: PrintedBoard | None = None


def load_lab(path: Path, world: World | None = None) -> LabConfig:
    """The section ``lab`` of a hardware config; the others belong to other commands.

    ``world`` takes the place of the file's.
    """
    raw = load_sections(path)
    if not isinstance(raw.get("lab"), dict):
        raise ConfigError(f"{path} has no section 'lab' that describes a virtual workcell")
    config = from_dict(LabConfig, raw["lab"], where=f"{path}, lab")
    return config if world is None else dataclasses.replace(config, world=world)


def build_plant(config: LabConfig, seed: int) -> tuple[Plant, Workcell]:
    """The physics, and what cameras need to know of it."""
    plant, workcell = _built(config, seed)
    return plant, dataclasses.replace(workcell, board=config.board)


def _built(config: LabConfig, seed: int) -> tuple[Plant, Workcell]:
    if config.world == "mujoco":
        return _scene_plant(config, seed)
    if config.world == "pybullet" and config.gripping is not None:
        return _grip_plant(config.gripping, seed)
    physics = config.physics
    workcell = Workcell(
        T_base_table=pose(rot_z(physics.heading_rad), physics.origin_m),
        tool_length_m=physics.tool_length_m,
        home=physics.home,
        objects=((BLOCK, physics.block_pose),),
    )
    if config.world == "kinematic":
        plant = KinematicPlant(np.array(physics.home), {BLOCK: np.array(physics.block_pose)})
        return plant, workcell
    return PyBulletPlant(physics, seed), workcell


def drawn_scene(config: LabConfig) -> ScenePlantConfig | None:
    """The scene that draws a lab's workcell; None: it draws itself (Push-T's table)."""
    if config.world == "mujoco":
        return config.scene
    gripping = config.gripping if config.world == "pybullet" else None
    return None if gripping is None else ScenePlantConfig(gripping.drawn_by)


def build_fingers(config: LabConfig, plant: Plant) -> FingerPlant | None:
    """The gripper of the lab's arm, where the config serves one."""
    if config.devices.gripper is None:
        return None
    if isinstance(plant, GripPlant):
        return plant
    if not isinstance(plant, ScenePlant):
        raise ConfigError(
            "lab.devices.gripper: this workcell pushes with a round tool; give 'gripping' (a cube"
            " and fingers in PyBullet), or 'world: mujoco' and a scene with a gripper"
            " (configs/hardware/lab_ur5e_gripper.yaml)"
        )
    return SceneFingers(plant)


def _grip_plant(gripping: GripPlantConfig, seed: int) -> tuple[Plant, Workcell]:
    plant = GripPlant(gripping, seed)
    scene = ScenePlantConfig(gripping.drawn_by)
    return plant, _drawn_workcell(plant, scene, gripping.home, tool_length_m=GRIPPER.reach_m)


def _scene_plant(config: LabConfig, seed: int) -> tuple[Plant, Workcell]:
    plant = ScenePlant(config.scene, seed)
    q = plant.joint_positions()
    if plant.arm is not UR5E or len(q) != UR5E.dof:
        raise ConfigError(
            f"lab.scene: the emulated controller moves a UR5e; scene '{config.scene.scene}' has"
            f" '{plant.arm.name}'. A section 'lab' with 'arm: {plant.arm.name}' serves that one"
        )
    return plant, _drawn_workcell(
        plant, config.scene, tuple(q.tolist()), tool_length_m=plant.tool_length_m
    )


def _drawn_workcell(
    plant: GripPlant | ScenePlant,
    scene: ScenePlantConfig,
    home: tuple[float, ...],
    tool_length_m: float = 0.0,
) -> Workcell:
    """What cameras know of a workcell that a scene draws."""
    poses = {name: plant.true_pose(name) for name in plant.object_names}
    return Workcell(
        T_base_table=plant.T_base_table,
        tool_length_m=tool_length_m,
        home=home,
        objects=tuple((name, tuple(pose.tolist())) for name, pose in poses.items()),
        scene=scene,
    )
