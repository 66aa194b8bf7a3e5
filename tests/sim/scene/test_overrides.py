"""What a person writes into scene.yaml comes on top of the MJCF, and is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import mujoco
import numpy as np
import pytest

from robolearn.errors import SceneError
from sim.reconstruction.mjcf.template import arm_template
from sim.scene.load import load_scene
from sim.scene.overrides import by_hand_sentences
from sim.scene.package import replaced_package, require_replaceable
from tests.sim.scene.test_scene_package import XML, write_scene

MUG = """<body name="mug" pos="1 0 0.1" euler="0 0 30"><freejoint/>
  <geom size=".03 .04 .05" type="box" mass=".2" friction=".9 .005 .0001"/></body></worldbody>"""


def test_pose_mass_and_friction_are_replaced(tmp_path: Path) -> None:
    xml = XML.replace("</worldbody>", MUG)
    before = load_scene(write_scene(tmp_path / "a", xml)).compile()
    pose = [0.1, 0.0, 0.05, 1.0, 0.0, 0.0, 0.0]
    values = {"pose": pose, "mass_kg": 0.3, "friction": 0.25}
    scene = load_scene(write_scene(tmp_path / "b", xml, overrides={"mug": values}))
    model = scene.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    # The table's frame stands at .1 .2 .3 and is turned by 90 degrees.
    np.testing.assert_allclose(data.body("mug").xpos, [0.1, 0.3, 0.35], atol=1e-9)
    turned = data.body("mug").xmat.reshape(3, 3)[:, 0]
    np.testing.assert_allclose(turned, [0.0, 1.0, 0.0], atol=1e-9)
    mug = model.body("mug").id
    assert model.body_mass[mug] == pytest.approx(0.3)
    np.testing.assert_allclose(model.body_inertia[mug], 1.5 * before.body_inertia[mug])
    geom = int(model.body_geomadr[mug])
    assert model.geom_friction[geom, 0] == 0.25
    # Where two surfaces meet, the one that was set counts.
    assert model.geom_priority[geom] == 1
    by_hand = scene.config.provenance.details["by_hand"]["mug"]
    assert by_hand["mass_kg"] == [0.2, 0.3]
    assert by_hand["friction"] == [0.9, 0.25]
    assert by_hand["pose"][1] == pose
    (sentence,) = by_hand_sentences(scene.config.provenance.details)
    assert "mug was changed by hand: mass_kg from 0.2 to 0.3" in sentence
    assert scene.content_hash != load_scene(tmp_path / "a").content_hash


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"mgu": {"mass_kg": 1.0}}, "Did you mean 'mug'"),
        ({"mug": {"mass_kg": 0.0}}, "above 0 kg"),
        ({"mug": {"friction": -1.0}}, "not negative"),
        ({"mug": {"pose": [0.0, 0.0, 0.0]}}, "unit quaternion"),
        ({"mug": {"weight": 1.0}}, "unknown key 'weight'"),
        ({"world": {"mass_kg": 1.0}}, "no body 'world'"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, overrides: dict, message: str) -> None:
    xml = XML.replace("</worldbody>", MUG)
    with pytest.raises(SceneError, match=message):
        load_scene(write_scene(tmp_path, xml, overrides=overrides))


def test_what_a_person_put_right_is_not_replaced(tmp_path: Path) -> None:
    """Reconstructing again deleted the overrides without a word."""
    xml, kind = XML.replace("</worldbody>", MUG), {"kind": "reconstructed"}
    out = write_scene(tmp_path / "a", xml, provenance=kind, overrides={"mug": {"friction": 0.5}})
    with pytest.raises(SceneError, match=r"overrides by hand of \['mug'\]"):
        require_replaceable(out, "reconstructed")
    require_replaceable(write_scene(tmp_path / "b", xml, provenance=kind), "reconstructed")


def test_files_of_somebody_else_in_a_scene_are_not_deleted_with_it(tmp_path: Path) -> None:
    """Writing a scene anew deleted everything in its folder without a word."""
    made = write_scene(tmp_path / "made", XML, provenance={"kind": "reconstructed"})
    out = tmp_path / "cell"

    def write() -> None:
        with replaced_package(out, "reconstructed") as folder:
            shutil.copytree(made, folder)
            (folder / "meshes").mkdir()
            (folder / "meshes/a.obj").touch()

    write()
    (out / "drift.json").touch()
    (out / ".DS_Store").touch()
    write()
    assert (out / "meshes/a.obj").exists()
    assert not (out / "drift.json").exists()
    (out / "meshes/mine.stl").touch()
    (out / "notes.txt").write_text("the mug's handle is glued")
    with pytest.raises(SceneError, match=r"not of the scene \(meshes/mine.stl, notes.txt\)"):
        write()
    assert (out / "notes.txt").exists()
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(SceneError, match="is a link"):
        require_replaceable(tmp_path / "link", "reconstructed")


def test_overrides_of_things_that_go_are_not_taken_with_the_robot(tmp_path: Path) -> None:
    out = tmp_path / "cell"
    shutil.copytree(load_scene("pick_place_ur5e").path, out)
    with (out / "scene.yaml").open("a") as file:
        file.write("overrides: {cube: {mass_kg: 0.5}}\n")
    assert "overrides" not in arm_template(str(out), None)[0].raw
