"""A capture folder of anybody's is read, and what is wrong with it is said."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from robolearn.capture.check import check_capture
from robolearn.capture.clocks import joint_table
from robolearn.capture.config import (
    CaptureCamera,
    CaptureConfig,
    CaptureDepth,
    CaptureLens,
    CaptureSet,
)
from robolearn.capture.folder import read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.errors import ConfigError, DataError, RobolearnError
from tests.robolearn.capture.foreign import ring, write_foreign


def test_a_folder_that_others_wrote_is_read(tmp_path: Path) -> None:
    poses = ring(6)
    capture = read_capture(write_foreign(tmp_path / "c", poses))
    assert capture.config.cameras["phone"].mount == "hand"
    assert [f.name for f in capture.frames] == [f"scan/{k}.jpg" for k in range(6)]
    frame = capture.of("scan")[2]
    np.testing.assert_allclose(frame.T_world_camera, poses[2])
    assert frame.picture().shape == (24, 32, 3)
    np.testing.assert_allclose(frame.depth_m(), 0.566, atol=1e-6)
    report = check_capture(capture)
    assert report.findings == ()
    assert len(report.usable) == 6


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    lens = CaptureLens((30.0, 30.0), (15.5, 11.5), (0.1, 0.0, 0.0, 0.0))
    config = CaptureConfig(
        schema=1,
        name="ours",
        cameras={"wrist": CaptureCamera("flange", (32, 24), lens, depth=CaptureDepth(0.0005))},
        sets=(CaptureSet("scan", "wrist", "scan"),),
    )
    writer = CaptureWriter(tmp_path / "c", config)
    rng = np.random.default_rng(1)
    picture = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
    depth = rng.uniform(0.2, 1.0, (24, 32)).astype(np.float32)
    depth[0, 0], depth[1, 1] = 0.0, np.inf
    T = ring(3)[1]
    writer.add("scan", picture, depth, t_s=1.25, T_base_tool=T)
    capture = read_capture(tmp_path / "c")
    assert capture.config == config
    (frame,) = capture.frames
    np.testing.assert_array_equal(frame.picture(), picture)
    again = frame.depth_m()
    assert again[0, 0] == again[1, 1] == 0.0
    np.testing.assert_allclose(again[2:], depth[2:], atol=0.0003)
    np.testing.assert_array_equal(frame.T_base_tool, T)
    assert frame.T_world_camera is None
    assert frame.t_s == 1.25
    with pytest.raises(ConfigError, match="not empty"):
        CaptureWriter(tmp_path / "c", config)


def _edit(folder: Path, **changes: object) -> None:
    raw = yaml.safe_load((folder / "capture.yaml").read_text())
    (folder / "capture.yaml").write_text(yaml.safe_dump({**raw, **changes}))


def test_folders_that_are_no_captures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        read_capture(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="it is empty"):
        read_capture(tmp_path / "empty")
    (tmp_path / "empty" / "holiday.jpg").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"holiday\.jpg"):
        read_capture(tmp_path / "empty")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema: 1"),
        ({"camera": {}}, "Did you mean 'cameras'"),
        ({"sets": []}, "'sets' is empty"),
        ({"sets": [{"name": "s", "camera": "fone", "purpose": "scan"}]}, "Did you mean 'phone'"),
        ({"sets": [{"name": "gone", "camera": "phone", "purpose": "scan"}]}, "frames.csv"),
        ({"sets": [{"name": "../x", "camera": "phone", "purpose": "scan"}]}, "of the capture"),
        ({"objects": [{"name": "a"}, {"name": "a"}]}, "stands twice"),
        ({"objects": [{"name": "a cup"}]}, "letters, digits"),
        ({"objects": [{"name": "a", "mass_kg": 0}]}, "kilograms"),
        ({"workspace": {"low": [0, 0, 0], "high": [1, 1, 0]}}, "below high"),
        ({"workspace": {"low": [float("nan")] * 3, "high": [1, 1, 1]}}, "'.nan' is no finite"),
        ({"workspace": {"low": [-300, -300, 0], "high": [300, 300, 300]}}, "like millimetres"),
        ({"objects": [{"name": "a", "at_m": [float("nan"), 0]}]}, "'.nan' is no finite"),
        ({"board": {"kind": "chessboard", "squares": [0, 0], "square_m": 0.03}}, "3 x 3 squares"),
        ({"board": {"kind": "chessboard", "squares": [7, 5], "square_m": 30}}, "millimetres"),
    ],
)
def test_what_is_wrong_in_the_description_is_named(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = write_foreign(tmp_path / "c", ring(3))
    _edit(folder, **changes)
    with pytest.raises(RobolearnError, match=message):
        read_capture(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,dept\n", "Did you mean 'depth'"),
        ("file,T_world_camera\n0.jpg,1 2 3\n", "16 numbers, row by row of a 4x4, got 3"),
        ("file,T_world_camera\n0.jpg,1 2 3 1 0 0 0\n", "got 7 .a position and a quaternion"),
        ("file,T_world_camera\n0.jpg,1 0 0 0 0 1 0 0 0 0 1 0\n", "got 12 .*add the last one"),
        ("file,t_s\n0.jpg,-1e300\n", "line 2: t_s must be a number"),
        ("file,t_s\n0.jpg,noon\n", "line 2: t_s must be a number"),
        ("file,t_s\n,1\n", "'file' is empty"),
        ("file,t_s\n0.jpg,nan\n", "line 2: t_s must be a number"),
        ("file,file\n0.jpg,1.jpg\n", "got .'file', 'file'."),
        ("file;t_s\n0.jpg;1\n", "separated by commas"),
        ("file, t_s\n0.jpg,1,2\n", "line 2: more cells than the first line's 2"),
        ("file\n0.jpg\n1.jpg\n0.jpg\n", "'0.jpg' stands in lines 2 and 4"),
        ("file\n../../etc/passwd\n", "lie in the set's folder"),
    ],
)
def test_what_is_wrong_in_a_row_is_named(tmp_path: Path, text: str, message: str) -> None:
    folder = write_foreign(tmp_path / "c", ring(3))
    (folder / "scan" / "frames.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_capture(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": [0, 24]}, "above 0 px"),
        ({"lens": {"focal_px": [float("nan"), 30], "centre_px": [15, 11]}}, "'.nan' is no finite"),
        ({"lens": {"focal_px": [30, 30], "centre_px": [960, 540]}}, "not that of pictures of 32"),
        ({"lens": {"focal_px": [0.0026, 0.0026], "centre_px": [15, 11]}}, "size of a pixel"),
        ({"depth": {"noise_m": float("inf")}}, "'.inf' is no finite .*noise_m: .inf"),
    ],
)
def test_what_is_wrong_with_a_camera_is_named(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = write_foreign(tmp_path / "c", ring(3))
    phone = yaml.safe_load((folder / "capture.yaml").read_text())["cameras"]["phone"]
    _edit(folder, cameras={"phone": {**phone, **changes}})
    with pytest.raises(RobolearnError, match=message):
        read_capture(folder)


@pytest.mark.parametrize(
    ("T", "why"),
    [
        (np.diag([1.0, -1.0, 1.0, 1.0]), "left-handed"),
        (2 * np.eye(4), "last row"),
        (1e308 * np.eye(4), "m away"),
        (np.array([[1, 0, 0, 50], [0, 1, 0, 0], [0, 0, 1, 90], [0, 0, 0, 1]]), "90 m away"),
    ],
)
def test_places_of_the_description_are_poses(tmp_path: Path, T: np.ndarray, why: str) -> None:
    folder = write_foreign(tmp_path / "c", ring(3))
    phone = yaml.safe_load((folder / "capture.yaml").read_text())["cameras"]["phone"]
    camera = {**phone, "mount": "flange", "T_mount_camera": T.tolist()}
    board = {"kind": "chessboard", "squares": [7, 5], "square_m": 0.03, "T_table_board": T.tolist()}
    _edit(folder, cameras={"phone": camera}, board=board,
          arm={"model": "ur5e", "T_table_base": T.tolist()})  # fmt: skip
    errors = check_capture(read_capture(folder)).errors
    assert len(errors) == 3
    assert all(why in text for text in errors)
    assert "capture.yaml: cameras.phone.T_mount_camera is no pose" in errors[0]


def _sentences(folder: Path) -> str:
    return " | ".join(f"{f.level}: {f.what}" for f in check_capture(read_capture(folder)).findings)


def test_depth_in_other_units_is_an_error(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "c", ring(6))
    raw = yaml.safe_load((folder / "capture.yaml").read_text())
    raw["cameras"]["phone"]["depth"]["scale_m"] = 1e-6
    _edit(folder, cameras=raw["cameras"])
    said = _sentences(folder)
    assert "error: depth is in other units" in said
    assert "0.57 m" in said
    assert "divide depth.scale_m by about 0.001" in said


def test_cameras_that_look_along_minus_z_are_an_error(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "c", [T @ np.diag([1.0, -1, -1, 1]) for T in ring(6)])
    assert "turn T_world_camera by 180 degrees about x" in _sentences(folder)


def test_left_handed_poses_are_left_out_and_named(tmp_path: Path) -> None:
    mirrored = [np.diag([1.0, -1, 1, 1]) @ T for T in ring(6)]
    folder = write_foreign(tmp_path / "c", mirrored)
    said = _sentences(folder)
    assert "left-handed (determinant -1)" in said
    assert "error: only 0 of 6 pictures" in said


def _held_turned(path: Path, how: int) -> None:
    """Notes beside a JPEG, as a phone does, how it was held (EXIF's orientation)."""
    tag = b"\x12\x01\x03\x00\x01\x00\x00\x00" + bytes([how, 0, 0, 0])
    note = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + tag + b"\0\0\0\0"
    plain = path.read_bytes()
    path.write_bytes(
        plain[:2] + b"\xff\xe1" + (len(note) + 2).to_bytes(2, "big") + note + plain[2:]
    )


@pytest.mark.parametrize("how", [3, 6])
def test_a_picture_is_read_as_it_is_stored(tmp_path: Path, how: int) -> None:
    """Lens, depth and pose are of the stored one: half a turn of it alone was not noticed."""
    folder = write_foreign(tmp_path / "c", ring(6))
    before = read_capture(folder).frames[0].picture()
    for k in range(6):
        _held_turned(folder / "scan" / f"{k}.jpg", how)
    turned = cv2.imread(str(folder / "scan" / "0.jpg"))
    assert turned.shape != before.shape or (turned[..., ::-1] != before).any()
    np.testing.assert_array_equal(read_capture(folder).frames[0].picture(), before)
    assert _sentences(folder) == ""
    raw = yaml.safe_load((folder / "capture.yaml").read_text())
    phone = {**raw["cameras"]["phone"], "size": [24, 32]}
    _edit(folder, cameras={"phone": {**phone, "lens": None, "depth": None}})
    assert "not as it is shown (EXIF)" in _sentences(folder)


def test_times_that_are_no_seconds_are_named_without_a_record_of_the_arm(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "c", ring(6))
    path = folder / "scan" / "frames.csv"
    head, *rows = path.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    late = [",".join([a, b, f"{1.7e18 + 1e9 * float(t):.0f}", T]) for a, b, t, T in cells]
    path.write_text("\n".join([head, *late]) + "\n")
    assert "scan: t_s is 1.7e+18: are these milli-, micro- or nanoseconds?" in _sentences(folder)


def test_missing_dark_and_blurred_pictures_are_named(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "c", ring(8))
    (folder / "scan" / "0.jpg").unlink()
    cv2.imwrite(str(folder / "scan" / "1.jpg"), np.zeros((24, 32, 3), np.uint8))
    cv2.imwrite(str(folder / "scan" / "2.jpg"), np.full((24, 32, 3), 128, np.uint8))
    cv2.imwrite(str(folder / "scan" / "3.png"), np.zeros((24, 32), np.uint16))
    cv2.imwrite(str(folder / "scan" / "4.png"), np.zeros((24, 32, 3), np.uint8))
    report = check_capture(read_capture(folder))
    said = {f.frames[0]: f.what for f in report.findings if f.frames}
    assert "missing" in said["scan/0.jpg"]
    assert "almost black" in said["scan/1.jpg"]
    assert "blurred" in said["scan/2.jpg"]
    assert "empty" in said["scan/3.jpg"]
    assert "uint16" in said["scan/4.jpg"]
    assert [f.name for f in report.usable] == ["scan/5.jpg", "scan/6.jpg", "scan/7.jpg"]
    assert any("only 3 of 8" in text for text in report.errors)


def test_clocks_out_of_step_are_an_error(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "c", ring(6))
    (folder / "robot.csv").write_text("t_s,q1\n" + "".join(f"{1000 + k},0\n" for k in range(9)))
    assert "error: clocks are out of step: 6 of 6" in _sentences(folder)
    (folder / "robot.csv").write_text("t_s,q1\n" + "".join(f"{k * 0.1},0\n" for k in range(9)))
    assert _sentences(folder) == ""
    for content in (b"t_s\nnan\n", b"t_s\xff\n1\n"):
        (folder / "robot.csv").write_bytes(content)
        with pytest.raises(DataError, match=r"robot\.csv"):
            _sentences(folder)


def test_joints_are_taken_by_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "robot.csv"
    path.write_text("t_s,q3,q1,q2\n0,3,1,2\n")
    assert joint_table(path)[1].tolist() == [[1.0, 2.0, 3.0]]
    for columns in ("q1,q2,q4", "q1,q1,q2", "q0,q1,q2"):
        path.write_text(f"t_s,{columns}\n0,1,2,3\n")
        with pytest.raises(DataError, match="without a gap, each once"):
            joint_table(path)
