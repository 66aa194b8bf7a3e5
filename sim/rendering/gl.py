"""Chooses which OpenGL draws without a window: EGL, OSMesa, GLFW, or what ``MUJOCO_GL`` says.

MuJoCo's own choice (``mujoco.GLContext``) is made when it is imported, tries one backend, and takes
GLFW unasked, which needs a display. Here each backend is tried by opening a context.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco

from robolearn.errors import RenderError

BACKENDS = ("egl", "osmesa", "glfw")
INSTALL = (
    "install a renderer: apt-get install libegl1 libgl1 libgl1-mesa-dri (Debian, Ubuntu), or"
    " libosmesa6, which needs no driver"
)
# Values of MUJOCO_GL (mujoco/rendering/classic/gl_context.py) that name no backend.
_ANY = ("", "enable", "enabled", "on", "true", "1")
_OFF = ("disable", "disabled", "off", "false", "0")
_TINY = "<mujoco><worldbody><geom type='sphere' size='1'/></worldbody></mujoco>"


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend that works here. ``context(width, height)`` makes a context of MuJoCo's kind."""

    name: str
    context: Callable[[int, int], Any]


@functools.cache
def backend() -> Backend:
    """The first backend that can draw; chosen once per process, as libraries stay loaded.

    Raises :class:`RenderError` that lists what was tried, why it failed, and what to install.
    """
    # A software renderer with threads of its own makes two drawing processes slower than one.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    failures: list[str] = []
    names = wanted()
    for name in names:
        failure, make = _attempt(name)
        if make is not None:
            return Backend(name, make)
        failures.append(f"{name}: {failure}")
    what = INSTALL if names == BACKENDS else f"unset MUJOCO_GL to have others tried, or {INSTALL}"
    raise RenderError(f"cannot draw; tried {'; '.join(failures)}. {what}")


def wanted() -> tuple[str, ...]:
    """The backends to try, in order."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in _OFF:
        raise RenderError(f"cannot draw: MUJOCO_GL is '{asked}'; unset it, or set it to egl")
    if asked in _ANY:
        return BACKENDS
    if asked == "glx":
        return ("glfw",)
    if asked not in BACKENDS:
        raise RenderError(f"cannot draw: MUJOCO_GL is '{asked}'; it can be {', '.join(BACKENDS)}")
    return (asked,)


def _attempt(name: str) -> tuple[str, Callable[[int, int], Any] | None]:
    platform = os.environ.get("PYOPENGL_PLATFORM")
    try:
        make = _maker(name)
        gl = make(16, 16)
        try:
            gl.make_current()
            off_screen(mujoco.MjModel.from_xml_string(_TINY)).free()
        finally:
            gl.free()
        return "", make
    # Missing libraries surface in PyOpenGL as AttributeError or TypeError, others as what they are.
    except (ImportError, AttributeError, TypeError, OSError, RuntimeError, *_errors()) as error:
        failure = " ".join(str(error).split()) or type(error).__name__
    # PyOpenGL binds itself to a platform when first imported; the next attempt needs a fresh one.
    for module in [m for m in sys.modules if m.split(".")[0] == "OpenGL"] + [f"mujoco.{name}"]:
        sys.modules.pop(module, None)
    if platform is None:
        os.environ.pop("PYOPENGL_PLATFORM", None)
    return failure, None


def off_screen(model: mujoco.MjModel) -> mujoco.MjrContext:
    """Upload a model into the current OpenGL context, drawing into an off-screen buffer."""
    context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
    if context.currentBuffer != mujoco.mjtFramebuffer.mjFB_OFFSCREEN:
        context.free()
        raise RuntimeError("OpenGL has no off-screen buffer")
    return context


def _maker(name: str) -> Callable[[int, int], Any]:
    if name == "egl":
        _probe_egl()
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if name == "glfw" and sys.platform == "linux" and not display:
        raise RuntimeError("there is no display (DISPLAY is unset)")
    kind = importlib.import_module(f"mujoco.{name}").GLContext

    def make(width: int, height: int) -> Any:
        context = kind.__new__(kind)
        # Its finaliser reads this even when the constructor failed before setting it.
        context._context = None  # noqa: SLF001
        with warnings.catch_warnings():
            # GLFW warns of what it then reports by giving no window.
            warnings.simplefilter("ignore")
            context.__init__(width, height)
        if not context._context:  # noqa: SLF001
            raise RuntimeError("no context could be made")
        return context

    return make


def _probe_egl() -> None:
    """Raise unless some EGL device works, without leaving a trace: once PyOpenGL has loaded libEGL
    for everyone, MuJoCo finds its entry points there and OSMesa cannot take over.
    """
    library = ctypes.CDLL("libEGL.so.1")
    find = library.eglGetProcAddress
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    query, display_of = (find(b"eglQueryDevicesEXT"), find(b"eglGetPlatformDisplayEXT"))
    if not query or not display_of:
        raise RuntimeError("this EGL cannot draw without a display (no EGL_EXT_platform_device)")
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    devices, count = (pointer * 32)(), number()
    ctypes.CFUNCTYPE(number, number, pointer, pointer)(query)(
        32, ctypes.addressof(devices), ctypes.addressof(count)
    )
    chosen = list(devices)[: count.value]
    asked = os.environ.get("MUJOCO_EGL_DEVICE_ID", "")
    if asked:
        if not asked.isdecimal() or int(asked) >= count.value:
            raise RuntimeError(
                f"MUJOCO_EGL_DEVICE_ID is '{asked}', there are {count.value} devices"
            )
        chosen = [chosen[int(asked)]]
    library.eglInitialize.argtypes = [pointer, pointer, pointer]
    get_display = ctypes.CFUNCTYPE(pointer, number, pointer, pointer)(display_of)
    for device in chosen:
        # EGL_PLATFORM_DEVICE_EXT (EGL_EXT_platform_device).
        display = get_display(0x313F, device, None)
        if display and library.eglInitialize(display, None, None):
            # Not terminated: somebody else in this process may draw on it.
            return
    raise RuntimeError(f"none of {len(chosen)} EGL devices starts: is a driver installed?")


def _errors() -> tuple[type[Exception], ...]:
    from OpenGL.error import Error

    return (Error, mujoco.FatalError)
