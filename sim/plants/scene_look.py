"""Draws what one camera of a scene sees, from joint angles, poses and the fingers' opening."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import mujoco
import numpy as np

from robolearn.arms.shapes import Joints
from robolearn.geometry import ObjectPose, Pose, inverse, quat_from_rotation
from sim.plants.bracket import Bracket
from sim.plants.fingers import SceneFingers, gripper_of
from sim.plants.look import Hidden, Look, TrueCamera
from sim.plants.person import Carrying
from sim.plants.printed import BOARD, PrintedBoard
from sim.plants.scene import ScenePlant, ScenePlantConfig
from sim.rendering.cameras import apply_intrinsics, camera_pose, intrinsics, set_camera_pose
from sim.rendering.renderer import Quality, Renderer, View, camera_id, update_poses

# Geoms that are round along their axis, too.
_ROUND = [
    mujoco.mjtGeom.mjGEOM_SPHERE.value,
    mujoco.mjtGeom.mjGEOM_CAPSULE.value,
    mujoco.mjtGeom.mjGEOM_ELLIPSOID.value,
]


class SceneLook:
    """A camera of a scene; nothing of the scene's physics is hidden, of the camera what ``hidden``
    says. One OpenGL context, in one thread.
    """

    def __init__(
        self,
        scene: ScenePlantConfig,
        camera: str,
        width: int,
        height: int,
        *,
        board: PrintedBoard | None = None,
        bracket: Bracket | None = None,
        carried: Carrying | None = None,
        depth: bool = False,
        hidden: Hidden | None = None,
        quality: Quality = "plain",
    ) -> None:
        """``depth``: looks come with the depth of every pixel; ``bracket``: the camera is fixed to
        the flange by it, or ``carried`` in somebody's hand, and the scene has none of that name.
        """
        brackets = {} if bracket is None else {camera: bracket}
        hands = {} if carried is None else {camera: carried}
        exact = dataclasses.replace(scene, spread=0.0)
        plant = self._plant = ScenePlant(exact, board=board, brackets=brackets, carried=hands)
        self._carried = carried is not None
        gripper = gripper_of(plant.scene.config)
        self._fingers = None if gripper is None else SceneFingers(plant)
        self._view, self._depth = View(camera, width, height), depth
        apply_intrinsics(plant.model, plant.scene.config.cameras)
        if hidden is not None:
            hidden.apply(plant.model, self._view)
        if not np.isin(plant.model.geom_type, _ROUND).any():
            # More rings of faces along cylinders change nothing (one pixel in 77,000), and take
            # a fifth of the time.
            plant.model.vis.quality.numstacks = 2
        self._focal_px = float(intrinsics(plant.model, self._view)[0, 0])
        self._renderer = Renderer(plant.model, quality)

    def look(self, q: Joints, poses: Mapping[str, ObjectPose], opening_m: float | None) -> Look:
        """What is seen with joints ``[6]``, objects, and fingers so far apart."""
        if opening_m is not None and self._fingers is not None:
            self._fingers.put(opening_m)
        self._plant.show(q, poses)
        data = self._plant.data
        if not self._depth:
            return Look(self._renderer.image(data, self._view), None, self._focal_px)
        return Look(*self._renderer.image_and_depth(data, self._view), self._focal_px)

    def arrange(self, T_table_camera: Pose | None, T_table_board: Pose | None) -> None:
        """Put the camera and the board there, in the table's frame, for the looks that follow
        (None: it stays where it is).
        """
        model, data, T = self._plant.model, self._plant.data, self._plant.T_world_table
        if T_table_camera is not None:
            set_camera_pose(model, self._view.camera, T @ T_table_camera)
        if T_table_board is not None:
            T_world_board, body = T @ T_table_board, model.body(BOARD).id
            model.body_pos[body] = T_world_board[:3, 3]
            model.body_quat[body] = quat_from_rotation(T_world_board[:3, :3])
        update_poses(model, data)

    def truth(self, width: int, height: int) -> TrueCamera:
        """How pictures of this size are seen."""
        plant, view = self._plant, View(self._view.camera, width, height)
        model = plant.model
        mounted = plant.moves_with_flange(int(model.cam_bodyid[camera_id(model, view.camera)]))
        T_world_camera = camera_pose(model, plant.data, view.camera)
        T_world_where = plant.T_world_flange if mounted else plant.T_world_table
        beside = "hand" if self._carried else "table"
        return TrueCamera(
            width,
            height,
            np.asarray(intrinsics(model, view)),
            "flange" if mounted else beside,
            inverse(T_world_where) @ T_world_camera,
        )

    def close(self) -> None:
        """Free the context; safe to call twice."""
        self._renderer.close()
        self._plant.close()
