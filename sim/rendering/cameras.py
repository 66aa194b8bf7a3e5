"""Takes a scene's pictures as signals: at their own rate, with calibration, over photographs.

Vision's conventions: pixel centres are whole numbers, the camera looks along +z with x to the
right and y down, ``u = fx * X / Z + cx`` (the axes of OpenCV; MuJoCo's cameras look along -z).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import mujoco
import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import CameraMatrix, Pose, quat_from_rotation
from robolearn.shapes import Picture
from robolearn.spec import SignalSpec
from sim.rendering.renderer import (
    LARGEST,
    Quality,
    Renderer,
    View,
    camera_id,
    is_orthographic,
    update_poses,
)
from sim.scene.config import CameraConfig, Scene, SceneConfig, require_name
from sim.shapes import DepthPicture, GeomPicture

GeomFlags = Bool[NDArray[np.bool_], " geoms"]

Projection = Literal["perspective", "orthographic"]

# What is photographed hides what is drawn this far behind it [m].
_HIDDEN_M = 0.01
# From MuJoCo's camera axes (y up, looking along -z) to those of vision.
_FLIP = np.diag([1.0, -1.0, -1.0])


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where a camera is and how it sees.

    ``K [3, 3]`` maps directions to pixels of a ``width`` x ``height`` picture; of an orthographic
    camera it maps ``(X, Y, 1)`` [m]. ``body`` carries the camera (``world`` for a fixed one):
    ``T_body_camera [4, 4]`` [m] does not change, except for cameras that turn after a body
    (``mode`` in the MJCF), where it is that of the initial state.
    """

    signal: str
    camera: str
    width: int
    height: int
    projection: Projection
    K: CameraMatrix
    body: str
    T_body_camera: Pose

    def to_json(self) -> dict[str, Any]:
        """Plain values for a provenance."""
        return {
            "camera": self.camera,
            "width": self.width,
            "height": self.height,
            "projection": self.projection,
            "K": self.K.tolist(),
            "body": self.body,
            "T_body_camera": self.T_body_camera.tolist(),
        }


class Cameras:
    """The image signals of one env; one OpenGL context per quality, made when first drawn.

    ``asked`` names cameras of ``scene.yaml`` to offer, without it those that have a ``signal``;
    ``size`` overrides their picture's sides [px].
    """

    def __init__(
        self,
        scene: Scene,
        model: mujoco.MjModel,
        asked: Sequence[str] | None = None,
        size: int | None = None,
    ) -> None:
        self._model = model
        apply_intrinsics(model, scene.config.cameras)
        chosen = _chosen(scene.config, asked)
        self._cameras = {signal_name(c): c for c in chosen}
        self._views = {
            signal: View(c.name, size or c.width, size or c.height)
            for signal, c in self._cameras.items()
        }
        self._rates = {s: c.rate_hz or scene.config.rate_hz for s, c in self._cameras.items()}
        self._step_s = scene.config.physics.timestep_s
        self._renderers: dict[Quality, Renderer] = {
            c.quality: Renderer(model, c.quality) for c in chosen
        }
        self._overlays = {
            signal: _overlay(scene, model, c, self._views[signal])
            for signal, c in self._cameras.items()
            if c.background
        }

    @property
    def signals(self) -> tuple[SignalSpec, ...]:
        """Signals ``uint8 [height, width, 3]``."""
        return tuple(
            SignalSpec(name, (v.height, v.width, 3), rate_hz=self._rates[name], dtype="uint8")
            for name, v in self._views.items()
        )

    @property
    def periods(self) -> dict[str, int]:
        """Physics steps between two pictures of each signal."""
        return {name: round(1.0 / (rate * self._step_s)) for name, rate in self._rates.items()}

    def draw(self, data: mujoco.MjData, names: Iterable[str]) -> dict[str, Picture]:
        """Pictures of the state in ``data`` by signal; one update of the scene per quality."""
        wanted = [n for n in names if n in self._views]
        if wanted:
            update_poses(self._model, data)
        out: dict[str, Picture] = {}
        for quality, renderer in self._renderers.items():
            signals = [n for n in wanted if self._cameras[n].quality == quality]
            pictures = renderer.images(data, [self._views[n] for n in signals])
            for name, picture in zip(signals, pictures, strict=True):
                out[name] = picture
                if name in self._overlays:
                    overlay, view = self._overlays[name], self._views[name]
                    ids = renderer.segmentation(data, view)
                    depth = renderer.depth(data, view) if overlay.depth is not None else None
                    out[name] = overlay.compose(picture, ids, depth)
        return out

    def calibrations(self) -> dict[str, Calibration]:
        """The calibration of every image signal."""
        return {name: calibration(self._model, view, name) for name, view in self._views.items()}

    def close(self) -> None:
        """Free the contexts; safe to call twice."""
        for renderer in self._renderers.values():
            renderer.close()


