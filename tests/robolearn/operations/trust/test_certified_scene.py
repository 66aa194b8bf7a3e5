"""What was found of the real table counts for its scene as it is now, and for nothing else."""

from __future__ import annotations

from pathlib import Path

from robolearn.operations.trust.certified_scene import drift_of
from sim.scene.drift_record import DriftPart, write_drift
from sim.scene.load import content_hash
from tests.sim.scene.test_scene_package import write_scene


def test_a_recorded_drift_is_the_scenes(tmp_path: Path) -> None:
    folder = write_scene(tmp_path / "mine")
    assert drift_of("mine", tmp_path) == drift_of("pusht_reference") == ("not measured", "")
    size = (1.0, 0.5, 0.1, 0.1)
    parts = {
        "table": DriftPart("unmoved", *size, "", "touch", "2026-01-31T12:00:00+00:00"),
        "camera top": DriftPart("moved", *size, "", "photograph", "2026-01-30T12:00:00+00:00"),
    }
    write_drift(folder, "small", content_hash(folder), parts)
    assert drift_of("mine", tmp_path) == ("moved", "2026-01-31T12:00:00+00:00: camera top")
    again = DriftPart("unmoved", *size, "", "photograph", "2026-02-01T12:00:00+00:00")
    write_drift(folder, "small", content_hash(folder), {"camera top": again})
    assert drift_of(str(folder))[0] == "unmoved"
    # Of a scene that is another one by now, nothing is known.
    (folder / "notes.txt").write_text("a new lamp")
    assert drift_of("mine", tmp_path) == ("not measured", "")
