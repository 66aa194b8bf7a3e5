"""Scene packages: what is refused, and how the message helps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from robolearn.errors import SceneError
from sim.scene.config import Frame
from sim.scene.load import SCENES, content_hash, load_scene, packaged_scenes

XML = """
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <site name="table" pos=".1 .2 .3" euler="0 0 90"/>
    <camera name="top" pos="0 0 1"/>
    <body name="tool">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
      <geom size=".01" mass="1"/><site name="tool"/>
    </body>
    <body name="block">
      <joint name="bx" type="slide" axis="1 0 0"/><joint name="by" type="slide" axis="0 1 0"/>
      <joint name="byaw" type="hinge" axis="0 0 1" pos=".02 0 0"/>
      <geom size=".01 .01 .01" type="box" pos=".1 .1 0" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <position name="ax" joint="x" kp="100"/><position name="ay" joint="y" kp="100"/>
  </actuator>
</mujoco>
"""
CONFIG = {
    "schema": 1,
    "name": "small",
    "robot": {"name": "planar"},
    "rate_hz": 10,
    "physics": {"timestep_s": 0.01},
    "control": {
        "kind": "planar",
        "joints": ["x", "y"],
        "actuators": ["ax", "ay"],
        "action": "tool/xy_table",
    },
    "signals": [
        {
            "name": "tool/xy_table",
            "kind": "site_xy",
            "of": ["tool"],
            "rate_hz": 10,
            "frame": "table",
        },
        {
            "name": "block/pose",
            "kind": "body_pose_xy",
            "of": ["block"],
            "rate_hz": 10,
            "frame": "table",
        },
        {"name": "tool/velocity", "kind": "joint_velocity", "of": ["x", "y"], "rate_hz": 50},
    ],
    "actions": [{"name": "tool/xy_table", "low": [0, 0], "high": [0.512, 0.512], "frame": "table"}],
    "frames": {"table": "table"},
    "cameras": [{"name": "top"}],
    "task": {"name": "pusht"},
    "reset": {"distribution": "gym_pusht", "settable": ["tool/xy_table", "block/pose"]},
    "provenance": {"kind": "hand-made"},
}


def write_scene(folder: Path, xml: str = XML, **changes: object) -> Path:
    """A small scene package; ``changes`` replace keys of ``scene.yaml`` (None removes one)."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changes}
    config = {k: v for k, v in config.items() if v is not None}
    (folder / "scene.yaml").write_text(yaml.safe_dump(config))
    (folder / "scene.xml").write_text(xml)
    return folder


def test_every_packaged_scene_is_valid_and_carries_its_folder_s_name() -> None:
    assert {"pusht_reference", "pusht_naive"} <= set(packaged_scenes())
    for name in packaged_scenes():
        assert load_scene(name).name == name


def test_a_folder_is_a_scene_too(tmp_path: Path) -> None:
    assert load_scene(write_scene(tmp_path)).name == "small"
    assert load_scene(str(tmp_path)).config.substeps == 10


def test_unknown_names_suggest_and_list() -> None:
    with pytest.raises(SceneError, match=r"Did you mean 'pusht_reference'.*Packaged scenes"):
        load_scene("pusht_refrence")


@pytest.mark.parametrize("missing", ["scene.yaml", "scene.xml"])
def test_missing_files(tmp_path: Path, missing: str) -> None:
    (write_scene(tmp_path) / missing).unlink()
    with pytest.raises(SceneError, match=f"lacks {missing}"):
        load_scene(tmp_path)


def test_missing_asset(tmp_path: Path) -> None:
    xml = XML.replace("<worldbody>", '<asset><mesh name="m" file="gone.obj"/></asset><worldbody>')
    with pytest.raises(SceneError, match=r"scene.xml.*gone.obj"):
        load_scene(write_scene(tmp_path, xml))


def test_broken_xml_and_yaml(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=r"scene\.xml"):
        load_scene(write_scene(tmp_path, "<mujoco><worldbody>"))
    (tmp_path / "scene.yaml").write_text("a: [1, 2")
    with pytest.raises(SceneError, match="not valid YAML"):
        load_scene(tmp_path)


