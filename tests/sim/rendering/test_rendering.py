"""Pictures: their content, and what is said when OpenGL is absent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.cli.main import main
from robolearn.errors import RenderError
from robolearn.pusht import BLOCK, GOAL, TOOL, transform_points
from robolearn.types import Condition
from sim.env.scene_env import SceneEnv
from sim.rendering.gl import backend, off_screen
from sim.rendering.renderer import Renderer, View, update_poses
from sim.scene.load import load_scene
from sim.worlds import make_world

POSES = {TOOL: (0.1, 0.4), BLOCK: (0.38, 0.12, 0.7)}


def at(image: NDArray[np.uint8], xy: Any) -> NDArray[np.int64]:
    """The pixel at a table position: x right, y up."""
    h, w, _ = image.shape
    column, row = int(xy[0] / 0.512 * w), int((1 - xy[1] / 0.512) * h)
    return image[row, column].astype(np.int64)


def middle(pose: Any) -> NDArray[np.float64]:
    return transform_points(np.array([[0.0, -0.06]]), pose)[0]


def test_the_top_view_shows_tool_block_and_goal_where_they_are() -> None:
    env = SceneEnv(load_scene("pusht_reference"))
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    for width, height in ((256, 256), (128, 128), (320, 320)):
        image = env.render(width, height)
        assert image.shape == (height, width, 3)
        assert image.dtype == np.uint8
        r, g, b = at(image, POSES[TOOL])
        assert b > r + 50
        assert b > g + 30
        r, g, b = at(image, middle(GOAL))
        assert g > r + 40
        assert g > b + 40
        r, g, b = at(image, middle(POSES[BLOCK]))
        assert abs(r - b) < 50
        assert 70 < g < 180
        assert at(image, (0.45, 0.45)).min() > 235
    first = env.render(64, 64)
    assert np.array_equal(first, env.render(64, 64))
    env.close()


def test_drawing_does_not_change_the_physics() -> None:
    env = SceneEnv(load_scene("pusht_reference"), render=True)
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    before = (env.data.qpos.copy(), env.data.qvel.copy(), env.data.time)
    env.render(64, 64)
    assert np.array_equal(env.data.qpos, before[0])
    assert np.array_equal(env.data.qvel, before[1])
    assert env.data.time == before[2]
    env.close()
    # A closed env draws again when asked to.
    assert env.render(64, 64).mean() > 100
    env.close()


FORGETFUL = """
import numpy as np
from sim.worlds import make_world
env = make_world("pusht_reference")
env.reset(env.sample_condition(0), np.random.default_rng(0))
print(env.render(64, 64).mean() > 100)
"""


def test_a_process_that_forgets_to_close_ends_quietly() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


def test_a_context_that_breaks_later_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("gladLoadGL error")

    env = make_world("pusht_reference")
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    env.render(64, 64)
    env.close()
    monkeypatch.setattr("sim.rendering.gl.mujoco.MjrContext", fail)
    with pytest.raises(RenderError, match=r"gladLoadGL error.*libegl1 libgl1"):
        env.render(64, 64)
    env.close()


@pytest.mark.parametrize("size", [(0, 10), (10, -1), (5000, 10)])
def test_impossible_sizes(size: tuple[int, int]) -> None:
    env = SceneEnv(load_scene("pusht_reference"))
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    with pytest.raises(RenderError, match="1 to 4096"):
        env.render(*size)


def test_a_command_without_opengl_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def none() -> None:
        raise RenderError("cannot draw; tried egl. apt-get install libegl1")

    monkeypatch.setattr("sim.rendering.renderer.backend", none)
    argv = ["scene", "view", "pusht_reference", "--out", str(tmp_path / "a.png")]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "libegl1" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


MODEL = """<mujoco>
  <visual><headlight ambient=".4 .4 .4" diffuse=".4 .4 .4"/><map znear=".01" zfar="20"/></visual>
  <statistic extent="2"/>
  <worldbody>
    <light pos="0 0 3" dir="0 0 -1"/>
    <geom name="floor" type="plane" size="3 3 .1" rgba="0 0 1 1"/>
    <body name="box" pos="0 0 .5"><freejoint/>
      <geom name="box" type="box" size=".2 .3 .1" rgba="1 0 0 1"/></body>
    <geom name="ball" type="sphere" size=".2" pos=".8 0 .6" rgba="0 1 0 1"/>
    <camera name="top" pos="0 0 3" fovy="50"/>
    <camera name="side" pos="2.5 .3 1.2" xyaxes="0 1 0 -.4 0 1" fovy="60"/>
    <camera name="map" pos=".2 .1 3" projection="orthographic" fovy="1.5"/>
    <camera name="sky" pos="0 0 1" euler="180 0 0" fovy="30"/>
  </worldbody></mujoco>"""


@pytest.fixture(scope="module")
def scene() -> Iterator[tuple[mujoco.MjModel, mujoco.MjData, Renderer]]:
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    update_poses(model, data)
    renderer = Renderer(model, "fast")
    yield model, data, renderer
    renderer.close()


def test_cameras_drawn_together_equal_cameras_drawn_alone(scene: Any) -> None:
    model, data, renderer = scene
    views = [View("top", 80, 60), View("side", 64, 64), View("top", 40, 90)]
    together = renderer.images(data, views)
    assert [i.shape for i in together] == [(60, 80, 3), (64, 64, 3), (90, 40, 3)]
    for image, view in zip(together, views, strict=True):
        alone = Renderer(model, "fast")
        assert np.array_equal(alone.image(data, view), image)
        alone.close()


def test_pictures_agree_with_mujocos_own_renderer(scene: Any) -> None:
    model, data, _ = scene
    ours = Renderer(model, "full")
    picture = ours.image(data, View("side", 64, 48)).astype(int)
    ours.close()
    monkey = backend().context(64, 48)
    monkey.make_current()
    context = off_screen(model)
    drawn, option = mujoco.MjvScene(model, maxgeom=100), mujoco.MjvOption()
    camera = mujoco.MjvCamera()
    camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera("side").id
    # The headlight of an update is where the camera of the update before was.
    for _ in range(2):
        mujoco.mjv_updateScene(model, data, option, None, camera, 7, drawn)
    rectangle, theirs = mujoco.MjrRect(0, 0, 64, 48), np.empty((48, 64, 3), np.uint8)
    mujoco.mjr_render(rectangle, drawn, context)
    mujoco.mjr_readPixels(theirs, None, rectangle, context)
    context.free()
    monkey.free()
    assert np.array_equal(theirs[::-1], picture)


def rays(model: Any, data: Any, camera: str, width: int, height: int) -> tuple[Any, Any]:
    """Depth and geom at every pixel, by casting a ray through its middle."""
    c = model.camera(camera).id
    parallel = camera == "map"
    focal = 0.5 * height / np.tan(np.deg2rad(model.cam_fovy[c]) / 2)
    if parallel:
        focal = height / model.cam_fovy[c]
    depth, geoms = np.full((height, width), np.inf), np.full((height, width), -1)
    rotation = data.cam_xmat[c].reshape(3, 3)
    for v in range(height):
        for u in range(width):
            ray = np.array([(u + 0.5 - width / 2) / focal, -(v + 0.5 - height / 2) / focal, -1.0])
            geom = np.zeros(1, dtype=np.int32)
            start = data.cam_xpos[c]
            if parallel:
                start, ray = start + rotation @ [*ray[:2], 0.0], np.array([0.0, 0.0, -1.0])
            unit = rotation @ ray / np.linalg.norm(ray)
            far = mujoco.mj_ray(model, data, start, unit, None, 1, -1, geom)
            if far >= 0:
                depth[v, u], geoms[v, u] = far / np.linalg.norm(ray), geom[0]
    return depth, geoms


@pytest.mark.parametrize("camera", ["top", "side", "map", "sky"])
def test_depth_and_segmentation_agree_with_rays(scene: Any, camera: str) -> None:
    model, data, renderer = scene
    view = View(camera, 48, 36)
    depth, geoms = rays(model, data, camera, 48, 36)
    drawn, ids = renderer.depth(data, view), renderer.segmentation(data, view)
    assert (ids == geoms).mean() > 0.985
    same = ids == geoms
    assert np.array_equal(np.isinf(drawn[same]), np.isinf(depth[same]))
    near = same & np.isfinite(depth)
    flat = near & (geoms != model.geom("ball").id)
    assert np.abs(drawn[flat] - depth[flat]).max(initial=0.0) < 1e-3
    # Curved surfaces are drawn as facets, which a grazing ray misses by much.
    assert np.median(np.abs(drawn[near] - depth[near])) < 1e-3 if near.any() else True


def test_the_model_is_not_changed_by_drawing_it(scene: Any) -> None:
    model, data, renderer = scene
    before = (model.vis.quality.offsamples, model.vis.global_.offwidth)
    renderer.image(data, View("top", 700, 70))
    assert (model.vis.quality.offsamples, model.vis.global_.offwidth) == before


def test_shadows_belong_to_full_and_smooth_edges_to_plain(scene: Any) -> None:
    model, data, fast = scene
    pictures = {"fast": fast.image(data, View("top", 64, 64))}
    for quality in ("plain", "full"):
        renderer = Renderer(model, quality)
        pictures[quality] = renderer.image(data, View("top", 64, 64))
        renderer.close()
    colours = {name: len(np.unique(p.reshape(-1, 3), axis=0)) for name, p in pictures.items()}
    assert colours["plain"] > colours["fast"]
    assert np.abs(pictures["fast"].astype(int) - pictures["plain"]).mean() < 2
    assert pictures["full"].sum() < pictures["plain"].sum()


def test_an_unknown_camera_lists_what_there_is(scene: Any) -> None:
    _, data, renderer = scene
    with pytest.raises(RenderError, match=r"no camera 'tpo'\. Did you mean 'top'.*side"):
        renderer.image(data, View("tpo", 32, 32))


def test_a_scene_without_a_top_camera_is_drawn_by_its_first_one(tmp_path: Path) -> None:
    source = load_scene("pusht_reference").path
    xml = (source / "scene.xml").read_text().replace('name="top"', 'name="above"')
    (tmp_path / "scene.xml").write_text(xml)
    config = (source / "scene.yaml").read_text().replace("name: top", "name: above")
    (tmp_path / "scene.yaml").write_text(config)
    env = make_world(str(tmp_path))
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    assert at(env.render(64, 64), (0.45, 0.45)).min() > 235
    env.close()
