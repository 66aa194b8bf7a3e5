"""Fixes a camera to a scene's flange, or beside its table, where the scene itself has none."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from robolearn.errors import ConfigError
from robolearn.geometry import Pose, pose, quat_from_rotation, rotation_from_quat
from sim.plants.mount import ArmMount, flange_in_last_link
from sim.scene.config import Scene, world_pose

# From vision's axes of a camera (it looks along +z) to MuJoCo's.
_FLIP = np.diag([1.0, -1.0, -1.0])


@dataclass(frozen=True, slots=True)
class Bracket:
    """Where a camera sits, and how wide it sees; it weighs nothing."""

    # The camera on the flange, or in the table's frame [m].
    position_m: tuple[float, float, float] = (0.1, 0.0, 0.0)
    # Its orientation there, w x y z (unit length): it looks along its +z, x to the right, y down.
    quaternion: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    # Vertical field of view [deg].
    fovy_deg: float = 45.0
    # What carries it: the flange, or a stand beside the table.
    where: Literal["flange", "table"] = "flange"

    def __post_init__(self) -> None:
        if not np.isfinite(self.position_m).all():
            raise ConfigError(f"a bracket's position is finite, got {self.position_m}")
        if abs(float(np.linalg.norm(self.quaternion)) - 1.0) > 1e-3:
            raise ConfigError(
                f"a bracket's quaternion (w x y z) has unit length, got {self.quaternion}"
            )
        if not 1.0 <= self.fovy_deg <= 150.0:
            raise ConfigError(f"fovy_deg in [1, 150] is needed, got {self.fovy_deg}")

    @property
    def T_where_camera(self) -> Pose:  # noqa: N802  (a transform)
        """The camera's pose ``[4, 4]`` on the flange, or in the table's frame."""
        q = np.array(self.quaternion)
        return pose(rotation_from_quat(q / np.linalg.norm(q)), self.position_m)


def with_bracket(
    scene: Scene, model: mujoco.MjModel, mount: ArmMount, name: str, bracket: Bracket
) -> Scene:
    """The scene with the camera ``name`` there; ``model`` is its own, compiled."""
    taken = [model.camera(i).name for i in range(model.ncam)]
    if name in taken:
        raise ConfigError(
            f"scene '{scene.name}' has a camera '{name}' already; call the one on a bracket"
            f" something else than {taken}"
        )
    last = mount.joints[mount.arm.dof - 1]
    if bracket.where == "flange":
        about = flange_in_last_link(model, mount)
    else:
        frames = scene.config.frames
        about = world_pose(model, frames[next(iter(frames))])
    T = about @ bracket.T_where_camera
    quat = quat_from_rotation(T[:3, :3] @ _FLIP).tolist()

    def edit(spec: mujoco.MjSpec) -> None:
        link = spec.joint(last).parent if bracket.where == "flange" else spec.worldbody
        link.add_camera(name=name, pos=T[:3, 3].tolist(), quat=quat, fovy=bracket.fovy_deg)

    return dataclasses.replace(scene, edits=(*scene.edits, edit))