SIGNAL = CONFIG["signals"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "update robolearn"),
        ({"schema": None}, "schema: 1"),
        ({"schema": 0}, "1 to 1"),
        ({"rate_herz": 10}, "unknown key 'rate_herz'.*Did you mean 'rate_hz'"),
        ({"robot": None}, "'robot' is missing"),
        ({"physics": {"timestep_s": 0.005}}, "scene.xml says 0.01"),
        ({"rate_hz": 30}, "whole number"),
        ({"frames": {"table": "tabble"}}, "no site 'tabble'.*Did you mean 'table'"),
        ({"cameras": [{"name": "topp"}]}, "no camera 'topp'.*Did you mean 'top'"),
        ({"task": {"name": "pusht", "params": {"speed": 1}}}, "task.params.*speed"),
        ({"reset": {"distribution": "gym_push", "settable": []}}, "Did you mean 'gym_pusht'"),
        ({"task": {"name": "push"}}, "task.name: no task 'push'.*Did you mean 'pusht'"),
        ({"control": {"kind": "plannar"}}, "Did you mean 'planar'"),
        ({"signals": [{**SIGNAL, "of": ["tol"]}]}, "no site 'tol'.*Did you mean 'tool'"),
        ({"signals": [{**SIGNAL, "of": []}]}, "'of' is empty"),
        ({"signals": [{**SIGNAL, "of": ["tool", "table"]}]}, "reads one object"),
        ({"signals": [{**SIGNAL, "frame": "tabble"}]}, "no frame 'tabble'"),
        ({"signals": [{**SIGNAL, "rate_hz": 30}]}, "multiple of 10"),
        ({"signals": [{**SIGNAL, "rate_hz": 0}]}, "multiple of 10"),
        ({"signals": [{**SIGNAL, "kind": "site_xyz"}]}, "Did you mean 'site_xy'"),
        (
            {"signals": [{"name": "a/b", "kind": "joint_position", "of": ["z"], "rate_hz": 10}]},
            "no joint 'z'",
        ),
        ({"actions": [{"name": "a/b", "low": [1.0], "high": [0.0]}]}, "low must be below high"),
        (
            {"reset": {"distribution": "x", "settable": ["blockk/pose"]}},
            "Did you mean 'block/pose'",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    folder = write_scene(tmp_path, **changes)
    with pytest.raises(SceneError, match=f"(?s){message}"):
        load_scene(folder)


def test_the_hash_covers_every_file_but_no_hidden_one(tmp_path: Path) -> None:
    folder = write_scene(tmp_path / "a")
    first = content_hash(folder)
    (folder / ".note").write_text("x")
    assert content_hash(folder) == first
    copy = shutil.copytree(folder, tmp_path / "b")
    assert content_hash(copy) == first
    (folder / "asset.txt").write_text("x")
    assert content_hash(folder) != first


CORNERS = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
FACES = ("1 3 2", "1 2 4", "1 4 3", "2 3 4")


def write_mesh(path: Path, size: float) -> None:
    """A tetrahedron."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"v {size * x} {size * y} {size * z}" for x, y, z in CORNERS]
    path.write_text("\n".join([*lines, *(f"f {face}" for face in FACES), ""]))


def with_mesh(folder: Path, file: str, compiler: str = "") -> Path:
    """A scene whose model names a mesh of the block."""
    asset = f'<asset><mesh name="m" file="{file}"/></asset><worldbody>'
    return write_scene(folder, XML.replace("<worldbody>", compiler + asset))


def test_the_hash_covers_meshes_wherever_they_lie_in_the_package(tmp_path: Path) -> None:
    for number, (file, compiler) in enumerate(
        (("m.obj", ""), ("parts/m.obj", ""), ("m.obj", '<compiler meshdir="parts"/>'))
    ):
        folder = with_mesh(tmp_path / f"s{number}", file, compiler)
        place = folder / ("parts/m.obj" if compiler else file)
        write_mesh(place, 0.1)
        first = load_scene(folder).content_hash
        write_mesh(place, 0.2)
        assert load_scene(folder).content_hash != first
    # A folder that lies elsewhere is looked into; one that leads back to itself is no trap.
    folder = with_mesh(tmp_path / "linked", "parts/m.obj")
    write_mesh(tmp_path / "elsewhere" / "m.obj", 0.1)
    (folder / "parts").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(folder)
    first = load_scene(folder).content_hash
    write_mesh(tmp_path / "elsewhere" / "m.obj", 0.2)
    assert load_scene(folder).content_hash != first


@pytest.mark.parametrize(
    ("file", "compiler", "said"),
    [
        ("../m.obj", "", "not in the scene's folder"),
        ("ABSOLUTE", "", "not in the scene's folder"),
        ("m.obj", '<compiler meshdir=".."/>', "not in the scene's folder"),
        (".parts/m.obj", "", "hidden"),
        ("m.obj", '<compiler assetdir=".parts"/>', "hidden"),
        ("__pycache__/m.obj", "", "hidden"),
    ],
)
def test_a_model_that_needs_what_its_hash_does_not_cover_is_refused(
    tmp_path: Path, file: str, compiler: str, said: str
) -> None:
    for place in ("m.obj", "s/.parts/m.obj", "s/__pycache__/m.obj"):
        write_mesh(tmp_path / place, 0.1)
    file = file.replace("ABSOLUTE", str(tmp_path / "m.obj"))
    folder = with_mesh(tmp_path / "s", file, compiler)
    with pytest.raises(SceneError, match=f"{said}.*copy it into the folder"):
        load_scene(folder)
    # A file that is included is looked at, too.
    inner = folder / "scene.xml"
    (folder / "inner.xml").write_text(inner.read_text())
    inner.write_text('<mujoco><include file="inner.xml"/></mujoco>')
    with pytest.raises(SceneError, match=f"inner.xml needs .*{said}"):
        load_scene(folder)


def test_frames_round_trip() -> None:
    import numpy as np

    from sim.scene.signals import in_plane

    c, s = np.cos(0.3), np.sin(0.3)
    frame = Frame(np.array([[c, -s], [s, c]]), np.array([0.1, -0.2]), 0.3, 0.0)
    # What is commanded in a frame is seen there.
    xy, seen = np.array([0.4, 0.5]), np.zeros(2)
    in_plane(frame, np.array([*frame.to_world(xy), 0.0]), seen)()
    assert np.allclose(seen, xy, atol=1e-15)


def test_identification_cannot_have_read_the_reference() -> None:
    root = SCENES.parent
    sources = [*(root / "identification").glob("*.py")]
    assert {"search.py", "planar_rollouts.py", "write_scene.py"} <= {p.name for p in sources}
    sources += (root.parent / "robolearn").rglob("identify.py")
    for path in sources:
        assert "pusht_reference" not in path.read_text(), path