@dataclass(frozen=True, slots=True)
class Overlay:
    """A photograph, and which geoms are drawn over it: ``foreground [ngeom + 1]``, the last entry
    (id -1, nothing drawn) is false. ``depth``: the photograph's [m], infinite where nothing was
    measured; None where nobody knows it.
    """

    photo: Picture
    foreground: GeomFlags
    depth: DepthPicture | None = None

    def compose(
        self, drawn: Picture, ids: GeomPicture, drawn_m: DepthPicture | None = None
    ) -> Picture:
        """The drawn foreground over the photograph, where nothing photographed hides it."""
        front = self.foreground[ids]
        if self.depth is not None and drawn_m is not None:
            front &= drawn_m < self.depth + _HIDDEN_M
        return np.where(front[..., None], drawn, self.photo)


def signal_name(camera: CameraConfig) -> str:
    """The signal of a camera: its own, or ``<camera>/image``."""
    return camera.signal or f"{camera.name}/image"


def calibration(model: mujoco.MjModel, view: View, signal: str = "") -> Calibration:
    """The calibration of any camera of a model."""
    data = mujoco.MjData(model)
    T_world_camera = camera_pose(model, data, view.camera)
    body = int(model.cam_bodyid[camera_id(model, view.camera)])
    T_world_body = np.eye(4)
    T_world_body[:3, :3], T_world_body[:3, 3] = data.xmat[body].reshape(3, 3), data.xpos[body]
    return Calibration(
        signal=signal,
        camera=view.camera,
        width=view.width,
        height=view.height,
        projection="orthographic" if is_orthographic(model, view.camera) else "perspective",
        K=intrinsics(model, view),
        body=model.body(body).name,
        T_body_camera=np.linalg.inv(T_world_body) @ T_world_camera,
    )


def intrinsics(model: mujoco.MjModel, view: View) -> CameraMatrix:
    """``K [3, 3]`` of a camera for pictures of this size [px]."""
    camera = camera_id(model, view.camera)
    width, height = view.width, view.height
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    sensor = model.cam_sensorsize[camera].astype(np.float64)
    if is_orthographic(model, view.camera):
        # Its fovy is the height of what it sees [m].
        focal, centre = np.full(2, height / float(model.cam_fovy[camera])), middle
    elif sensor[1] > 0:
        per_metre = np.array([width, height]) / sensor
        focal = model.cam_intrinsic[camera, :2] * per_metre
        # MuJoCo counts the principal point from the centre, to the left and up.
        centre = middle - model.cam_intrinsic[camera, 2:] * per_metre
    else:
        half = np.deg2rad(float(model.cam_fovy[camera])) / 2
        focal, centre = np.full(2, height / 2 / np.tan(half)), middle
    return np.array([[focal[0], 0.0, centre[0]], [0.0, focal[1], centre[1]], [0.0, 0.0, 1.0]])


def camera_pose(model: mujoco.MjModel, data: mujoco.MjData, camera: str) -> Pose:
    """``T_world_camera [4, 4]`` [m] in the state of ``data``."""
    update_poses(model, data)
    index, T = camera_id(model, camera), np.eye(4)
    T[:3, :3] = data.cam_xmat[index].reshape(3, 3) @ _FLIP
    T[:3, 3] = data.cam_xpos[index]
    return T


