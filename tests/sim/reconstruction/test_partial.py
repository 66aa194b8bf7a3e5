"""What cannot be made leaves everything else as it is, and is named wherever the scene is."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.capture.config import CaptureObject
from robolearn.capture.folder import read_capture
from robolearn.cli.main import main
from robolearn.errors import DataError, SceneError
from sim.reconstruction import pipeline
from sim.reconstruction.bodies import Body, make_body
from sim.reconstruction.meshes import solid
from sim.reconstruction.mjcf.body import require_simulable
from sim.reconstruction.objects import Scanned
from sim.reconstruction.pipeline import Reconstruction, reconstruct
from sim.reconstruction.verify import Measure, verify
from sim.reconstruction.write_scene import SceneChoice, choose, write_reconstructed
from sim.scene.load import load_scene
from tests.sim.reconstruction.worlds import World


def failing(names: set[str]) -> Callable[..., Scanned]:
    """Scans as ever, but for these things, of which nothing was seen."""
    scan = pipeline.scan_object

    def scan_object(name, *rest):
        if name in names:
            raise DataError("the volume holds no surface: nothing was seen in it")
        return scan(name, *rest)

    return scan_object


@pytest.fixture
def partial(capture_folder: Path, tmp_path: Path) -> Path:
    """The capture whose cylinder has a mass that no engine takes, and that names one thing more."""
    folder = tmp_path / "capture"
    shutil.copytree(capture_folder, folder)
    raw = yaml.safe_load((folder / "capture.yaml").read_text())
    for entry in raw["objects"]:
        if entry["name"] == "cylinder_1":
            entry["mass_kg"] = 1e-17
    raw["objects"].append({"name": "mug", "at_m": [0.9, 0.9]})
    (folder / "capture.yaml").write_text(yaml.safe_dump(raw))
    return folder


def test_the_rest_is_written_and_every_word_about_it_names_what_is_missing(
    partial: Path,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pipeline, "scan_object", failing({"box_0"}))
    out = tmp_path / "scene"
    assert main(["reconstruct", str(partial), "--out", str(out)]) == 1
    told = capsys.readouterr().out
    assert "missing: box_0: no body can be made of it: the volume holds no surface" in told
    assert "missing: cylinder_1: no body can be made of it: the engine does not take" in told
    assert "missing: mug: not found" in told
    scene = load_scene(out)
    details = scene.config.provenance.details
    assert list(details["objects"]) == [world.things[2].name]
    assert set(details["missing"]) == {"box_0", "cylinder_1", "mug"}
    assert [c.name for c in scene.config.cameras] == ["top", "agent"]
    assert (out / "textures" / "table_photographed.png").is_file()
    model = scene.compile()
    assert {model.body(k).name for k in range(model.nbody)} == {"world", world.things[2].name}
    page = tmp_path / "page.html"
    words = ["scene", "verify", str(out), "--capture", str(partial), "--out", str(page)]
    assert main([*words, "--json"]) in (0, 2)
    verified = json.loads(capsys.readouterr().out)
    assert verified["verdict"] != "use"
    assert set(verified["missing"]) == {"box_0", "cylinder_1", "mug"}
    assert any("is in the capture and not in the scene" in text for text in verified["advice"])
    text = page.read_text()
    assert "box_0 is missing: no body can be made of it: the volume holds no surface" in text
    assert "mug: not in the scene" in text


def test_a_scene_that_has_everything_but_one_thing_is_used_with_care_at_most(
    found: Reconstruction, capture_folder: Path, tmp_path: Path
) -> None:
    named = dataclasses.replace(found, missing={"mug": "not found among what stands on the table"})
    scene = write_reconstructed(named, SceneChoice(), tmp_path / "scene")
    judged = verify(scene, read_capture(capture_folder))
    (measure,) = (m for m in judged.measures if m.limit.name.startswith("things of the capture"))
    assert measure == Measure(measure.limit, 0.0, "mug")
    assert measure.verdict == "use with care"
    assert judged.verdict != "use"
    # A task that cannot do without it says so.
    choice = SceneChoice("pick_place", "pick_place_ur5e")
    with pytest.raises(SceneError, match=r"Not in the scene: mug: not found.*--task free"):
        write_reconstructed(named, choice, tmp_path / "cell")


def test_nothing_at_all_is_no_scene(
    capture_folder: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "scan_object", failing({t.name for t in world.things}))
    with pytest.raises(SceneError, match=r"nothing of what stands there can be made \(.*box_0"):
        reconstruct(read_capture(capture_folder))


def test_what_is_no_body_is_refused_by_itself(found: Reconstruction) -> None:
    def refuse(body: Body, **changes: object) -> None:
        with pytest.raises(SceneError, match="the engine does not take its body"):
            require_simulable(dataclasses.replace(body, **changes))

    body = found.bodies[2]
    require_simulable(body)
    refuse(body, inertia=np.diag([1e-5, 1e-5, 1e-3]))
    refuse(body, parts=(body.parts[0][:3],))
    flat = body.vertices * [1.0, 1.0, 0.0]
    with pytest.raises(DataError, match="encloses no volume"):
        solid(flat, body.faces)


def test_a_name_that_the_robot_has_is_refused_before_anything_is_computed(
    found: Reconstruction, tmp_path: Path
) -> None:
    config = dataclasses.replace(found.capture.config, objects=(CaptureObject("table"),))
    with pytest.raises(SceneError, match="object 'table' has the name of a part"):
        choose(config, SceneChoice(arm="ur5e_table"), tmp_path / "cell")


def test_moments_hold_the_truth_and_say_how_they_are_known(
    found: Reconstruction, world: World
) -> None:
    box, cylinder = found.bodies[0], found.bodies[1]
    half = np.array(world.things[0].parts[0][1])
    kg = world.things[0].mass_kg
    of_box = (
        kg
        / 3.0
        * np.array(
            [half[1] ** 2 + half[2] ** 2, half[0] ** 2 + half[2] ** 2, half[0] ** 2 + half[1] ** 2]
        )
    )
    r, h = world.things[1].parts[0][1]
    kg = world.things[1].mass_kg
    across = kg * (3 * r**2 + (2 * h) ** 2) / 12.0
    of_cylinder = np.array([across, across, kg * r**2 / 2.0])
    for body, truth in ((box, of_box), (cylinder, of_cylinder)):
        low, high = np.array(body.moments.low_kg_m2), np.array(body.moments.high_kg_m2)
        values = np.array(body.moments.kg_m2)
        assert (low < np.sort(truth)).all()
        assert (np.sort(truth) < high).all()
        np.testing.assert_allclose(values, np.sort(truth), rtol=0.1)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(body.inertia), rtol=1e-9)
        # Weighed: what is left is that of the shape.
        assert (high < 1.5 * low).all()
        assert "mass, as known (drawn), is spread evenly" in body.moments.source
        (entry,) = (a for a in found.assumed if a.what == f"inertia of {body.name}")
        assert "nobody measured" in entry.why


def test_a_mass_that_was_not_weighed_widens_the_moments(found: Reconstruction) -> None:
    body = found.bodies[0]
    guessed = np.zeros(len(body.vertices), bool)
    scanned = Scanned("a", body.vertices, body.faces, guessed, 0.0, 0.0015)
    kg = body.mass.kg
    known, _, _ = make_body(scanned, CaptureObject("a", mass_kg=kg))
    free, assumed, _ = make_body(scanned, None)
    assert free.moments.source.startswith("assumed: the mass, assumed, is spread")
    assert [a.what for a in assumed] == ["mass of a", "inertia of a"]
    ratios = [np.array(b.moments.high_kg_m2) / np.array(b.moments.low_kg_m2) for b in (known, free)]
    np.testing.assert_allclose(ratios[1], 4.0 * ratios[0], rtol=1e-6)
    # Thinner than what the surface may be off by: nothing says that it is not nearly nothing.
    thin = dataclasses.replace(scanned, vertices=scanned.vertices * [1, 1, 0.02])
    assert make_body(thin, None)[0].moments.low_kg_m2[0] == 0.0
