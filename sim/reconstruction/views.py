"""Compares pictures of a real table with the scene as the same camera would see it.

Silhouettes are compared as depth shows them, on both sides by one rule: what stands higher than a
few millimetres over the table and near an object is that object's. Pictures are straightened, and
the scene's objects lie where they were found. Its robot is drawn where its joints are told, else
not at all: it stood elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import mujoco
import numpy as np

from robolearn.geometry import Pose, inverse, quat_from_rotation
from robolearn.shapes import Picture
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.shapes import Depth, Mask, PointPicture
from sim.rendering.cameras import apply_intrinsics
from sim.rendering.renderer import Renderer, View
from sim.scene.config import CameraConfig, Scene

_EYE = "verified_from_here"
# Lower is the table [m]; a point this near to an object's box is the object's [m].
_CLEAR_M, _NEAR_M = 0.006, 0.015
# What else stands this near to a part of the robot is taken to be the robot [m]: one that is drawn
# beside where it stood is seen to be.
_ROBOT_NEAR_M = 0.1
# Of a silhouette's union; fewer pixels tell nothing.
_FEWEST = 30
_FLIP = np.diag([1.0, -1.0, -1.0])
# Geoms of groups below are drawn.
_HIDDEN, _DRAWN_GROUPS = 5, 3
# Colour of the silhouettes that are drawn into a photograph.
_LINE = (0, 220, 90)


@dataclass(frozen=True, slots=True)
class Box:
    """Where an object of the scene is: its upright box, to tell which points are its own."""

    T_table_body: Pose
    half_size_m: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """One picture against the scene.

    ``iou`` by object; ``edge_px``: median distance of the scene's silhouettes from the photograph's
    nearest edge; ``depth_mm``: median difference on objects and the table beside them;
    ``colour`` by object: mean difference of its pixels (of 255), a pixel's blur forgiven;
    ``unexplained``: share of what stands on the table that is near no object of the scene;
    ``robot``: its silhouette's intersection over union. NaN where nothing is in view, and of a
    robot whose joints nobody told.
    """

    name: str
    iou: dict[str, float]
    edge_px: float
    depth_mm: float
    colour: dict[str, float]
    unexplained: float
    robot: float
    photo: Picture
    drawn: Picture
    outlined: Picture


class SceneViewer:
    """Draws a scene from where pictures were taken, in the table's frame."""

    def __init__(self, scene: Scene, boxes: Mapping[str, Box], T_scene_table: Pose) -> None:
        def add_eye(spec: mujoco.MjSpec) -> None:
            spec.worldbody.add_camera(name=_EYE)
            # Smooth edges would move depth by a part of a pixel.
            spec.visual.quality.offsamples = 0

        edited = dataclasses.replace(scene, edits=(*scene.edits, add_eye))
        self._model = edited.compile()
        self._data = mujoco.MjData(self._model)
        self._boxes, self._T = dict(boxes), T_scene_table
        objects = {self._model.body(name).id: name for name in boxes}
        self._owner = [objects.get(int(b), "") for b in self._model.geom_bodyid]
        self._groups = self._model.geom_group.copy()
        for geom, body in enumerate(self._model.geom_bodyid):
            if int(body) not in objects and int(body) != 0:
                self._model.geom_group[geom] = _HIDDEN
        self._renderer = Renderer(self._model, "plain")

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()

    def place(self, name: str, T_table_body: Pose) -> None:
        """Draw an object of the scene there from now on."""
        model, T = self._model, self._T @ T_table_body
        body = model.body(name).id
        quat = quat_from_rotation(T[:3, :3])
        if model.body_dofnum[body]:
            # A free joint holds the pose; ``SceneViewer`` draws what a reset gives.
            at = int(model.jnt_qposadr[model.body_jntadr[body]])
            model.qpos0[at : at + 7] = [*T[:3, 3], *quat]
        else:
            model.body_pos[body], model.body_quat[body] = T[:3, 3], quat
        self._boxes[name] = dataclasses.replace(self._boxes[name], T_table_body=T_table_body)

    def joint_range(self, name: str) -> tuple[float, float]:
        """Where a joint of the scene may be, least and most [rad] or [m]."""
        low, high = self._model.joint(name).range.tolist()
        return low, high

    def compare(self, f: PosedFrame, joints: Mapping[str, float] | None = None) -> Compared:
        """Draw the scene as this picture's camera would see it, and compare. ``joints``: where
        those of the robot were then [rad], by name; None: nobody knows, and it is left out.
        """
        photo = f.picture()
        measured = np.asarray(cv2.medianBlur(f.depth_m(), 5), dtype=np.float32)
        self._aim(f)
        drawn, depth, geoms = self._draw(f)
        owner = np.array([*self._owner, ""])[geoms]
        seen, shown = _points(measured, f), _points(depth, f)
        standing = (seen[..., 2] > _CLEAR_M) & (measured > 0)
        near = {name: self._near(name, seen) & standing for name in self._boxes}
        silhouettes = owner != ""
        page, lines, of_robot, iou_robot = drawn, silhouettes, np.zeros_like(standing), np.nan
        if joints is not None:
            masked = f.mask()
            objects = np.any(list(near.values()), axis=0) if masked is None else masked
            page, ours, of_robot, sure = self._robot(f, joints, measured, standing, objects)
            iou_robot, lines = _iou(ours, of_robot), silhouettes | ours
            # What it hides is neither an object's in the photograph, nor missing from it.
            near = {name: mask & ~sure for name, mask in near.items()}
            owner = np.where(sure, "", owner)
        iou = {
            name: _iou((owner == name) & (shown[..., 2] > _CLEAR_M) & (measured > 0), near[name])
            for name in self._boxes
        }
        inside = self._workspace(seen) & standing & ~of_robot
        explained = np.any(list(near.values()), axis=0)
        return Compared(
            name=f.name,
            iou=iou,
            edge_px=_edge_distance(photo, silhouettes),
            depth_mm=_depth_difference(measured, depth, owner != ""),
            colour=self._colour_differences(photo, drawn, owner, near),
            unexplained=float((inside & ~explained).sum() / max(1, inside.sum())),
            robot=iou_robot,
            photo=photo,
            drawn=page,
            outlined=_outlined(photo, lines),
        )

    def robot_alone(self, f: PosedFrame, joints: Mapping[str, float]) -> Compared:
        """The robot of the scene against a picture of another moment: nothing else is judged by it,
        and what stands where objects of the scene do is not the robot's.
        """
        photo = f.picture()
        measured = np.asarray(cv2.medianBlur(f.depth_m(), 5), dtype=np.float32)
        self._aim(f)
        seen = _points(measured, f)
        standing = (seen[..., 2] > _CLEAR_M) & (measured > 0)
        objects = np.any([self._near(name, seen) for name in self._boxes], axis=0) & standing
        page, ours, theirs, _ = self._robot(f, joints, measured, standing, objects)
        return Compared(
            name=f.name,
            iou={},
            edge_px=np.nan,
            depth_mm=np.nan,
            colour={},
            unexplained=np.nan,
            robot=_iou(ours, theirs),
            photo=photo,
            drawn=page,
            outlined=_outlined(photo, ours),
        )

    def _aim(self, f: PosedFrame) -> None:
        model, (width, height), K = self._model, f.frame.camera.size, f.K
        focal = (float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2]))
        apply_intrinsics(model, [CameraConfig(_EYE, width, height, intrinsics=focal)])
        eye, T = model.camera(_EYE).id, self._T @ f.T_table_camera
        model.cam_pos[eye] = T[:3, 3]
        turned = np.ascontiguousarray(T[:3, :3] @ _FLIP)
        mujoco.mju_mat2Quat(model.cam_quat[eye], turned.ravel())

    def _draw(
        self, f: PosedFrame, joints: Mapping[str, float] | None = None
    ) -> tuple[Picture, Depth, np.ndarray]:
        """The picture, its depth (0: nothing) and the geom of every pixel (-1: none)."""
        model, data, view = self._model, self._data, View(_EYE, *f.frame.camera.size)
        mujoco.mj_resetData(model, data)
        for name, value in (joints or {}).items():
            data.qpos[model.joint(name).qposadr[0]] = value
        mujoco.mj_kinematics(model, data)
        mujoco.mj_camlight(model, data)
        depth = self._renderer.depth(data, view)
        ids = self._renderer.segmentation(data, view)
        depth = np.where(np.isfinite(depth), depth, 0.0).astype(np.float32)
        return self._renderer.image(data, view), depth, ids

    def _robot(
        self,
        f: PosedFrame,
        joints: Mapping[str, float],
        measured: Depth,
        standing: Mask,
        objects: Mask,
    ) -> tuple[Picture, Mask, Mask, Mask]:
        """The picture with the robot in it; which pixels are the robot's as it is drawn, and as
        depth was measured; and where both agree on how far away it is.

        A point is the robot's that stands over the table, at most ``_ROBOT_NEAR_M`` from a part of
        it, and is no object's (by the mask, where there is one); beside an object, only where the
        robot is drawn just there.
        """
        model, data = self._model, self._data
        roots = {int(model.body_rootid[int(model.joint(n).bodyid[0])]) for n in joints}
        own = np.isin(model.body_rootid[model.geom_bodyid], sorted(roots))
        own &= self._groups < _DRAWN_GROUPS
        hidden = model.geom_group.copy()
        model.geom_group[own] = self._groups[own]
        picture, depth, geoms = self._draw(f, joints)
        model.geom_group[:] = hidden
        drawn = np.array([*own, False])[geoms] & (measured > 0)
        seen, T = _points(measured, f), self._T
        sure = drawn & (np.abs(measured - depth) < _NEAR_M)
        world = seen[standing] @ T[:3, :3].T + T[:3, 3]
        close = np.zeros(len(world), dtype=bool)
        for geom in np.flatnonzero(own):
            local = (world - data.geom_xpos[geom]) @ data.geom_xmat[geom].reshape(3, 3)
            centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
            close |= (np.abs(local - centre) < half + _ROBOT_NEAR_M).all(axis=1)
        there = np.zeros_like(standing)
        there[standing] = close
        above = _points(depth, f)[..., 2] > _CLEAR_M
        return picture, drawn & above, there & (~objects | sure), sure

    def _near(self, name: str, points: PointPicture) -> Mask:
        box = self._boxes[name]
        T = inverse(box.T_table_body)
        local = np.abs(points @ T[:3, :3].T + T[:3, 3])
        return (local < np.array(box.half_size_m) + _NEAR_M).all(axis=-1)

    def _workspace(self, points: PointPicture) -> Mask:
        """Around the objects: farther away is not the scene's to explain."""
        at = np.stack([b.T_table_body[:2, 3] for b in self._boxes.values()])
        low, high = at.min(axis=0) - 0.1, at.max(axis=0) + 0.1
        flat = points[..., :2]
        return ((flat > low) & (flat < high)).all(axis=-1) & (points[..., 2] < 0.5)

    def _colour_differences(
        self, photo: Picture, drawn: Picture, owner: np.ndarray, near: Mapping[str, Mask]
    ) -> dict[str, float]:
        """By object, over pixels that are the object's on both sides."""
        smooth = [cv2.GaussianBlur(p, (3, 3), 0).astype(np.float64) for p in (photo, drawn)]
        off = np.abs(smooth[0] - smooth[1]).mean(axis=2)
        out: dict[str, float] = {}
        for name in self._boxes:
            own = ((owner == name) & near[name]).astype(np.uint8)
            inner = cv2.erode(own, np.ones((3, 3), np.uint8)) > 0
            out[name] = float(off[inner].mean()) if inner.sum() >= 30 else np.nan
        return out


