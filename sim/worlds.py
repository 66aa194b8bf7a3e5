"""Simulated worlds by name: a packaged scene, a scene folder, or an adapter."""

from __future__ import annotations

import importlib
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.contracts import Env
from robolearn.errors import SceneError
from robolearn.types import Condition
from sim.scene import load_scene, packaged_scenes
from sim.scene_env import SceneEnv

# name -> module:Class of an env without constructor arguments.
ADAPTERS: dict[str, str] = {
    "gym_pusht": "sim.adapters.pusht:GymPushTEnv",
    "pusht_pybullet": "sim.adapters.pybullet:PyBulletEnv",
}


@runtime_checkable
class World(Env, Protocol):
    """A simulated env: it can be drawn, hashed, and asked for starts."""

    @property
    def engine(self) -> str:
        """Name and version of the physics engine."""
        ...

    @property
    def scene_hash(self) -> str:
        """Hex digest of everything that describes the world."""
        ...

    @property
    def task(self) -> str:
        """Name of the task."""
        ...

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        ...

    def sample_condition(self, seed: int) -> Condition:
        """A start from the reset distribution; a pure function of ``seed``."""
        ...

    def render(self, width: int, height: int) -> NDArray[np.uint8]:
        """Picture from above ``[height, width, 3]``."""
        ...


def world_names() -> list[str]:
    """Every world that has a name."""
    return sorted([*packaged_scenes(), *ADAPTERS])


def make_world(name: str) -> World:
    """Build a world by name or scene folder; :class:`SceneError` lists what exists."""
    if name in ADAPTERS:
        module, _, kind = ADAPTERS[name].partition(":")
        return getattr(importlib.import_module(module), kind)()
    try:
        return SceneEnv(load_scene(name))
    except SceneError as error:
        if str(error).startswith("no scene"):
            raise SceneError(f"{error}; other worlds: {sorted(ADAPTERS)}") from error
        raise
