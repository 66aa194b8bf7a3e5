"""A scene whose arm was identified still knows what its reconstruction did."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from robolearn.capture.folder import read_capture
from robolearn.capture.write import write_motion
from robolearn.operations.scenes.identify_arm import identify_capture
from robolearn.operations.studio.documents.scene import scene_document
from sim.identification.arm_excitation import multisine
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentifyConfig
from sim.identification.arm_model import ArmModel
from sim.reconstruction.drift import Tolerance, by_capture
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.verify import verify
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.scene.config import Scene
from sim.scene.load import load_scene
from tests.sim.identification.arm_lab import hidden, record, room

QUICK = ArmIdentifyConfig(
    FitConfig(starts=0, first_iterations=0, iterations=0, last_iterations=0), held_out=0.25
)


@pytest.fixture(scope="module")
def table(found: Reconstruction, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """As reconstructed, with an arm, its lens and what a person said of an object."""
    folder = tmp_path_factory.mktemp("table") / "table"
    scene = write_reconstructed(found, SceneChoice(arm="ur5e_table"), folder)
    raw = yaml.safe_load((folder / "scene.yaml").read_text())
    raw["overrides"] = {next(iter(scene.config.provenance.details["objects"])): {"mass_kg": 0.3}}
    raw["provenance"]["details"]["distortion"] = {"top": [0.1, 0.0, 0.0, 0.0, 0.0]}
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    return load_scene(folder)


@pytest.fixture(scope="module")
def cell(table: Scene, capture_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The same with its arm identified from the capture's motion, without a search."""
    model = ArmModel(load_scene("pusht_ur5e"))
    motion = record(hidden(11), multisine(room(model), 8.0, seed=3, lines=6), smoothing=True)
    folder = tmp_path_factory.mktemp("moved") / "capture"
    shutil.copytree(capture_folder, folder)
    about = yaml.safe_load((folder / "capture.yaml").read_text())
    about["arm"] = {**about.get("arm", {}), "model": "ur5e"}
    (folder / "capture.yaml").write_text(yaml.safe_dump(about))
    write_motion(folder, motion.sent_t_s, motion.sent, motion.measured_t_s, motion.measured)
    return identify_capture(folder, str(table.path), folder.parent / "cell", settings=QUICK).scene


def test_what_the_reconstruction_knew_is_kept(table: Scene, cell: Scene) -> None:
    assert cell.config.provenance.kind == "identified"
    assert cell.config.provenance.details["parameters"]
    assert cell.config.provenance.reconstructed == table.config.provenance.reconstructed
    assert table.config.provenance.reconstructed["by_hand"]
    assert not load_scene("ur5e_table").config.provenance.reconstructed


def test_it_is_verified_and_looked_at_as_before(
    table: Scene, cell: Scene, capture_folder: Path
) -> None:
    capture = read_capture(capture_folder)
    before, after = (verify(scene, capture) for scene in (table, cell))
    assert after.held_out
    assert after.assumed == before.assumed
    assert after.verdict == before.verdict
    assert by_capture(cell, capture, Tolerance(), "now")["table"].moved_mm < 0.5


def test_the_studio_shows_both(table: Scene, cell: Scene) -> None:
    before, after = (scene_document(scene.path) for scene in (table, cell))
    assert after.parameters
    assert (after.objects, after.assumed) == (before.objects, before.assumed)
    assert (after.capture, after.held_out) == (before.capture, before.held_out)
    assert set(before.said) <= set(after.said)
    assert any("scene verify" in command for command in after.commands)
