"""Draws a lab's workcell by a scene package: its arm, its fingers, its objects."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sim.plants.fingers import SceneFingers, gripper_of
from sim.plants.scene import ScenePlant, ScenePlantConfig

if TYPE_CHECKING:
    from sim.plants.plant_view import PlantView


def scene_view(config: ScenePlantConfig) -> PlantView:
    """Draws states of a scene, in this process; nothing of its physics is hidden."""
    from sim.plants.plant_view import PlantView

    plant = ScenePlant(dataclasses.replace(config, spread=0.0))
    gripper = gripper_of(plant.scene.config)
    return PlantView(plant, None if gripper is None else SceneFingers(plant).put)
