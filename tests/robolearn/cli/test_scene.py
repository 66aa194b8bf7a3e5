"""``robolearn scene``."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import pytest

from robolearn.cli.main import main
from tests.sim.scene.test_scene_package import XML, write_scene


def test_check_describes_a_valid_scene(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scene", "check", "pusht_reference", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["scene"] == "pusht_reference"
    assert document["task"] == "pusht"
    assert document["signals"] == ["tool/xy_table", "block/pose"]
    assert main(["scene", "check", "pusht_reference"]) == 0
    assert "valid" in capsys.readouterr().out


def test_check_refuses_an_invalid_or_unstable_scene(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_scene(tmp_path / "a", frames={"table": "tabble"})
    assert main(["scene", "check", str(folder)]) == 2
    assert "Did you mean 'table'" in capsys.readouterr().err
    gravity = XML.replace('gravity="0 0 0"', 'gravity="1e5 0 0"')
    assert main(["scene", "check", str(write_scene(tmp_path / "b", gravity))]) == 2
    assert "diverges" in capsys.readouterr().err


@pytest.mark.parametrize("world", ["pusht_reference", "gym_pusht"])
def test_view_writes_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: str
) -> None:
    path = tmp_path / "sub" / "a.png"
    assert (
        main(["scene", "view", world, "--out", str(path), "--width", "96", "--height", "96"]) == 0
    )
    assert capsys.readouterr().out.strip() == str(path)
    image = cv2.imread(str(path))
    assert image is not None
    assert image.shape == (96, 96, 3)
    assert 150 < image.mean() < 255


def test_what_the_user_can_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["scene", "chekk", "x"]) == 2
    assert "Did you mean 'check'" in capsys.readouterr().err
    assert main(["scene", "view", "pusht_reference", "--out", str(tmp_path / "a.foo")]) == 2
    assert ".png" in capsys.readouterr().err
    assert main(["scene"]) == 0
    assert "verbs:" in capsys.readouterr().out


def test_ls_names_the_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scene", "ls", "--json"]) == 0
    worlds = json.loads(capsys.readouterr().out)["worlds"]
    assert {"gym_pusht", "pusht_reference"} <= set(worlds)
    assert main(["scene", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == worlds
    assert all(line.endswith(".") for line in lines[:-1])
    assert "pybullet/NAME" in lines[-1]
