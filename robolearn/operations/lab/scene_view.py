"""Draws a lab's workcell by a scene package: its arm, its fingers, its objects."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sim.plants.fingers import SceneFingers
from sim.plants.scene import ScenePlant, ScenePlantConfig
from sim.scene.load import load_scene

if TYPE_CHECKING:
    from sim.plants.plant_view import PlantView


def scene_view(config: ScenePlantConfig) -> PlantView:
    """Draws states of a scene, in this process; nothing of its physics is hidden."""
    from sim.plants.plant_view import PlantView

    plant = ScenePlant(dataclasses.replace(config, spread=0.0))
    fingers = SceneFingers(plant) if has_gripper(config.scene) else None
    return PlantView(plant, None if fingers is None else fingers.put)


def has_gripper(scene: str) -> bool:
    """Whether the first arm of a scene has a gripper."""
    arms = load_scene(scene).config.control.get("arms") or ({},)
    return bool(arms[0].get("gripper"))
