"""What is wrong with a scene package is found before anything is trained on it, and named."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.errors import SceneError
from sim.env.scene_check import check_scene, project
from sim.env.scene_env import SceneEnv
from sim.rendering.renderer import View
from sim.scene.load import SCENES, load_scene, packaged_scenes


def changed(folder: Path, scene: str, *edits: tuple[str, str, str]) -> Path:
    """A copy of a packaged scene; an edit replaces text (which must be there) in a file."""
    folder.mkdir(exist_ok=True)
    for path in (SCENES / scene).iterdir():
        text = path.read_text()
        for name, old, new in edits:
            if name == path.name:
                assert old in text, (name, old)
                text = text.replace(old, new, 1)
        (folder / path.name).write_text(text)
    return folder


@pytest.mark.parametrize("name", packaged_scenes())
def test_every_packaged_scene_passes(name: str) -> None:
    report = check_scene(load_scene(name))
    assert report.schema == 1
    assert report.engine.startswith("mujoco ")
    assert report.content_hash == load_scene(name).content_hash
    assert all(camera.sees for camera in report.cameras)
    assert all(mass > 0 for mass in report.moving_kg.values())


XML, YAML = "scene.xml", "scene.yaml"
CUBE = '<geom name="cube" class="object" type="box" size=".02 .02 .02" mass=".06"'
TOP = '<camera name="top" pos="1.35 0 .95" mode="targetbody" target="gaze"'
LOOK = 'mode="targetbody" target="gaze"'
HOME = "home: [0.0, -0.0418, 0.0, -2.3343, 0.0, 2.2925, 0.7854]"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ((XML, "<asset>", '<asset><mesh name="m" file="gone.obj"/>'), "gone.obj"),
        ((XML, "<asset>", '<asset><texture name="t" type="2d" file="gone.png"/>'), "gone.png"),
        ((YAML, "joints: [joint1, joint2", "joints: [joint1, joint9"), "no joint 'joint9'"),
        ((YAML, "of: [joint1, joint2", "of: [joint1, joint9"), "no joint 'joint9'"),
        ((YAML, "actuators: [joint1", "actuators: [joint0"), "no actuator 'joint0'"),
        ((XML, CUBE, CUBE.replace('".06"', '"0"')), "mass and inertia of moving bodies"),
        (
            (
                XML,
                '<freejoint name="cube"/>',
                '<freejoint name="cube"/><inertial pos="0 0 0" mass=".1" diaginertia="1 1 3"/>',
            ),
            "inertia must satisfy A \\+ B >= C",
        ),
        (
            (XML, '<compiler autolimits="true"/>', '<compiler balanceinertia="true"/>'),
            "replaces inconsistent inertias silently",
        ),
        ((XML, TOP, TOP.replace("1.35 0 .95", ".5 .1 -.02")), "camera top is inside geom 'table'"),
        ((XML, TOP, TOP.replace(LOOK, 'euler="180 0 0"')), "sees nothing of the workspace"),
        ((YAML, HOME, HOME.replace("-2.3343", "0.5")), "not within the joint limits"),
        ((YAML, "low: [-0.15, -0.2, 0.02, -3.1]", "low: [-0.15, -0.2, 0.02]"), "of one length"),
        (
            (YAML, HOME, "home: [0.0, 0.9, 0.0, -1.9, 0.0, 2.8, 0.785]"),
            "mm deep in geom 'table'|mm deep in .*body 'hand'|mm deep in",
        ),
        ((YAML, "schema: 1", "schema: 7"), "update robolearn"),
    ],
)
def test_each_fault_is_named(tmp_path: Path, edit: tuple[str, str, str], message: str) -> None:
    with pytest.raises(SceneError, match=f"(?s){message}"):
        check_scene(load_scene(changed(tmp_path, "panda_table", edit)))


def test_a_distribution_out_of_reach(tmp_path: Path) -> None:
    far = "tool/pose: {low: [1.0, 0.0, 0.3, 0.0], high: [1.2, 0.1, 0.4, 0.1]}"
    edit = (YAML, "uniform: {cube/pose:", "uniform: {" + far + ", cube/pose:")
    with pytest.raises(SceneError, match=r"draws a start that cannot be reached.*seed"):
        check_scene(load_scene(changed(tmp_path, "panda_table", edit)))


def test_a_distribution_beyond_the_table(tmp_path: Path) -> None:
    edit = (YAML, "area: [[-0.15, 0.15]", "area: [[-1.15, -1.0]")
    with pytest.raises(SceneError, match=r"over before it begins \(seed 0\): out_of_reach"):
        check_scene(load_scene(changed(tmp_path, "pick_place", edit)))


def test_an_arm_that_sags(tmp_path: Path) -> None:
    text = (SCENES / "panda_table" / "panda.xml").read_text().replace(' gravcomp="1"', "")
    folder = changed(
        tmp_path,
        "panda_table",
        (
            YAML,
            HOME,
            f"{HOME}\n      gains: {{kp: [80, 80, 80, 80, 80, 80, 80], kv: [9, 9, 9, 9, 9, 9, 9]}}",
        ),
    )
    (folder / "panda.xml").write_text(text)
    with pytest.raises(SceneError, match="tool/pose drifts"):
        check_scene(load_scene(folder))


def test_projection_is_where_the_picture_shows_it() -> None:
    env = SceneEnv(load_scene("panda_table"))
    env.reset(env.sample_condition(1), np.random.default_rng(0))
    red = env.model.geom("cube").rgba[:3]
    assert red[0] > 3 * red[1]
    from sim.rendering.renderer import Renderer

    renderer = Renderer(env.model)
    for camera in ("agent", "wrist"):
        view = View(camera, 200, 160)
        picture = renderer.images(env.data, [view])[0].astype(float)
        (pixel,) = project(env.model, env.data, view, env.data.body("cube").xpos[None])
        mask = (picture[..., 0] > 2 * picture[..., 1]) & (picture[..., 0] > 60)
        assert mask.any()
        rows, columns = np.nonzero(mask)
        assert abs(columns.mean() - pixel[0]) < 4
        assert abs(rows.mean() - pixel[1]) < 4
        assert pixel[2] > 0.1
    renderer.close()
    env.close()


def test_the_command_prints_what_was_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scene", "check", "so101_table"]) == 0
    text = capsys.readouterr().out
    for part in ("so101_table: valid", "schema, engine", "joint 5", "mass jaw", "camera wrist"):
        assert part in text
    assert main(["scene", "check", "so101_table", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["engine"].startswith("mujoco ")
    assert document["cameras"][0]["sees"]
    assert document["hash"] == load_scene("so101_table").content_hash


def test_each_camera_can_be_viewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.png"
    size = ["--width", "64", "--height", "48"]
    assert main(["scene", "view", "so101_table", "--camera", "all", "--out", str(out), *size]) == 0
    written = capsys.readouterr().out.split()
    assert [Path(p).name for p in written] == ["a-top.png", "a-agent.png", "a-wrist.png"]
    pictures = [cv2.imread(p) for p in written]
    assert all(p is not None and p.shape == (48, 64, 3) and p.std() > 5 for p in pictures)
    assert main(["scene", "view", "so101_table", "--camera", "wrsit", "--out", str(out)]) == 2
    assert "Did you mean 'wrist'" in capsys.readouterr().err