def set_camera_pose(model: mujoco.MjModel, camera: str, T_world_camera: Pose) -> None:
    """Put a camera that nothing carries there [m] (it looks along its +z, y down)."""
    index = camera_id(model, camera)
    model.cam_pos[index] = T_world_camera[:3, 3]
    model.cam_quat[index] = quat_from_rotation(T_world_camera[:3, :3] @ _FLIP)


def apply_intrinsics(model: mujoco.MjModel, cameras: Iterable[CameraConfig]) -> None:
    """Give the cameras whose entry has ``intrinsics`` (fx, fy, cx, cy) these, in ``model``."""
    for config in cameras:
        if config.intrinsics:
            set_intrinsics(model, View(config.name, config.width, config.height), config.intrinsics)


def set_intrinsics(model: mujoco.MjModel, view: View, intrinsics: Sequence[float]) -> None:
    """Give a camera of ``model`` these fx, fy, cx, cy [px] of a picture of the view's size."""
    fx, fy, cx, cy = intrinsics
    camera, width, height = camera_id(model, view.camera), view.width, view.height
    # One metre per pixel: only ratios matter.
    model.cam_sensorsize[camera] = (width, height)
    model.cam_intrinsic[camera] = (fx, fy, (width - 1) / 2 - cx, (height - 1) / 2 - cy)
    model.cam_resolution[camera] = (width, height)
    model.cam_fovy[camera] = np.rad2deg(2 * np.arctan(height / 2 / fy))


def check_cameras(scene: Scene, model: mujoco.MjModel, where: str) -> None:
    """Check the ``cameras`` of ``scene.yaml``; :class:`SceneError` names the entry at fault."""
    config = scene.config
    names = [s.name for s in config.signals]
    for camera in config.cameras:
        at = f"{where}: camera {camera.name}"
        require_name(model, mujoco.mjtObj.mjOBJ_CAMERA, camera.name, f"{where}: cameras")
        if not (1 <= camera.width <= LARGEST and 1 <= camera.height <= LARGEST):
            raise SceneError(
                f"{at}: width and height are 1 to {LARGEST}, got {camera.width} x {camera.height}"
            )
        if signal_name(camera) in names or signal_name(camera).count("/") != 1:
            raise SceneError(
                f"{at}: signal '{signal_name(camera)}' must be 'part/name' and not be taken"
            )
        names.append(signal_name(camera))
        _check_rate(camera, config, at)
        given = camera.intrinsics
        if given and not (len(given) == 4 and min(given[:2]) > 0 and np.isfinite(given).all()):
            raise SceneError(f"{at}: intrinsics are fx, fy, cx, cy [px], got {list(given)}")
        if given and is_orthographic(model, camera.name):
            raise SceneError(f"{at}: an orthographic camera has no intrinsics; remove them")
        for body in camera.foreground:
            require_name(model, mujoco.mjtObj.mjOBJ_BODY, body, f"{at}: foreground")
        if camera.foreground and not camera.background:
            raise SceneError(f"{at}: foreground needs a background")
        if camera.background:
            photograph(scene.path, camera, at)
        if camera.background_depth and not camera.background:
            raise SceneError(f"{at}: background_depth needs a background")
        _depth(scene.path, camera, View(camera.name, camera.width, camera.height))


def _check_rate(camera: CameraConfig, config: SceneConfig, at: str) -> None:
    if camera.rate_hz == 0.0:
        return
    per_tick = config.rate_hz / camera.rate_hz if camera.rate_hz > 0 else 0.0
    steps = 1.0 / (camera.rate_hz * config.physics.timestep_s) if camera.rate_hz > 0 else 0.0
    slower = per_tick >= 1 and abs(per_tick - round(per_tick)) < 1e-6
    faster = (
        steps > 0.999 and abs(steps - round(steps)) < 1e-6 and not config.substeps % round(steps)
    )
    if not slower and not faster:
        raise SceneError(
            f"{at}: rate_hz {camera.rate_hz:g} must divide {config.rate_hz:g}, or be a multiple of"
            f" it that divides {1 / config.physics.timestep_s:g}"
        )


