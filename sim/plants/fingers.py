"""Moves the gripper of a scene's arm in the lab.

It satisfies ``hardware.emulators.plant.FingerPlant`` by shape.
"""

from __future__ import annotations

import mujoco
import numpy as np

from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from sim.control.arms import ArmsConfig, GripperConfig
from sim.plants.scene import ScenePlant
from sim.scene.config import SceneConfig, require_name, world_pose


def gripper_of(config: SceneConfig) -> GripperConfig | None:
    """The gripper of a scene's first arm; None: it has none."""
    if config.control.get("kind") != "arms":
        return None
    return from_dict(ArmsConfig, config.control, where=f"scene '{config.name}'").arms[0].gripper


class SceneFingers:
    """Opens and closes what the scene's control calls the gripper of the lab's arm.

    Raises :class:`ConfigError` for a scene whose arm has none. The fingers are open at the start.
    """

    def __init__(self, plant: ScenePlant) -> None:
        config, self._plant = plant.scene.config, plant
        where, gripper = f"scene '{config.name}'", gripper_of(config)
        if gripper is None:
            raise ConfigError(
                f"lab.devices.gripper: the arm of {where} has no gripper; leave it out, or take a"
                " scene with one (ur5e_table)"
            )
        model, data = plant.model, plant.data
        joints = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, n, where) for n in gripper.joints]
        self._actuator = require_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, gripper.actuator, where)
        self._qpos = np.array([model.jnt_qposadr[j] for j in joints])
        self._low, self._high = (float(v) for v in model.jnt_range[joints[0]])
        self._ratio = gripper.ratio
        self._force = float(model.actuator_forcerange[self._actuator, 1])
        frames = config.frames
        self._table_m = float(world_pose(model, frames[next(iter(frames))])[2, 3])
        data.qpos[self._qpos] = self._high
        self.set_target(self.stroke_m, 1.0)
        mujoco.mj_forward(model, data)

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        return self._ratio * (self._high - self._low)

    def width(self) -> float:
        """Distance of the fingers [m]."""
        return self._ratio * (float(self._plant.data.qpos[self._qpos].mean()) - self._low)

    def set_target(self, width_m: float, force_share: float) -> None:
        """Where the servo pulls [m], with at most this share of its force."""
        force, model = force_share * self._force, self._plant.model
        self._plant.data.ctrl[self._actuator] = self._low + width_m / self._ratio
        model.actuator_forcerange[self._actuator] = (-force, force)

    def put(self, width_m: float) -> None:
        """Where the fingers are [m] from now on, at rest; for drawing."""
        self._plant.data.qpos[self._qpos] = self._low + width_m / self._ratio

    def object_height(self, name: str) -> float:
        """Height of an object's centre over the table [m]."""
        if name not in self._plant.object_names:
            raise DataError(f"no object '{name}'; there are: {list(self._plant.object_names)}")
        return float(self._plant.data.body(name).xpos[2]) - self._table_m
