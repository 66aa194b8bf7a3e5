"""Serves the virtual lab of a bare arm: a servo bus on a pseudo-terminal, or an xArm controller.

Built by ``serve.py`` when the section ``lab`` names an ``arm``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hardware.cell.load import load_sections
from hardware.drivers.serial_bus.calibration import load_calibration
from hardware.emulators.drivetrain import DrivetrainConfig, behind_servos
from hardware.emulators.lab.arm import ArmController, ArmLab, BusController
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.plant import KinematicPlant, ServoPlant
from hardware.emulators.servos.dynamixel import DynamixelDialect
from hardware.emulators.servos.feetech import FeetechDialect
from hardware.emulators.servos.servos import ServoBus, ServoConfig
from hardware.emulators.tracker import TrackerEmulator, TrackerEmulatorConfig
from hardware.emulators.xarm.controller import XArmController, XArmEmulatorConfig
from hardware.emulators.xarm.gripper import XArmGripperEmulator, XArmGripperEmulatorConfig
from robolearn.config import find_config, from_dict
from robolearn.errors import ConfigError
from robolearn.operations.lab.options import World
from robolearn.seeding import child_seed
from sim.plants.chain import ChainPlant, ChainPlantConfig
from sim.plants.fingers import SceneFingers
from sim.plants.scene import ScenePlant, ScenePlantConfig

DIALECTS = {"feetech": FeetechDialect, "dynamixel": DynamixelDialect}


@dataclass(frozen=True, slots=True)
class ArmDevicesConfig:
    """The emulated controller."""

    # What clients find: a bus of servos, or a UFACTORY controller.
    kind: Literal["feetech", "dynamixel", "xarm"]
    # Servos of a bus: the driver's calibration file, relative to this config's folder.
    calibration: Path | None = None
    # Name of a bus's serial port, relative to the working folder.
    link: Path = Path("runs/lab/bus")
    # Speed of a bus.
    baud: int = 1_000_000
    # Reports per second of an xArm controller [Hz].
    report_hz: float = 100.0
    # Control periods per second [Hz].
    rate_hz: float = 250.0
    # Port of the side door; 0 takes any free one.
    admin_port: int = 0
    # A motion capture of the objects; null: none.
    tracker: TrackerEmulatorConfig | None = None
    # UFACTORY's gripper on an xArm; in a scene it moves the fingers.
    gripper: XArmGripperEmulatorConfig | None = None


@dataclass(frozen=True, slots=True)
class ArmLabConfig:
    """The section ``lab`` of a bare arm.

    ``world``: ``pybullet`` (``physics``), ``mujoco`` (``scene``), or ``kinematic`` (joints follow
    exactly).
    """

    arm: str
    devices: ArmDevicesConfig
    physics: ChainPlantConfig
    scene: ScenePlantConfig | None = None
    drivetrain: DrivetrainConfig = field(default_factory=DrivetrainConfig)
    world: World = "pybullet"
    real_time: bool = True


def is_arm_lab(raw: dict[str, Any]) -> bool:
    """True when a config's section ``lab`` describes a bare arm."""
    section = raw.get("lab")
    return isinstance(section, dict) and "arm" in section


def arm_lab_config(raw: dict[str, Any], path: Path) -> ArmLabConfig:
    """The section ``lab`` of a bare arm's file."""
    return from_dict(ArmLabConfig, raw["lab"], where=f"{path}, lab")


def make_arm_lab(
    path: Path, *, world: World | None, address: str, token: str, seed: int
) -> tuple[ArmLab, ArmLabConfig]:
    """The lab of a config file's section, ready to run."""
    config = arm_lab_config(load_sections(path), path)
    if world is not None:
        config = dataclasses.replace(config, world=world)
    plant = _plant(config, seed)
    devices = config.devices
    try:
        seen = behind_servos(plant, config.drivetrain, seed)
        folder = find_config(path).parent
        make = _controller(devices, folder, seen, address, _gripper(devices, plant))
        lab = ArmLab(
            plant,
            make,
            address=address,
            token=token,
            rate_hz=devices.rate_hz,
            admin_port=devices.admin_port,
            tracker=_tracker(devices, plant, address, seed),
            arm=seen,
        )
    except BaseException:
        plant.close()
        raise
    return lab, config


def _plant(config: ArmLabConfig, seed: int) -> ServoPlant:
    if config.world == "kinematic":
        return KinematicPlant(np.array(config.physics.home))
    if config.world == "pybullet":
        return ChainPlant(config.arm, config.physics, seed)
    if config.scene is None:
        raise ConfigError(
            f"world mujoco: the section 'lab' of {config.arm} has no 'scene' that names a scene"
            " with this arm (scene: {scene: so101_table} and so on)"
        )
    plant = ScenePlant(config.scene, seed)
    if plant.arm.name != config.arm:
        raise ConfigError(
            f"lab.scene: '{config.scene.scene}' has the arm '{plant.arm.name}', expected"
            f" '{config.arm}'"
        )
    return plant


def _tracker(
    devices: ArmDevicesConfig, plant: ServoPlant, address: str, seed: int
) -> TrackerEmulator | None:
    if devices.tracker is None:
        return None
    if not plant.object_names:
        raise ConfigError("lab.devices.tracker: nothing to track here; leave it out")
    rng = np.random.default_rng(child_seed(seed, "tracker"))
    return TrackerEmulator(plant, address, devices.tracker, rng)


def _gripper(devices: ArmDevicesConfig, plant: ServoPlant) -> XArmGripperEmulator | None:
    if devices.gripper is None:
        return None
    if devices.kind != "xarm":
        raise ConfigError(
            f"lab.devices.gripper: the gripper of a {devices.kind} bus is one of its servos; leave"
            " it out, and name the servo in robot.driver.gripper"
        )
    fingers = SceneFingers(plant) if isinstance(plant, ScenePlant) else None
    return XArmGripperEmulator(devices.gripper, fingers)


def _controller(
    devices: ArmDevicesConfig,
    folder: Path,
    plant: ServoPlant,
    address: str,
    gripper: XArmGripperEmulator | None,
) -> Callable[[EmulatorLoop], ArmController]:
    if devices.kind == "xarm":
        emulator = XArmEmulatorConfig(rate_hz=devices.rate_hz, report_hz=devices.report_hz)
        return lambda loop: XArmController(loop, plant, emulator, address, gripper)
    if devices.calibration is None:
        raise ConfigError("lab.devices: a bus of servos needs 'calibration', the driver's file")
    dialect = DIALECTS[devices.kind]
    calibration = load_calibration(folder / devices.calibration)
    joints = len(plant.joint_positions())
    if len(calibration.servos) != joints:
        raise ConfigError(
            f"{devices.calibration} has {len(calibration.servos)} servos, the arm {joints} joints"
        )
    servos = [
        ServoConfig(s.id, i, s.direction, s.zero, s.homing_offset, s.low, s.high)
        for i, s in enumerate(calibration.servos)
    ]

    def make(loop: EmulatorLoop) -> ArmController:
        bus = ServoBus(plant, dialect(), servos, powered=True)
        return BusController(loop, bus, baud=devices.baud, link=devices.link)

    return make