def _chosen(config: SceneConfig, asked: Sequence[str] | None) -> list[CameraConfig]:
    if asked is None:
        return [c for c in config.cameras if c.signal]
    known = {c.name: c for c in config.cameras}
    for name in asked:
        if name not in known:
            raise SceneError(
                f"{config.name}: no camera '{name}'.{did_you_mean(name, known)}"
                f" There are: {sorted(known)}"
            )
    return [known[name] for name in asked]


def _overlay(scene: Scene, model: mujoco.MjModel, camera: CameraConfig, view: View) -> Overlay:
    photo = photograph(scene.path, camera, f"{scene.path}/scene.yaml: camera {camera.name}")
    resized = cv2.resize(photo, (view.width, view.height), interpolation=cv2.INTER_AREA)
    front = np.append(foreground(model, camera.foreground), False)
    return Overlay(np.asarray(resized, dtype=np.uint8), front, _depth(scene.path, camera, view))


def _depth(folder: Path, camera: CameraConfig, view: View) -> DepthPicture | None:
    """How far away everything in the photograph is [m]; None where nobody knows."""
    if not camera.background_depth:
        return None
    at = f"{folder}/scene.yaml: camera {camera.name}"
    path = _file(folder, camera.background_depth, f"{at}: background_depth")
    raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if raw is None or raw.dtype != np.uint16 or raw.shape != (camera.height, camera.width):
        raise SceneError(
            f"{at}: '{camera.background_depth}' must be a picture of one channel with 16 bits"
            f" (millimetres) and {camera.width} x {camera.height} pixels"
        )
    # The nearest pixel's: edges must not be blended.
    sized = cv2.resize(raw, (view.width, view.height), interpolation=cv2.INTER_NEAREST)
    return np.where(sized > 0, 1e-3 * sized, np.inf).astype(np.float32)


def foreground(model: mujoco.MjModel, bodies: Sequence[str] = ()) -> GeomFlags:
    """Which geoms ``[ngeom]`` belong to ``bodies`` and what hangs on them.

    Without names: everything that hangs on a child of the world of which any part can move, so
    robots with their bases, furniture with drawers, loose objects.
    """
    parents = model.body_parentid
    inside = np.zeros(model.nbody, dtype=np.bool_)
    if bodies:
        inside[[model.body(name).id for name in bodies]] = True
        for body in range(1, model.nbody):
            inside[body] |= inside[parents[body]]
    else:
        moves = np.unique(model.body_rootid[model.jnt_bodyid])
        inside = np.isin(model.body_rootid, moves)
        # Bodies that a motion-capture device (or a task) moves have no joint.
        inside |= np.isin(model.body_rootid, np.flatnonzero(model.body_mocapid >= 0))
        inside[0] = False
    return inside[model.geom_bodyid]


def photograph(folder: Path, camera: CameraConfig, at: str) -> Picture:
    """The picture behind a camera, RGB. SceneError, which begins with ``at``: there is none."""
    path = _file(folder, camera.background, f"{at}: background")
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise SceneError(f"{at}: '{camera.background}' is not a picture that can be read")
    height, width = picture.shape[:2]
    if abs(width * camera.height - height * camera.width) > max(width, height):
        raise SceneError(
            f"{at}: the background is {width} x {height}, another shape than the camera's"
            f" {camera.width} x {camera.height}"
        )
    return np.ascontiguousarray(picture[..., ::-1], dtype=np.uint8)


def _file(folder: Path, name: str, at: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        pictures = sorted(p.name for p in folder.iterdir() if p.suffix in (".png", ".jpg"))
        raise SceneError(f"{at} '{name}' is not a file of the package; it has: {pictures}")
    return path
