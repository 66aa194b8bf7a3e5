"""What is captured follows from the cell's cameras; a capture that was cut off goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from robolearn.capture.folder import read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.cli.main import main
from robolearn.errors import ConfigError
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.capture.plan import planned

BESIDE = Path("configs/hardware/lab_ur5e_capture.yaml")
RIDING = Path("configs/hardware/lab_ur5e_pick_place_camera.yaml")


def test_the_sets_follow_from_what_carries_cameras_and_board() -> None:
    both = planned(load_cell(RIDING), CaptureOptions(on_flange=("wrist",), board_on="both"))
    assert [(s.name, s.board_on) for s in both.sets] == [
        ("board_top", "table"),
        ("handeye_top", "flange"),
        ("background_top", ""),
        ("handeye_wrist", "table"),
        ("scan_wrist", ""),
    ]
    assert both.cameras["wrist"].mount == "flange"
    assert both.arm is not None
    assert both.arm.T_table_base is not None
    named = CaptureOptions(
        on_flange=("wrist",), board_on="both", objects=("cube", "mug"), in_hand=("mug",)
    )
    with pytest.raises(ConfigError, match="no camera beside the arm measures depth"):
        planned(load_cell(RIDING), named)
    named = planned(load_cell(RIDING), replace(named, in_hand=()))
    assert [o.name for o in named.objects] == ["cube", "mug"]
    assert [o.name for o in both.objects] == []
    with pytest.raises(ConfigError, match="letters, digits"):
        planned(
            load_cell(RIDING), replace(CaptureOptions(on_flange=("wrist",)), objects=("a cup",))
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CaptureOptions(), "no camera rides on the flange"),
        (CaptureOptions(on_flange=("sied",)), "no camera 'sied'.*'side'"),
        (CaptureOptions(on_flange=("side",), board_on="flange"), "all cameras ride on the flange"),
    ],
)
def test_a_board_that_no_camera_could_see_is_refused(options: CaptureOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(load_cell(BESIDE), options)


def test_a_capture_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    config = planned(load_cell(BESIDE), CaptureOptions(board_on="flange"))
    writer = CaptureWriter(tmp_path / "c", config, resume=True)
    picture = np.full((480, 640, 3), 90, np.uint8)
    writer.add("handeye_side", picture, t_s=1.5, T_base_tool=np.eye(4))
    writer.add_record(np.array([1.0, 2.0]), np.zeros((2, 6)))
    # A picture whose row was never written.
    (tmp_path / "c" / "handeye_side" / "000001.png").write_bytes(b"half")
    again = CaptureWriter(tmp_path / "c", config, resume=True)
    assert again.count("handeye_side") == 1
    again.add("handeye_side", picture, t_s=3.5, T_base_tool=np.eye(4))
    again.add_record(np.array([3.0]), np.ones((1, 6)))
    frames = read_capture(tmp_path / "c").frames
    assert [f.t_s for f in frames] == [1.5, 3.5]
    assert frames[1].picture().shape == (480, 640, 3)
    assert (tmp_path / "c" / "robot.csv").read_text().count("\n") == 4
    other = replace(config, sets=config.sets[:1])
    with pytest.raises(ConfigError, match="holds another capture"):
        CaptureWriter(tmp_path / "c", other, resume=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --robot CELL --out FOLDER"),
        (["--check", "nowhere"], "'nowhere' is not a folder"),
        (["--check", "x", "--robot", "y"], "leave --robot and --out out"),
        (["--robot", str(BESIDE), "--out", "x", "--poses", "3"], "poses must be in"),
    ],
)
def test_the_command_says_what_is_missing(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", *words]) == 2
    assert message in capsys.readouterr().err


def test_empty_and_foreign_folders_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    for folder, message in ((tmp_path, "it holds"), (tmp_path / "new", "it is empty")):
        folder.mkdir(exist_ok=True)
        assert main(["capture", "--check", str(folder)]) == 2
        assert message in capsys.readouterr().err
