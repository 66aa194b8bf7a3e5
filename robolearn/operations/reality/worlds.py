"""Makes worlds by name, realities among them: ``reality/pusht,seed=3``.

A reality is made of parts of ``hardware`` and ``sim``, so it is known here and not in
:mod:`sim.worlds`, which knows all others.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware.cell.load import load_cell
from hardware.emulators.drivetrain import DrivetrainConfig
from robolearn.errors import SceneError, did_you_mean
from robolearn.operations.lab.workcell import load_lab
from robolearn.operations.reality.env import RealityEnv
from robolearn.pusht import Pose
from sim import worlds
from sim.contract import World
from sim.perturbations.env import PerturbedEnv
from sim.scene.load import load_scene
from sim.tasks.pusht import PushT
from sim.tasks.registry import build_task
from sim.world_name import WorldName, only

FAMILY = "reality"
# What is between controller and arm, hidden within 30 %, where the lab's own file says nothing.
WORN = DrivetrainConfig(
    backlash_rad=(0.0004,),
    command_delay_s=0.008,
    state_delay_s=0.004,
    position_noise_rad=0.00002,
    velocity_noise_rad_s=0.0005,
    spread=0.3,
)
_MOST_SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class Reality:
    """A cell with a virtual lab, its task, and the scene whose task has the parameters ("": none
    are needed).
    """

    cell: str
    task: str
    scene: str
    words: str


REALITIES = {
    "pusht": Reality(
        "configs/hardware/lab_ur5e.yaml", "pusht", "", "Push-T on the lab's UR5e, in process"
    ),
    "pick_place": Reality(
        "configs/hardware/lab_ur5e_pick_place.yaml",
        "pick_place",
        "pick_place_ur5e",
        "A cube put onto a square by the lab's UR5e and its gripper, in process",
    ),
    "pusht_camera": Reality(
        "configs/hardware/lab_ur5e_camera.yaml",
        "pusht",
        "",
        "Push-T on the lab's UR5e, seen by its camera alone, in process",
    ),
    "pick_place_camera": Reality(
        "configs/hardware/lab_ur5e_pick_place_camera.yaml",
        "pick_place",
        "pick_place_ur5e",
        "A cube put onto a square by the lab's UR5e, with two cameras, in process",
    ),
}
_NAMES = tuple(f"{FAMILY}/{name}" for name in REALITIES)


def is_reality(name: WorldName) -> bool:
    """Whether a name is one of this family."""
    return name.family == FAMILY


def world_names() -> list[str]:
    """Every world that has a name."""
    return sorted([*worlds.world_names(), *_NAMES])


def described_worlds() -> dict[str, str]:
    """One sentence for every world that has a name."""
    own = {f"{FAMILY}/{name}": f"{found.words}." for name, found in REALITIES.items()}
    return {**worlds.described_worlds(), **own}


def is_scene(name: WorldName) -> bool:
    """Whether a name is that of a scene package or folder."""
    return not is_reality(name) and worlds.is_scene(name)


def said_goal(world: str) -> Pose | None:
    """Where a Push-T world itself says that the T should be; None where it says nothing."""
    name = WorldName.parse(world)
    return name.goal() if is_reality(name) else worlds.said_goal(world)


def make_world(name: str) -> World:
    """Build a world by name or scene folder; :class:`SceneError` lists what exists."""
    parsed = WorldName.parse(name)
    if not is_reality(parsed):
        return worlds.make_world(name)
    perturbations = parsed.perturbations
    if not perturbations.magnitudes:
        return _reality(parsed)
    perturbations.require_scene(parsed.base)
    return PerturbedEnv(_reality(parsed), perturbations)


def _reality(name: WorldName) -> RealityEnv:
    if name.thing not in REALITIES:
        raise SceneError(
            f"no world '{name.base}'.{did_you_mean(name.base, _NAMES)} Realities: {list(_NAMES)}"
        )
    only(name, ("seed", "cell", "goal"))
    seed = name.options.get("seed", "0")
    if not (seed.isdecimal() and int(seed) < _MOST_SEEDS):
        raise SceneError(f"'{name}': expected seed=N, a whole number below 2^31, got '{seed}'")
    found = REALITIES[name.thing]
    file = Path(name.options.get("cell", found.cell))
    cell, lab = load_cell(file), load_lab(file)
    params = _params(found, cell.task_params, name)
    return RealityEnv(
        cell,
        lab,
        build_task(found.task, params, where=str(file)),
        drivetrain=WORN if lab.drivetrain.ideal else lab.drivetrain,
        params=params,
        engine=f"reality in process, pybullet {importlib.metadata.version('pybullet')}",
        seed=int(seed),
    )


def _params(found: Reality, told: Mapping[str, Any], name: WorldName) -> dict[str, Any]:
    goal = name.goal()
    if goal is not None and found.task != PushT.name:
        raise SceneError(f"'{name}': only Push-T has a goal=X:Y:YAW")
    params = dict(told) or (dict(load_scene(found.scene).config.task.params) if found.scene else {})
    return params if goal is None else {**params, "goal": list(goal)}