def _iou(ours: Mask, theirs: Mask) -> float:
    both, either = float((ours & theirs).sum()), float((ours | theirs).sum())
    return both / either if either >= _FEWEST else np.nan


def _points(depth: Depth, f: PosedFrame) -> PointPicture:
    """Where every pixel's surface is in the table's frame ``[h, w, 3]`` [m]."""
    height, width = depth.shape
    K, T = f.K, f.T_table_camera
    far = depth.astype(np.float64)
    x = (np.arange(width)[None] - K[0, 2]) / K[0, 0] * far
    y = (np.arange(height)[:, None] - K[1, 2]) / K[1, 1] * far
    return np.stack([x, y, far], axis=-1) @ T[:3, :3].T + T[:3, 3]


def _edge_distance(photo: Picture, silhouettes: Mask) -> float:
    rim = _rim(silhouettes)
    if rim.sum() < 20:
        return np.nan
    grey = cv2.GaussianBlur(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), (3, 3), 0)
    edges = cv2.Canny(grey, 30, 80)
    away = cv2.distanceTransform(np.where(edges > 0, 0, 255).astype(np.uint8), cv2.DIST_L2, 5)
    return float(np.median(away[rim]))


def _rim(silhouettes: Mask) -> Mask:
    """Outer pixels of silhouettes, without those at the picture's border."""
    whole = silhouettes.astype(np.uint8)
    rim = (whole > 0) & (cv2.erode(whole, np.ones((3, 3), np.uint8)) == 0)
    rim[[0, -1]] = False
    rim[:, [0, -1]] = False
    return rim


def _depth_difference(measured: Depth, drawn: Depth, silhouettes: Mask) -> float:
    kernel = np.ones((9, 9), np.uint8)
    whole = silhouettes.astype(np.uint8)
    # At an edge one pixel more or less is not a matter of depth.
    edge = cv2.dilate(whole, np.ones((3, 3), np.uint8)) != cv2.erode(
        whole, np.ones((3, 3), np.uint8)
    )
    near = (cv2.dilate(whole, kernel) > 0) & ~edge & (measured > 0) & (drawn > 0)
    if near.sum() < 30:
        return np.nan
    return float(1e3 * np.median(np.abs(measured[near] - drawn[near])))


def _outlined(photo: Picture, silhouettes: Mask) -> Picture:
    out = photo.copy()
    out[cv2.dilate(_rim(silhouettes).astype(np.uint8), np.ones((2, 2), np.uint8)) > 0] = _LINE
    return out
