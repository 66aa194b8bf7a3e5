"""A scene that matches its table is used, one that does not is refused, with what to do."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from robolearn.capture.folder import read_capture
from robolearn.cli.main import main
from robolearn.errors import SceneError
from robolearn.operations.scenes.page import verified_page
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.verify import Limit, Measure, judging_frames, verify
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.scene.load import load_scene
from tests.sim.reconstruction.worlds import World


@pytest.fixture(scope="module")
def cell(found: Reconstruction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an arm, which no picture shows."""
    folder = tmp_path_factory.mktemp("verified") / "cell"
    write_reconstructed(found, SceneChoice(arm="ur5e_table"), folder)
    return folder


def test_a_good_scene_is_used(
    cell: Path, capture_folder: Path, world: World, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    page = tmp_path / "page.html"
    words = ["scene", "verify", str(cell), "--capture", str(capture_folder), "--out", str(page)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # At 160 pixels a side's worth of a silhouette's rim is a pixel: the benchmark has 640.
    assert found["verdict"] in ("use", "use with care")
    assert found["held_out"]
    assert found["pictures"] == 2
    assert set(found["silhouettes"]) == {t.name for t in world.things}
    assert min(found["silhouettes"].values()) > 0.9
    values = {name: m["value"] for name, m in found["measures"].items()}
    assert values["depth of objects and the table beside them"] < 1.0
    assert values["outlines against the photograph's edges"] <= 1.0
    assert values["objects stay where they were found"] < 1.5
    assert values["what stands on the table and is not in the scene"] < 2.0
    text = page.read_text()
    assert text.count('type="range"') == 2
    assert "What nobody measured" in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_scene_that_is_wrong_is_refused(cell: Path, capture_folder: Path, world: World) -> None:
    name = world.things[0].name
    xml = (cell / "scene.xml").read_text()
    raw = yaml.safe_load((cell / "scene.yaml").read_text())
    at = load_scene(cell).compile().body(name).pos
    old = " ".join(f"{float(v):.7g}" for v in at)
    assert old in xml
    moved = " ".join(f"{float(v):.7g}" for v in at + np.array([0.03, 0.0, 0.02]))
    (cell / "scene.xml").write_text(xml.replace(old, moved, 1))
    try:
        found = verify(load_scene(cell), read_capture(capture_folder))
    finally:
        (cell / "scene.xml").write_text(xml)
    assert found.verdict == "refuse"
    by_name = {m.limit.name: m for m in found.measures}
    assert by_name["silhouette of the worst object, IoU"].verdict == "refuse"
    assert by_name["objects stay where they were found"].verdict == "refuse"
    assert any(name in text for text in found.advice)
    assert "refuse" in verified_page(found)
    del raw


def test_pictures_of_another_capture_are_said_not_to_be_kept_back(
    cell: Path, capture_folder: Path
) -> None:
    capture = read_capture(capture_folder)
    held = set(load_scene(cell).config.provenance.details["pictures"]["held_out"])
    others = tuple(f for f in capture.frames if f.name not in held)[:3]
    found = verify(load_scene(cell), dataclasses.replace(capture, frames=others))
    assert not found.held_out
    assert any("used to make the scene" in text for text in found.said)
    # What shows no object is not the worst of all pictures, and no number is "nan".
    nothing = {"iou": {}, "edge_px": np.nan, "depth_mm": np.nan, "robot": np.nan}
    blind = dataclasses.replace(found.views[0], name="scan/blind.png", **nothing)
    page = verified_page(dataclasses.replace(found, views=(blind, *found.views[1:])))
    assert "blind.png" not in page
    assert found.views[1].name in page
    alone = verified_page(dataclasses.replace(found, views=(blind,)))
    assert "scan/blind.png: nothing in it is judged" in alone
    assert "nan mm" not in alone


def test_a_later_capture_of_the_same_name_is_another_one(
    cell: Path, capture_folder: Path, tmp_path: Path
) -> None:
    scene = load_scene(cell)
    details = scene.config.provenance.details
    (name, *_) = details["pictures"]["held_out"]
    later = tmp_path / "later"
    shutil.copytree(capture_folder, later)
    picture = cv2.imread(str(later / name))
    picture[0, 0] ^= 255
    cv2.imwrite(str(later / name), picture)
    capture = read_capture(later)
    assert capture.config.name == details["capture"]
    # Where registration put the picture that was kept back, this one was not taken.
    elsewhere = np.eye(4)
    elsewhere[0, 3] = 9.0
    poses = {"pictures": {**details["pictures"], "poses": {name: elsewhere.tolist()}}}
    frames, held_out = judging_frames(read_capture(capture_folder), {**details, **poses})
    assert held_out
    assert any(f.T_table_camera[0, 3] == 9.0 for f in frames)
    frames, held_out = judging_frames(capture, {**details, **poses})
    assert not held_out
    assert len(frames) > 2
    assert all(f.T_table_camera[0, 3] < 1.0 for f in frames)


def test_a_scene_that_was_made_by_hand_cannot_be_verified(capture_folder: Path) -> None:
    with pytest.raises(SceneError, match="hand-made"):
        verify(load_scene("ur5e_table"), read_capture(capture_folder))


def test_limits() -> None:
    def verdict(value: float, *, more: bool = False) -> str:
        good, bearable = (0.9, 0.8) if more else (3.0, 8.0)
        return Measure(Limit("m", "", good, bearable, more, ""), value).verdict

    assert [verdict(v) for v in (2.0, 5.0, 9.0)] == ["use", "use with care", "refuse"]
    assert [verdict(v, more=True) for v in (0.95, 0.85, 0.1)] == [
        "use",
        "use with care",
        "refuse",
    ]
    assert verdict(float("nan")) == "refuse"
