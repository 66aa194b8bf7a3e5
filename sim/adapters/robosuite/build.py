"""Builds robosuite 1.5 environments: quiet, without its viewers, one arm, soft resets."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from robolearn.errors import MissingDependencyError, SceneError
from sim.world_name import WorldName, choose, only

_log = logging.getLogger(__name__)

# Our name -> robosuite's class. Can and Square are the names that robomimic made known.
TASKS = {
    "Lift": "Lift",
    "Stack": "Stack",
    "Can": "PickPlaceCan",
    "Milk": "PickPlaceMilk",
    "Bread": "PickPlaceBread",
    "Cereal": "PickPlaceCereal",
    "PickPlace": "PickPlace",
    "Square": "NutAssemblySquare",
    "Round": "NutAssemblyRound",
    "NutAssembly": "NutAssembly",
    "Door": "Door",
    "Wipe": "Wipe",
    "ToolHang": "ToolHang",
}
ROBOTS = ("Panda", "Sawyer", "IIWA", "Jaco", "Kinova3", "UR5e")
CONTROLS: dict[str, Literal["OSC_POSE", "JOINT_POSITION"]] = {
    "osc": "OSC_POSE",
    "joint": "JOINT_POSITION",
}
OPTIONS = ("robot", "control", "camera", "size")
RATE_HZ = 20.0


@dataclass(frozen=True, slots=True)
class RobosuiteConfig:
    """Which world: task, robot, controller, and pictures of ``cameras`` with ``size`` [px]."""

    task: str
    robot: str = "Panda"
    control: str = "osc"
    cameras: tuple[str, ...] = ()
    size: int = 84


def robosuite_config(name: WorldName) -> RobosuiteConfig:
    """From ``robosuite/Lift,robot=Sawyer,control=joint,camera=agentview+sideview,size=84``."""
    only(name, OPTIONS)
    world, options = f"{name.family}/{name.thing}", name.options
    size = options.get("size", "84")
    if not size.isdecimal() or not 8 <= int(size) <= 1024:
        raise SceneError(f"{world}: size is 8 to 1024 pixels, got '{size}'")
    return RobosuiteConfig(
        task=choose(name.family, "task", name.thing, list(TASKS)),
        robot=choose(world, "robot", options.get("robot", "Panda"), ROBOTS),
        control=choose(world, "control", options.get("control", "osc"), list(CONTROLS)),
        cameras=tuple(options["camera"].split("+")) if "camera" in options else (),
        size=int(size),
    )


def build(config: RobosuiteConfig) -> Any:
    """The environment: 20 Hz, 2 ms physics steps, shaped reward, no time limit of its own."""
    robosuite = _import()
    from robosuite.controllers import (
        load_composite_controller_config,
        load_part_controller_config,
    )

    controllers: Any = load_composite_controller_config(controller=None, robot=config.robot)
    if config.control == "joint":
        part = load_part_controller_config(default_controller=CONTROLS[config.control])
        gripper = controllers["body_parts"]["right"].get("gripper", {"type": "GRIP"})
        controllers["body_parts"]["right"] = {**part, "gripper": gripper}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return robosuite.make(
            TASKS[config.task],
            robots=config.robot,
            controller_configs=controllers,
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            reward_shaping=True,
            control_freq=RATE_HZ,
            horizon=2**31,
            ignore_done=True,
            # A hard reset compiles the model again (160 ms).
            hard_reset=False,
            renderer="mujoco",
            # Draws what a soft reset leaves as it is, for instance the size of Lift's cube.
            seed=0,
        )


def _import() -> Any:
    # It warns about optional packages and private settings on every import.
    logger = logging.getLogger("robosuite_logs")
    if _to_debug not in logger.filters:
        logger.addFilter(_to_debug)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import robosuite
    except ImportError as error:
        if ".so" in str(error):
            # A system library that one of its dependencies needs; the package itself is there.
            raise
        raise MissingDependencyError(
            f"robosuite worlds need robosuite 1.5.2 ({error}); run:"
            " pip install -c constraints.txt 'robolearn[robosuite]'"
        ) from error
    return robosuite


def _to_debug(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.ERROR:
        return True
    _log.debug("robosuite: %s", record.getMessage())
    return False
