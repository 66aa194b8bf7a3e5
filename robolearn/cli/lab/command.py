"""``robolearn lab``: the virtual workcell (emulated robot and tracker; PyBullet or MuJoCo).

The only place that joins ``hardware.emulators`` with the plants of ``sim``.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import multiprocessing
import os
import secrets
import selectors
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardware.emulators.drivetrain import DrivetrainConfig, behind
from hardware.emulators.lab.workcell import DevicesConfig, Rendered, VirtualLab
from hardware.emulators.plant import FingerPlant, KinematicPlant, Plant
from robolearn.arms.models import UR5E
from robolearn.cli.lab.arm import World, is_arm_lab, make_arm_lab, serve_arm
from robolearn.cli.lab.cameras import CameraProcess, LabCameraConfig, Workcell, start_cameras
from robolearn.cli.shared.parse import parse, say
from robolearn.config import from_dict, load_yaml
from robolearn.errors import ConfigError, RobolearnError, did_you_mean
from robolearn.geometry import pose, rot_z
from sim.plants.fingers import SceneFingers
from sim.plants.grip import GripPlant, GripPlantConfig
from sim.plants.pusht import BLOCK, PlantConfig, PyBulletPlant
from sim.plants.scene import ScenePlant, ScenePlantConfig

if TYPE_CHECKING:
    from sim.plants.plant_view import PlantView

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "ROBOLEARN_LAB_TOKEN"  # noqa: S105  (the name of a variable)
SECTIONS = ("lab", "robot")
# Below the supervisor's: a late world is better than a late supervisor.
FIFO_PRIORITY = 30


@dataclass(frozen=True)
class LabArgs:
    """Arguments of the command."""

    # YAML file; its key 'lab' describes the workcell.
    config: Path
    # Loopback address to serve on; every lab needs one of its own (127.0.0.2, ...).
    address: str = "127.0.0.1"
    # Physics instead of the file's: pybullet (its section 'physics'), mujoco ('scene'), or
    # kinematic (joints follow exactly).
    world: World | None = None
    # Seed of the hidden physics and of sensor noise.
    seed: int = 0
    # Exit when standard input closes (for programs that start a lab).
    follow_stdin: bool = False


@dataclass(frozen=True, slots=True)
class LabConfig:
    """The section ``lab`` of a hardware config.

    ``world``: ``pybullet`` (``physics``, or ``gripping``: a gripper and a cube), ``mujoco``
    (``scene``), or ``kinematic`` (joints follow exactly, the block never moves) for tests of a
    protocol alone. ``drivetrain``: what hides between controller and arm. ``real_time``: take
    real-time priority where it is permitted, as the controller that this stands for has its
    computer to itself. ``cameras`` see the table.
    """

    world: World = "pybullet"
    real_time: bool = True
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    drivetrain: DrivetrainConfig = field(default_factory=DrivetrainConfig)
    physics: PlantConfig = field(default_factory=PlantConfig)
    gripping: GripPlantConfig | None = None
    scene: ScenePlantConfig = field(default_factory=ScenePlantConfig)
    cameras: tuple[LabCameraConfig, ...] = ()


def load_lab(path: Path, world: World | None = None) -> LabConfig:
    """The section ``lab`` of a hardware config; the others belong to other commands.

    ``world`` takes the place of the file's.
    """
    raw = load_yaml(path)
    for key in raw:
        if key not in SECTIONS:
            raise ConfigError(
                f"{path}: unknown section '{key}'.{did_you_mean(str(key), SECTIONS)}"
                f" Sections: {list(SECTIONS)}"
            )
    if not isinstance(raw.get("lab"), dict):
        raise ConfigError(f"{path} has no section 'lab' that describes a virtual workcell")
    config = from_dict(LabConfig, raw["lab"], where=f"{path}, lab")
    return config if world is None else dataclasses.replace(config, world=world)


def main(argv: list[str]) -> int:
    """Run the command."""
    args = parse(LabArgs, argv, "lab", "Run the virtual lab until SIGTERM or Ctrl-C.")
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _frame: stop.append(n))
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_hex(16)
    if is_arm_lab(load_yaml(args.config)):
        return _serve_arm(args, token, stop)
    config = load_lab(args.config, args.world)
    plant, workcell = _plant(config, args.seed)
    fingers = _fingers(config, plant)
    view: _View | None = None
    cameras: list[CameraProcess] = []
    lab: VirtualLab | None = None
    try:
        drawn = config.world == "mujoco" or (config.world == "pybullet" and not config.gripping)
        view = _View(config) if drawn else None
        cameras = start_cameras(config.cameras, workcell, args.address, args.seed)
        lab = VirtualLab(
            plant,
            config.devices,
            address=args.address,
            token=token,
            seed=args.seed,
            render=view.render if view else None,
            cameras=cameras,
            fingers=fingers,
            arm=behind(plant, config.drivetrain, args.seed),
        )
        if view:
            view.attach(lab.loop.selector)
        if args.follow_stdin:
            _follow_stdin(lab.loop.selector, stop)
        if config.real_time:
            _take_real_time_priority()
        _announce(args.address, config, lab, token, {c.name: c.port for c in cameras})
        # What exists now lives as long as the process: keep the collector away from it.
        gc.freeze()
        lab.run(lambda: bool(stop))
    finally:
        if view:
            view.close()
        for camera in cameras:
            camera.close()
        if lab:
            lab.close()
        plant.close()
    return 0


def _serve_arm(args: LabArgs, token: str, stop: list[int]) -> int:
    raw = load_yaml(args.config)
    lab, config = make_arm_lab(
        raw, args.config, world=args.world, address=args.address, token=token, seed=args.seed
    )
    try:
        if args.follow_stdin:
            _follow_stdin(lab.loop.selector, stop)
        if config.real_time:
            _take_real_time_priority()
        serve_arm(lab, config, args.address, token, stop)
    finally:
        lab.close()
    return 0


def _plant(config: LabConfig, seed: int) -> tuple[Plant, Workcell]:
    """The physics, and what cameras need to know of it."""
    if config.world == "mujoco":
        return _scene_plant(config, seed)
    if config.world == "pybullet" and config.gripping is not None:
        return _grip_plant(config, config.gripping, seed)
    physics = config.physics
    workcell = Workcell(
        T_base_table=pose(rot_z(physics.heading_rad), physics.origin_m),
        tool_length_m=physics.tool_length_m,
        home=physics.home,
        block_pose=physics.block_pose,
    )
    if config.world == "kinematic":
        plant = KinematicPlant(np.array(physics.home), {BLOCK: np.array(physics.block_pose)})
        return plant, workcell
    return PyBulletPlant(physics, seed), workcell


def _fingers(config: LabConfig, plant: Plant) -> FingerPlant | None:
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


def _grip_plant(config: LabConfig, gripping: GripPlantConfig, seed: int) -> tuple[Plant, Workcell]:
    if config.cameras:
        raise ConfigError(
            "lab.cameras: nothing draws the PyBullet workcell with a gripper; leave them out, or"
            " take 'world: mujoco'"
        )
    plant = GripPlant(gripping, seed)
    return plant, Workcell(
        T_base_table=plant.T_base_table,
        tool_length_m=0.0,
        home=gripping.home,
        block_pose=gripping.cube_pose,
    )


def _scene_plant(config: LabConfig, seed: int) -> tuple[Plant, Workcell]:
    plant = ScenePlant(config.scene, seed)
    q = plant.joint_positions()
    if plant.arm is not UR5E or len(q) != UR5E.dof:
        raise ConfigError(
            f"lab.scene: the emulated controller moves a UR5e; scene '{config.scene.scene}' has"
            f" '{plant.arm.name}'. A section 'lab' with 'arm: {plant.arm.name}' serves that one"
        )
    block = plant.true_pose(BLOCK) if BLOCK in plant.object_names else np.zeros(3)
    if config.cameras and BLOCK not in plant.object_names:
        raise ConfigError(
            f"lab.cameras: they look for a '{BLOCK}', which scene '{config.scene.scene}' does not"
            f" have (objects: {list(plant.object_names)}); leave them out"
        )
    return plant, Workcell(
        T_base_table=plant.T_base_table,
        tool_length_m=plant.tool_length_m,
        home=tuple(q.tolist()),
        block_pose=tuple(block.tolist()),
    )


def _take_real_time_priority() -> None:
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(FIFO_PRIORITY))
    except OSError as error:
        log.warning("no real-time priority (%s): the lab is late when the machine is busy", error)


def _announce(
    address: str, config: LabConfig, lab: VirtualLab, token: str, cameras: Mapping[str, int]
) -> None:
    tracker_port = config.devices.tracker.port
    say(f"robot: {address}, RTDE 30004, dashboard 29999, scripts 30003")
    if config.devices.gripper is not None:
        say(f"gripper: {address}:{config.devices.gripper.port}")
    say(f"tracker: UDP to {address}:{tracker_port}; admin: {address}:{lab.admin_port}")
    for name, port in cameras.items():
        say(f"camera {name}: http://{address}:{port}/{name}")
    where = {
        "address": address,
        "admin_port": lab.admin_port,
        "tracker_port": tracker_port,
        "token": token,
        "cameras": dict(cameras),
        "world": config.world,
    }
    say(f"ready {json.dumps(where)}")


def _follow_stdin(selector: selectors.BaseSelector, stop: list[int]) -> None:
    def ready(_mask: int) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            stop.append(0)

    selector.register(sys.stdin.fileno(), selectors.EVENT_READ, ready)


class _View:
    """Draws in a process of its own, started before the lab serves: a picture (and the start of a
    process) takes many control periods, and the arm must not freeze meanwhile.
    """

    def __init__(self, config: LabConfig) -> None:
        self._waiting: list[Rendered] = []
        self._selector: selectors.BaseSelector | None = None
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        self._pipe: Connection[Any, Any] | None = pipe
        self._process = context.Process(target=_draw, args=(config, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Deliver pictures from this selector's loop."""
        self._selector = selector
        if self._pipe is not None:
            selector.register(self._pipe.fileno(), selectors.EVENT_READ, self._arrived)

    def render(
        self,
        view: str,
        width: int,
        height: int,
        q: NDArray[np.float64],
        poses: Mapping[str, NDArray[np.float64]],
        done: Callable[[NDArray[np.uint8] | str], None],
    ) -> None:
        """Ask for a picture; ``done`` is called from the loop."""
        if self._pipe is None or len(self._waiting) >= 16:
            done("too many are waiting" if self._pipe else "the drawing process ended")
            return
        self._waiting.append(done)
        self._pipe.send((view, width, height, q, dict(poses)))

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._process.terminate()
        self._process.join()

    def _arrived(self, _mask: int) -> None:
        if self._pipe is None or self._selector is None:
            return
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._selector.unregister(self._pipe.fileno())
            self._pipe, waiting, self._waiting = None, self._waiting, []
            for done in waiting:
                done("the drawing process ended")
            return
        self._waiting.pop(0)(answer)


def lab_view(config: LabConfig) -> PlantView:
    """Draws states of a lab's world, in this process."""
    from sim.plants.plant_view import PlantView

    if config.world == "mujoco":
        return PlantView(ScenePlant(dataclasses.replace(config.scene, spread=0.0)))
    return PlantView(PyBulletPlant(dataclasses.replace(config.physics, spread=0.0)))


def _draw(config: LabConfig, pipe: Connection[Any, Any]) -> None:
    """The drawing process: one picture per request until the pipe closes."""
    from robolearn.machine.process import exit_with_parent

    exit_with_parent()
    view = lab_view(config)
    while True:
        try:
            view_name, *state = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(view.draw(view_name, *state))
        except RobolearnError as error:
            pipe.send(str(error))
