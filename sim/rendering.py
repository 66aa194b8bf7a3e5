"""Draws a MuJoCo scene without a display, by EGL."""

from __future__ import annotations

import weakref
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import RenderError

INSTALL = "install it: apt-get install libegl1 libgl1 (Debian, Ubuntu)"


class TopView:
    """A lazy renderer of one camera; one OpenGL context, enlarged on demand.

    What is not closed is freed with the object or before the interpreter ends: EGL's own finaliser
    raises when it runs later.
    """

    def __init__(self, model: mujoco.MjModel, camera: str = "top") -> None:
        self._model, self._camera = model, camera
        self._gl: Any = None
        self._context: mujoco.MjrContext | None = None
        self._scene: mujoco.MjvScene | None = None
        self._size = (0, 0)
        self._release: weakref.finalize[..., Any] | None = None

    def open(self, width: int = 64, height: int = 64) -> None:
        """Create the context now; :class:`RenderError` says what to install."""
        self.close()
        self._gl = _egl_context(width, height)
        self._gl.make_current()
        # The off-screen buffer has the size that the model asks for.
        visual = self._model.vis.global_
        visual.offwidth, visual.offheight = max(64, width), max(64, height)
        scene = mujoco.MjvScene(self._model, maxgeom=2000)
        scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        try:
            context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        except (mujoco.FatalError, RuntimeError) as error:
            self._gl.free()
            self._gl = None
            raise RenderError(f"cannot draw: OpenGL does not work ({error}); {INSTALL}") from error
        self._release = weakref.finalize(self, _free, self._gl, context)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
        self._scene, self._context = scene, context
        if context.currentBuffer != mujoco.mjtFramebuffer.mjFB_OFFSCREEN:
            self.close()
            raise RenderError(f"OpenGL has no off-screen buffer here; {INSTALL}")
        self._size = (width, height)

    def draw(self, data: mujoco.MjData, width: int, height: int) -> NDArray[np.uint8]:
        """Picture ``[height, width, 3]`` of the state in ``data``."""
        if width < 1 or height < 1 or max(width, height) > 4096:
            raise RenderError(f"a picture has 1 to 4096 pixels a side, got {width} x {height}")
        if width > self._size[0] or height > self._size[1] or self._context is None:
            self.open(max(width, self._size[0]), max(height, self._size[1]))
        scene, context = self._scene, self._context
        if scene is None or context is None:
            raise RenderError("the renderer is closed")
        self._gl.make_current()
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = self._model.camera(self._camera).id
        viewport = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjv_updateScene(
            self._model,
            data,
            mujoco.MjvOption(),
            None,
            camera,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            scene,
        )
        mujoco.mjr_render(viewport, scene, context)
        image = np.empty((height, width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(image, None, viewport, context)
        return np.ascontiguousarray(image[::-1])

    def close(self) -> None:
        """Free the context; safe to call twice."""
        if self._release is not None:
            self._release()
        self._release, self._gl, self._context = None, None, None
        self._scene, self._size = None, (0, 0)


def _free(gl: Any, context: Any) -> None:
    gl.make_current()
    context.free()
    gl.free()


def _egl_context(width: int, height: int) -> Any:
    try:
        from mujoco.egl import GLContext
        from OpenGL.error import Error as GlError
    except (ImportError, AttributeError, OSError) as error:
        raise RenderError(f"cannot draw: EGL is missing ({error}); {INSTALL}") from error
    context = GLContext.__new__(GLContext)
    # Its finaliser reads this even when the constructor failed before setting it.
    context._context = None  # noqa: SLF001
    try:
        context.__init__(width, height)
        return context
    except (GlError, ImportError, RuntimeError, OSError) as error:
        raise RenderError(f"cannot draw: EGL does not work ({error}); {INSTALL}") from error
