"""What cannot be is said before anything is computed, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robolearn.cli.main import main
from tests.robolearn.capture.foreign import ring, write_foreign


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--arm", "ur5_table"], "Did you mean 'ur5e_table'"),
        (["--task", "pick_place"], "needs parameters"),
        (["--arm", "pusht_reference"], "no geom 'table'"),
        (["--out", "taken"], "is no scene package"),
        ([], "at least 6 are needed"),
    ],
)
def test_what_the_user_can_fix(
    extra: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_foreign(tmp_path / "phone", ring(4))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("keep")
    assert main(["reconstruct", "phone", "--out", "scene", *extra]) == 2
    assert message in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["phone", "taken"]
    assert (tmp_path / "taken" / "mine.txt").read_text() == "keep"


def test_an_arm_that_nobody_knows_is_named_not_a_scene_that_nobody_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_foreign(tmp_path / "phone", ring(4))
    raw = json.loads((folder / "capture.yaml").read_text())
    (folder / "capture.yaml").write_text(json.dumps({**raw, "arm": {"model": "ur5"}}))
    assert main(["reconstruct", str(folder), "--out", str(tmp_path / "scene")]) == 2
    assert "no arm.model 'ur5'. Did you mean 'ur5e'? There are" in capsys.readouterr().err
