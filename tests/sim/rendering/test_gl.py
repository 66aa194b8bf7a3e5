"""Which OpenGL is chosen, and what is said when none works."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.errors import RenderError
from sim.rendering import gl

DRAW = """
import mujoco
from robolearn.errors import RenderError
from sim.rendering.gl import backend
from sim.rendering.renderer import Renderer, View, update_poses
model = mujoco.MjModel.from_xml_string('''<mujoco><worldbody><light pos="0 0 3"/>
  <geom type="plane" size="9 9 .1" rgba="0 0 1 1"/>
  <geom type="box" size=".3 .3 .1" pos="0 0 .1" rgba="1 0 0 1"/><camera name="top" pos="0 0 2"/>
  </worldbody></mujoco>''')
data = mujoco.MjData(model)
update_poses(model, data)
renderer = Renderer(model)
try:
    image = renderer.image(data, View("top", 32, 32))
    red, blue = image[16, 16], image[2, 2]
    print(backend().name, red[0] > 200 > red[2], blue[2] > 200 > blue[0])
except RenderError as error:
    print(error)
"""


def draw(**environment: str) -> str:
    """What a fresh process says; it must end quietly though it closes nothing."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRAW],
        cwd=Path(__file__).parents[3],
        env=kept | environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_egl_comes_first() -> None:
    assert draw() == "egl True True"


def test_what_fails_is_listed_with_its_reason_and_a_remedy() -> None:
    said = draw(MUJOCO_EGL_DEVICE_ID="99", MUJOCO_GL="egl")
    assert said.startswith("cannot draw; tried egl: ")
    assert "MUJOCO_EGL_DEVICE_ID" in said
    assert "osmesa" not in said.partition("install")[0]
    assert "unset MUJOCO_GL to have others tried" in said
    assert "apt-get install libegl1" in said


def test_osmesa_takes_over_when_egl_fails() -> None:
    try:
        ctypes.CDLL("libOSMesa.so.8")
    except OSError:
        said = draw(MUJOCO_EGL_DEVICE_ID="99", DISPLAY="", WAYLAND_DISPLAY="")
        assert "egl: MUJOCO_EGL_DEVICE_ID is '99'" in said
        assert "osmesa:" in said
        assert "glfw: there is no display" in said
    else:
        assert draw(MUJOCO_EGL_DEVICE_ID="99") == "osmesa True True"


@pytest.mark.parametrize(
    ("asked", "tried"), [("", gl.BACKENDS), ("on", gl.BACKENDS), ("OSMesa", ("osmesa",))]
)
def test_the_environment_variable_decides(
    monkeypatch: pytest.MonkeyPatch, asked: str, tried: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MUJOCO_GL", asked)
    assert gl.wanted() == tried


@pytest.mark.parametrize(("asked", "said"), [("off", "unset it"), ("vulkan", "osmesa, glfw")])
def test_unusable_values_of_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    monkeypatch.setenv("MUJOCO_GL", asked)
    with pytest.raises(RenderError, match=said):
        gl.wanted()
