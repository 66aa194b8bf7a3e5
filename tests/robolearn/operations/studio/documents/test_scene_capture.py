"""Scenes, captures and certificates, sound and damaged."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import mujoco
import yaml

from robolearn.operations.studio.documents.capture import capture_document, checked_document
from robolearn.operations.studio.documents.certificate import certificate_document
from robolearn.operations.studio.documents.pictures import capture_picture
from robolearn.operations.studio.documents.scene import scene_document
from robolearn.operations.studio.documents.verified import verified_document
from robolearn.operations.studio.encoding import encode as encoded
from sim.scene.drift_record import DriftPart, write_drift
from sim.scene.load import content_hash, scene_folder
from tests.robolearn.capture.foreign import ring, write_foreign
from tests.robolearn.operations.trust.certified_run import NOW, workplace

FOUND = {
    "parameters": {
        "friction, base": {"before": 0.1, "after": 0.3, "interval": [0.2, 0.4], "unit": "N m",
                           "status": "fitted"},
        "mass": {"before": 1.0, "after": 1.1},
    },
    "heldout": {"before": {"tool_mm": {"p50": 9.0}}, "after": {"tool_mm": {"p50": 1.0}}},
    "objects": {"cup": {"size_mm": [80, 80, 90], "mass_kg": 0.2, "mass_kg_between": [0.1, 0.4],
                        "mass_source": "guess", "collision": "hull", "unseen_share": 0.1}},
    "assumed": [{"what": "friction", "value": 0.5, "why": "nobody measured it"}],
    "capture": "desk",
    "pictures": {"held_out": ["scan/3.jpg"]},
    "said": ["a sentence"],
}  # fmt: skip


def scene_with(folder: Path, details) -> Path:
    shutil.copytree(scene_folder("pusht_naive"), folder)
    raw = yaml.safe_load((folder / "scene.yaml").read_text())
    raw["provenance"] = {"kind": "identified", "source": "motions", "details": details}
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw))
    return folder


def plain(document):
    return json.loads(encoded(document))


def test_a_scene_tells_what_was_measured_and_what_moved(tmp_path: Path) -> None:
    folder = scene_with(tmp_path / "table", FOUND)
    part = DriftPart("moved", 8.0, 0.5, None, None, "it moved", "photo", "2026-01-31T12:00:00Z")
    write_drift(folder, "table", content_hash(folder), {"camera top": part})
    found = plain(scene_document(folder))
    assert found["problems"] == []
    assert (found["made"], found["robot"], found["task"]) == ("identified", "planar", "pusht")
    first = found["parameters"][0]
    assert (first["value"], first["low"], first["high"]) == (0.3, 0.2, 0.4)
    assert found["parameters"][1]["low"] is None
    residual = {r["name"]: (r["before"], r["after"]) for r in found["residuals"]}
    assert residual == {"kept from the fit: tool mm: p50": (9.0, 1.0)}
    assert found["objects"][0]["mass_low_kg"] == 0.1
    assert found["drift"]["camera top"]["moved_mm"] == 8.0
    assert found["held_out"] == ["scan/3.jpg"]


def test_a_damaged_scene_is_said_in_place(tmp_path: Path) -> None:
    folder = scene_with(tmp_path / "table", {"parameters": {"x": {}}, "objects": 3, "assumed": 7})
    found = scene_document(folder)
    assert {p.where for p in found.problems} >= {"parameters"}
    assert found.robot == "planar"
    (folder / "drift.json").write_text("[")
    (folder / "scene.xml").write_text("<mujoco")
    found = scene_document(folder)
    assert {p.where for p in found.problems} >= {"scene", "drift.json"}
    (folder / "scene.yaml").write_text("schema: [")
    assert scene_document(folder).problems[0].where == "scene.yaml"
    assert "not there any more" in scene_document(tmp_path / "gone").problems[0].words
    assert verified_document(folder, tmp_path).problems[0].where == "verify"


def test_a_capture_and_its_pictures(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "c", ring(6))
    found = plain(capture_document(folder))
    assert found["problems"] == []
    assert found["sets"][0]["pictures"] == found["sets"][0]["with_depth"] == 6
    assert [f["there"] for f in found["frames"]] == [True] * 6
    assert capture_picture(folder, 2)[:3] == b"\xff\xd8\xff"
    assert checked_document(folder).usable == 6
    (folder / "scan" / "2.jpg").unlink()
    assert [f.there for f in capture_document(folder).frames].count(False) == 1
    assert "2.jpg" in checked_document(folder).findings[0].what
    (folder / "capture.yaml").write_text("schema: 99")
    assert "schema" in capture_document(folder).problems[0].words
    assert checked_document(folder).problems


def test_a_certificate_and_what_makes_it_stale(tmp_path: Path) -> None:
    place = workplace(tmp_path, f"mujoco {mujoco.__version__}")
    found = certificate_document(place.path, NOW)
    standing = {r.what: r.standing for r in found.relies}
    assert found.issued is not None
    assert (
        standing["policy"] == standing["scene"] == standing["code"] == standing["time"] == "holds"
    )
    late = certificate_document(place.path, NOW + dt.timedelta(days=900))
    assert late.standing == "stale"
    assert "expired" in late.problems[0].words
    assert late.issued == found.issued
    config = place.run / "config.yaml"
    config.write_text(config.read_text() + "\nedited: 1\n")
    (place.scene / "extra.txt").write_text("x")
    edited = {r.what: r for r in certificate_document(place.path, NOW).relies}
    assert edited["policy"].standing == edited["scene"].standing == "stale"
    assert "config.yaml" in edited["policy"].words
    shutil.rmtree(place.scene)
    gone = {r.what: r for r in certificate_document(place.path, NOW).relies}
    assert gone["scene"].standing == "not known"
    place.path.write_text(place.path.read_text().replace('"passes": true', '"passes": false'))
    forged = certificate_document(place.path, NOW)
    assert forged.issued is None
    assert "edited" in forged.problems[0].words
    for text in ("{", "[]", '{"certificate": 3}'):
        place.path.write_text(text)
        assert [p.where for p in certificate_document(place.path, NOW).problems] == ["certificate"]
    assert certificate_document(tmp_path / "none.json", NOW).problems
