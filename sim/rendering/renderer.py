"""Draws cameras of a MuJoCo model without a display: colour, depth and segmentation.

One OpenGL context per :class:`Renderer`, made when first needed; one update of the scene serves
every camera asked for. ``docs/rendering.md`` describes what is drawn and how fast.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import RenderError, did_you_mean
from robolearn.shapes import Picture
from sim.rendering.decimation import decimated
from sim.rendering.gl import INSTALL, backend, off_screen
from sim.shapes import AnyPicture, DepthPicture, GeomPicture

Quality = Literal["fast", "plain", "full"]

LARGEST = 4096
_CATEGORIES = mujoco.mjtCatBit.mjCAT_ALL.value
# Share of their faces that meshes keep when drawn fast: a Panda, its mount and a table are drawn 13
# times faster than as they come, at 2 grey levels of mean difference (docs/rendering.md).
FAST_FACES = 0.12


@dataclass(frozen=True, slots=True)
class View:
    """A camera of the model and the size of its picture [px]."""

    camera: str
    width: int
    height: int

    def __post_init__(self) -> None:
        if not (1 <= self.width <= LARGEST and 1 <= self.height <= LARGEST):
            raise RenderError(
                f"a picture has 1 to {LARGEST} pixels a side, got {self.width} x {self.height}"
            )


class Renderer:
    """``quality`` ``full``: shadows, reflections, smooth edges, meshes as they are; ``plain``: no
    shadows and reflections; ``fast``, for observations: nor smooth edges, and meshes of an eighth
    of their faces.

    What the model looks like (colours, lights, camera poses) may change at any time; meshes and
    textures are uploaded when the context is made (:meth:`close` makes the next picture upload them
    again). What is not closed is freed with the object or before the interpreter ends: EGL's own
    finaliser raises when it runs later.
    """

    def __init__(self, model: mujoco.MjModel, quality: Quality = "plain") -> None:
        self._model, self._quality = model, quality
        self._gl: Any = None
        self._context: mujoco.MjrContext | None = None
        self._scene: mujoco.MjvScene | None = None
        self._option = mujoco.MjvOption()
        self._size = (0, 0)
        self._release: weakref.finalize[..., Any] | None = None

    def show(self, geom_groups: Sequence[int], site_groups: Sequence[int]) -> None:
        """Draw the geoms and sites of these groups; by default, as MuJoCo does, those below 3."""
        for shown, groups in (
            (self._option.geomgroup, geom_groups),
            (self._option.sitegroup, site_groups),
        ):
            shown[:] = 0
            shown[list(groups)] = 1

    def open(self, width: int = 64, height: int = 64) -> None:
        """Create the context now; :class:`RenderError` says what was tried and what to install."""
        self.close()
        self._gl = backend().context(width, height)
        try:
            self._gl.make_current()
            context = off_screen(self._uploaded(width, height))
        except (mujoco.FatalError, RuntimeError) as error:
            self._gl.free()
            self._gl = None
            raise RenderError(f"cannot draw: OpenGL does not work ({error}); {INSTALL}") from error
        self._release = weakref.finalize(self, _free, self._gl, context)
        # Far more accurate than the default mapping at a distance.
        context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        scene = mujoco.MjvScene(self._model, maxgeom=2000 + 2 * self._model.ngeom)
        full = self._quality == "full"
        scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = full
        scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = full
        self._scene, self._context, self._size = scene, context, (width, height)

    def images(self, data: mujoco.MjData, views: Sequence[View]) -> tuple[AnyPicture, ...]:
        """Pictures ``[height, width, 3]`` of the state in ``data``, one per view.

        Positions must be current (:func:`update_poses`).
        """
        scene, context = self._update(data, views)
        return tuple(self._colours(data, view, scene, context) for view in views)

    def image(self, data: mujoco.MjData, view: View) -> Picture:
        """One picture ``[height, width, 3]``."""
        return self.images(data, [view])[0]

    def depth(self, data: mujoco.MjData, view: View) -> DepthPicture:
        """Distance along the optical axis [m], ``[height, width]``; ``inf`` where nothing is."""
        return self.image_and_depth(data, view)[1]

    def image_and_depth(self, data: mujoco.MjData, view: View) -> tuple[Picture, DepthPicture]:
        """:meth:`image` and :meth:`depth` of one drawing."""
        scene, context = self._update(data, [view])
        rectangle = self._render(data, view, scene, context)
        image = np.empty((view.height, view.width, 3), dtype=np.uint8)
        raw = np.empty((view.height, view.width), dtype=np.float32)
        mujoco.mjr_readPixels(image, raw, rectangle, context)
        return np.ascontiguousarray(image[::-1]), self._metres(raw, view)

    def _metres(self, raw: DepthPicture, view: View) -> DepthPicture:
        extent, lens = self._model.stat.extent, self._model.vis.map
        near, far = lens.znear * extent, lens.zfar * extent
        # raw is 1 at the near plane and 0 at the far plane.
        share = raw[::-1].astype(np.float64)
        if is_orthographic(self._model, view.camera):
            metres = far + share * (near - far)
        else:
            metres = 1.0 / (1.0 / far + share * (1.0 / near - 1.0 / far))
        return np.where(share > 0, metres, np.inf).astype(np.float32)

    def segmentation(self, data: mujoco.MjData, view: View) -> GeomPicture:
        """Id of the geom at every pixel ``[height, width]``; -1 where no geom is."""
        scene, context = self._update(data, [view])
        ids = self._numbers(data, view, scene, context)
        of_scene = np.full(scene.ngeom + 1, -1, dtype=np.int32)
        for geom in scene.geoms[: scene.ngeom]:
            if geom.segid >= 0 and geom.objtype == mujoco.mjtObj.mjOBJ_GEOM:
                of_scene[geom.segid + 1] = geom.objid
        return of_scene[np.minimum(ids, scene.ngeom)]

    def close(self) -> None:
        """Free the context; safe to call twice. The next picture makes another."""
        if self._release is not None:
            self._release()
        self._release, self._gl, self._context = None, None, None
        self._scene, self._size = None, (0, 0)

    def _update(
        self, data: mujoco.MjData, views: Sequence[View]
    ) -> tuple[mujoco.MjvScene, mujoco.MjrContext]:
        width = max((v.width for v in views), default=1)
        height = max((v.height for v in views), default=1)
        if width > self._size[0] or height > self._size[1]:
            self.open(max(64, width, self._size[0]), max(64, height, self._size[1]))
        scene, context = self._scene, self._context
        if scene is None or context is None:
            raise RenderError("the renderer is closed")
        self._gl.make_current()
        camera = mujoco.MjvCamera()
        mujoco.mjv_updateScene(self._model, data, self._option, None, camera, _CATEGORIES, scene)
        return scene, context

    def _render(
        self, data: mujoco.MjData, view: View, scene: mujoco.MjvScene, context: mujoco.MjrContext
    ) -> mujoco.MjrRect:
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = camera_id(self._model, view.camera)
        mujoco.mjv_updateCamera(self._model, data, camera, scene)
        # The headlight shines from the camera.
        mujoco.mjv_makeLights(self._model, data, scene)
        rectangle = mujoco.MjrRect(0, 0, view.width, view.height)
        mujoco.mjr_render(rectangle, scene, context)
        return rectangle

    def _colours(
        self, data: mujoco.MjData, view: View, scene: mujoco.MjvScene, context: mujoco.MjrContext
    ) -> Picture:
        rectangle = self._render(data, view, scene, context)
        image = np.empty((view.height, view.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(image, None, rectangle, context)
        # OpenGL's first row is the lowest.
        return np.ascontiguousarray(image[::-1])

    def _numbers(
        self, data: mujoco.MjData, view: View, scene: mujoco.MjvScene, context: mujoco.MjrContext
    ) -> NDArray[np.int64]:
        flags = (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR)
        for flag in flags:
            scene.flags[flag] = True
        try:
            colours = self._colours(data, view, scene, context).astype(np.int64)
        finally:
            for flag in flags:
                scene.flags[flag] = False
        return colours[..., 0] + (colours[..., 1] << 8) + (colours[..., 2] << 16)

    def _uploaded(self, width: int, height: int) -> mujoco.MjModel:
        """What goes into the context: a copy, as sizes, edges and meshes belong to the picture."""
        fast = self._quality == "fast"
        model = decimated(self._model, FAST_FACES) if fast else copy.copy(self._model)
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        if fast:
            model.vis.quality.offsamples = 0
            model.vis.quality.shadowsize = 0
        return model


def camera_names(model: mujoco.MjModel) -> list[str]:
    """Names of the cameras of a model."""
    return [model.camera(i).name for i in range(model.ncam)]


def camera_id(model: mujoco.MjModel, name: str) -> int:
    """Number of a camera; :class:`RenderError` lists what exists."""
    index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    if index < 0:
        names = camera_names(model)
        raise RenderError(f"no camera '{name}'.{did_you_mean(name, names)} There are: {names}")
    return index


def is_orthographic(model: mujoco.MjModel, camera: str) -> bool:
    """Whether a camera of the model projects in parallel."""
    kind = int(model.cam_projection[camera_id(model, camera)])
    return kind == int(mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC)


def update_poses(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Bring the poses of bodies, cameras and lights up to ``data.qpos``; the state is untouched."""
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)


def _free(gl: Any, context: Any) -> None:
    gl.make_current()
    context.free()
    gl.free()
