"""Simulated worlds by name: a packaged scene, a scene folder, or an adapter."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from robolearn.config import load_yaml
from robolearn.contracts import Agent
from robolearn.errors import SceneError
from sim.contract import World
from sim.env.scene_env import SceneEnv
from sim.experts import build_expert, build_player
from sim.perturbations.env import PerturbedEnv, perturbed_scene
from sim.perturbations.kinds import split_world
from sim.pictured import only_top, split_pictures
from sim.scene.load import SCENES, load_scene, packaged_scenes
from sim.world_name import parse_name

# name -> module:Class of an env whose constructor takes the side of its observed picture [px].
ADAPTERS: dict[str, str] = {
    "gym_pusht": "sim.adapters.pusht.gym_pusht:GymPushTEnv",
    "pusht_pybullet": "sim.adapters.pusht.bullet:PyBulletEnv",
}
# family -> module:class method that builds a world from a parsed name ``family/thing,key=value``
# (docs/worlds.md), and the things that it has.
FAMILIES: dict[str, str] = {
    "robosuite": "sim.adapters.robosuite.env:RobosuiteEnv.named",
    "ogbench": "sim.adapters.ogbench.env:OGBenchEnv.named",
    "gymnasium": "sim.adapters.gymnasium.inward:GymnasiumEnv.named",
    "metaworld": "sim.adapters.gymnasium.inward:GymnasiumEnv.metaworld",
    "pybullet": "sim.adapters.bullet.scene:BulletSceneEnv.named",
}
THINGS: dict[str, str] = {
    "robosuite": "sim.adapters.robosuite.build:TASKS",
    "ogbench": "sim.adapters.ogbench.names:WORLDS",
}
_ADAPTED: dict[str, str] = {
    "gym_pusht": "Push-T in gym-pusht, the world of the human recordings.",
    "pusht_pybullet": "Push-T in the lab's physics (Bullet), in process.",
    "robosuite": "A task of robosuite.",
    "ogbench": "A world of OGBench.",
}


def world_names() -> list[str]:
    """Every world that has a name (those of optional packages whether they are there or not)."""
    named = [f"{family}/{thing}" for family in THINGS for thing in _resolve(THINGS[family])]
    return sorted([*packaged_scenes(), *ADAPTERS, *named])


def described_worlds() -> dict[str, str]:
    """One sentence for every world that has a name."""
    said = {
        name: str(load_yaml(SCENES / name / "scene.yaml").get("description", ""))
        for name in packaged_scenes()
    }
    return {name: said.get(name) or _ADAPTED[name.partition("/")[0]] for name in world_names()}


def is_parametrised(name: str) -> bool:
    """Whether ``name`` belongs to a family: ``robosuite/Lift,robot=Sawyer``."""
    return name.partition("/")[0] in FAMILIES and "/" in name


def make_world(name: str) -> World:
    """Build a world by name or scene folder, as it is, with pictures (``name,camera=top``,
    ``sim.pictured``) or perturbed (``name~mass=1``, ``sim.perturbations.kinds``);
    :class:`SceneError` lists what exists.
    """
    base, perturbations = split_world(name)
    if not perturbations.magnitudes:
        return _nominal(base)
    if is_scene(base):
        folder, pictures = split_pictures(base)
        return perturbed_scene(load_scene(folder), perturbations, pictures)
    perturbations.require_scene(base)
    return PerturbedEnv(_nominal(base), perturbations)


def is_scene(name: str) -> bool:
    """Whether a world's name is that of a scene package or folder, not of an adapter."""
    return not is_parametrised(name) and split_pictures(name)[0] not in ADAPTERS


def _nominal(name: str) -> World:
    if is_parametrised(name):
        parsed = parse_name(name)
        return _resolve(FAMILIES[parsed.family])(parsed)
    base, pictures = split_pictures(name)
    if base in ADAPTERS:
        return _resolve(ADAPTERS[base])(image_size=only_top(base, pictures))
    try:
        return SceneEnv(load_scene(base), cameras=pictures.cameras, size=pictures.size)
    except SceneError as error:
        if str(error).startswith("no scene"):
            others = sorted([*ADAPTERS, *(f"{family}/..." for family in FAMILIES)])
            raise SceneError(f"{error}; other worlds: {others}") from error
        raise


def build_operator(env: World, kind: Literal["scripted", "play"], noise: float) -> Agent:
    """Who acts unattended: the task's expert, the expert at play, or the world's own oracle.

    ``noise`` is clumsiness in [0, 1]. Raises :class:`ConfigError` where there is none.
    """
    from sim.adapters.ogbench.env import OGBenchEnv

    if isinstance(env, OGBenchEnv):
        from sim.adapters.ogbench.oracle import OGBenchOracle

        return OGBenchOracle(env, "play" if kind == "play" else "noisy", noise)
    build = build_player if kind == "play" else build_expert
    return build(env.task, env.spec, noise)


def _resolve(path: str) -> Any:
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found
