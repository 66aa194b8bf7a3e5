"""What a person puts right is seen in the photographs first, and written without losing a line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.cli.main import main
from robolearn.errors import DataError, SceneError
from robolearn.geometry import rot_z
from robolearn.operations.scenes.by_hand import Move, Placing, override_by_hand, pose_values
from robolearn.operations.studio.documents.placed import placed_document
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.scene.config import Override
from sim.scene.load import load_scene
from tests.sim.reconstruction.worlds import World
from tests.sim.scene.test_overrides import MUG
from tests.sim.scene.test_scene_package import XML, write_scene


@pytest.fixture(scope="module")
def cell(found: Reconstruction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by_hand") / "cell"
    write_reconstructed(found, SceneChoice(), folder)
    return folder


def test_a_move_is_along_the_table_and_about_the_thing() -> None:
    T = np.eye(4)
    T[:3, 3] = 0.1, 0.2, 0.3
    moved = Move((10.0, 0.0, -5.0), (0.0, 0.0, 90.0)).applied(T)
    np.testing.assert_allclose(moved[:3, 3], [0.11, 0.2, 0.295])
    np.testing.assert_allclose(moved[:3, :3], rot_z(np.pi / 2), atol=1e-12)
    assert Move().applied(T) is not T


def test_what_is_put_wrong_fits_worse_and_what_is_put_back_as_before(
    cell: Path, capture_folder: Path, world: World
) -> None:
    name = world.things[0].name
    placing = Placing(load_scene(cell), capture_folder)
    try:
        k = next(
            k for k in range(len(placing.frames))
            if np.isfinite(placing.seen(k, {}).iou[name])
        )  # fmt: skip
        before = placing.seen(k, {})
        wrong = placing.seen(k, {name: Move((30.0, 0.0, 0.0))})
        again = placing.seen(k, {})
        with pytest.raises(DataError, match="no object 'nobody'"):
            placing.seen(k, {"nobody": Move()})
        with pytest.raises(DataError, match="pictures, got number 99"):
            placing.seen(99, {})
    finally:
        placing.close()
    assert before.iou[name] > 0.85
    assert wrong.iou[name] < before.iou[name] - 0.2
    assert again.iou == before.iou
    np.testing.assert_array_equal(again.drawn, before.drawn)


def test_the_command_of_a_move_makes_the_scene_that_was_shown(
    cell: Path, capture_folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    name = world.things[0].name
    text = (cell / "scene.yaml").read_text()
    shown = placed_document(cell, capture_folder, 0, {name: [8, -4, 0, 0, 0, 12]})
    (told,) = [o.command for o in shown.objects if o.command]
    assert main(told.split()[1:]) == 0
    assert f"{name} was changed by hand: pose" in capsys.readouterr().out
    written = placed_document(cell, capture_folder, 0, {})
    by_name = {o.name: o for o in written.objects}
    before = {o.name: o for o in shown.objects}
    np.testing.assert_allclose(by_name[name].pose, before[name].pose, atol=2e-6)
    assert by_name[name].iou == pytest.approx(before[name].iou, abs=0.02)
    assert not any(o.command for o in written.objects)
    assert main(["scene", "override", str(cell), name, "--clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by_hand"] == {}
    assert (cell / "scene.yaml").read_text() == text


@pytest.mark.parametrize(
    "values", [[1, 2, 3], [0, 0, 0, 0, 0, 1e9], [0, 0, 0, 0, 0, float("nan")], "up", None]
)
def test_moves_that_cannot_be_are_told(values: object) -> None:
    with pytest.raises(DataError, match="six numbers"):
        Move.of(values, "mug")


def test_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    folder = write_scene(
        tmp_path / "a", XML.replace("</worldbody>", MUG), overrides={"mug": {"friction": 0.5}}
    )
    path = folder / "scene.yaml"
    lines = path.read_text().replace("overrides:", "# mine\noverrides:  # by Ann")
    path.write_text(lines + "\n# the end\n")
    pose = pose_values(np.eye(4))
    override_by_hand(folder, "mug", Override(pose=pose, mass_kg=0.25))
    text = path.read_text()
    assert "# mine\n" in text
    assert text.endswith("# the end\n")
    written = yaml.safe_load(text)["overrides"]["mug"]
    assert written == {"friction": 0.5, "pose": list(pose), "mass_kg": 0.25}
    override_by_hand(folder, "mug", None)
    assert "overrides" not in yaml.safe_load(path.read_text())
    assert "# mine\n" in path.read_text()
    with pytest.raises(SceneError, match="nothing of 'mug' was set by hand"):
        override_by_hand(folder, "mug", None)


def test_what_cannot_be_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_scene(tmp_path / "a", XML.replace("</worldbody>", MUG))
    path = folder / "scene.yaml"
    text = path.read_text()
    words = ["scene", "override", str(folder)]
    for more, said in (
        (["mgu", "--mass-kg", "1"], "Did you mean 'mug'"),
        (["mug", "--mass-kg", "-1"], "above 0 kg"),
        (["mug", "--mass-kg", "nan"], "--mass-kg must be finite, got nan"),
        (["mug", "--pose", *["0", "0", "0", "2", "0", "0", "0"]], "unit quaternion"),
        (["mug"], "--clear"),
        (["mug", "--clear", "--mass-kg", "1"], "--clear"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
        assert path.read_text() == text
    path.write_text(json.dumps(yaml.safe_load(text)))
    assert main([*words, "mug", "--mass-kg", "1"]) == 2
    assert "write this into it: overrides:" in capsys.readouterr().err
    assert main(["scene", "override", "pusht_ur5e", "block", "--mass-kg", "1"]) == 2
    assert "comes with a package" in capsys.readouterr().err
