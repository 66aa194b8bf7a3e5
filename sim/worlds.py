"""Builds simulated worlds by name: a packaged scene, a scene folder, or an adapter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Literal

from robolearn.config import config_hash, load_yaml
from robolearn.contracts import Agent
from robolearn.errors import SceneError
from robolearn.pusht import Pose, goal_pose
from robolearn.table import CALLABLE, Table
from sim.contract import World
from sim.env.scene_env import SceneEnv
from sim.experts.registry import build_expert, build_player
from sim.perturbations.env import PerturbedEnv, perturbed_scene
from sim.scene.config import Scene
from sim.scene.load import PLUGIN_SCENES, load_scene, packaged_scenes, scene_folder, scene_names
from sim.tasks.pusht import PushT
from sim.world_name import WorldName

# family -> what builds a world from its parsed name: an engine (``gym_pusht``) or a family of
# things (``robosuite/Lift,robot=Sawyer``, docs/worlds.md).
WORLDS = Table[Callable[[WorldName], World]](
    {
        "gym_pusht": "sim.adapters.pusht.gym_pusht:GymPushTEnv.named",
        "pusht_pybullet": "sim.adapters.pusht.bullet:PyBulletEnv.named",
        "robosuite": "sim.adapters.robosuite.env:RobosuiteEnv.named",
        "ogbench": "sim.adapters.ogbench.env:OGBenchEnv.named",
        "gymnasium": "sim.adapters.gymnasium.inward:GymnasiumEnv.named",
        "metaworld": "sim.adapters.gymnasium.inward:GymnasiumEnv.metaworld",
        "pybullet": "sim.adapters.bullet.scene:BulletSceneEnv.named",
    },
    what="world",
    group="robolearn.worlds",
    wanted=CALLABLE,
    taken=packaged_scenes,
)
# Families whose things are known by name.
THINGS = Table[Collection[str]](
    {
        "robosuite": "sim.adapters.robosuite.build:TASKS",
        "ogbench": "robolearn.ogbench:WORLDS",
    },
    what="family of worlds",
    group="robolearn.world_things",
)
# Families that have more things than can be listed.
OPEN_FAMILIES = ("gymnasium", "metaworld", "pybullet")
_ADAPTED: dict[str, str] = {
    "gym_pusht": "Push-T in gym-pusht, the world of the human recordings.",
    "pusht_pybullet": "Push-T in the lab's physics (Bullet), in process.",
    "robosuite": "A task of robosuite.",
    "ogbench": "A world of OGBench.",
}


def world_names() -> list[str]:
    """Every world that has a name (those of optional packages whether they are there or not)."""
    named = [f"{family}/{thing}" for family in THINGS for thing in THINGS.find(family)]
    engines = [name for name in WORLDS if name not in THINGS and name not in OPEN_FAMILIES]
    return sorted([*scene_names(), *engines, *named])


def described_worlds() -> dict[str, str]:
    """One sentence for every world that has a name."""
    texts = {
        name: str(load_yaml(scene_folder(name) / "scene.yaml").get("description", ""))
        for name in scene_names()
    }
    return {name: texts.get(name) or _described(name.partition("/")[0]) for name in world_names()}


def _described(family: str) -> str:
    if family in _ADAPTED:
        return _ADAPTED[family]
    entry = WORLDS.entries().get(family) or PLUGIN_SCENES.entries()[family]
    return f"A world of the package {entry.owner}."


def is_scene(name: WorldName) -> bool:
    """Whether a name is that of a scene package or folder, not of an adapter."""
    return name.family not in WORLDS


def make_world(name: str) -> World:
    """Build a world by name or scene folder (``sim.world_name``), perturbed if it says so;
    :class:`SceneError` lists what exists.
    """
    parsed = WorldName.parse(name)
    perturbations = parsed.perturbations
    if not perturbations.magnitudes:
        return _nominal(parsed)
    if is_scene(parsed):
        return perturbed_scene(_scene(parsed), perturbations, parsed.pictures())
    perturbations.require_scene(parsed.base)
    return PerturbedEnv(_nominal(parsed), perturbations)


def _nominal(name: WorldName) -> World:
    if not is_scene(name):
        name.require_options()
        return WORLDS.find(name.family)(name)
    pictures = name.pictures()
    try:
        return SceneEnv(_scene(name), cameras=pictures.cameras, size=pictures.size)
    except SceneError as error:
        if str(error).startswith("no scene"):
            others = sorted(f"{n}/..." if n in (*THINGS, *OPEN_FAMILIES) else n for n in WORLDS)
            raise SceneError(f"{error}; other worlds: {others}") from error
        raise


def _scene(name: WorldName) -> Scene:
    """A scene, with Push-T's goal where the name says."""
    scene, goal = load_scene(name.base), name.goal()
    if goal is None:
        return scene
    task = scene.config.task
    if task.name != PushT.name:
        raise SceneError(f"'{name}': only Push-T has a goal=X:Y:YAW, this task is '{task.name}'")
    task = dataclasses.replace(task, params={**task.params, "goal": list(goal)})
    config = dataclasses.replace(scene.config, task=task)
    digest = config_hash(scene.content_hash, list(goal))
    return dataclasses.replace(scene, config=config, content_hash=digest)


def said_goal(world: str) -> Pose | None:
    """Where a Push-T world itself says that the T should be; None where it says nothing."""
    name = WorldName.parse(world)
    goal = name.goal()
    if goal is not None or not is_scene(name):
        return goal
    params = load_scene(name.base).config.task.params
    return goal_pose(params["goal"], f"{name.base}: task.params.goal") if "goal" in params else None


def build_operator(env: World, kind: Literal["scripted", "play"], noise: float) -> Agent:
    """Who acts unattended: the task's expert, the expert at play, or the world's own oracle.

    ``noise`` is clumsiness in [0, 1]. Raises :class:`ConfigError` where there is none.
    """
    from sim.adapters.ogbench.env import OGBenchEnv

    if isinstance(env, OGBenchEnv):
        from sim.adapters.ogbench.oracle import OGBenchOracle

        return OGBenchOracle(env, "play" if kind == "play" else "noisy", noise)
    if kind == "play":
        return build_player(env.task, env.spec, noise)
    return build_expert(env.task, env.spec, noise, env.task_params)
