"""Ways to spoil a capture: each is named, by the checks or by the calibration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.arms.models import UR5E
from robolearn.capture.check import check_capture
from robolearn.capture.clocks import read_record
from robolearn.capture.folder import read_capture
from robolearn.cli.main import main
from robolearn.errors import RobolearnError
from robolearn.geometry import Pose, pose, pose_error, rot_x
from robolearn.operations.capture.hand_eye import calibrate_hand_eye_pictures
from robolearn.operations.cell.hand_eye import HandEyeCalibrated
from tests.robolearn.capture.armed import T_TOOL_CAMERA, change, rewrite, shots, write


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good capture; nobody writes to it."""
    return write(tmp_path_factory.mktemp("good") / "c", shots())


def _said(folder: Path) -> str:
    """All that a person is told: by the checks, else by the calibration."""
    findings = check_capture(read_capture(folder)).findings
    told = [f"{f.level}: {f.what}" for f in findings]
    if any(f.level == "error" for f in findings):
        return " | ".join(told)
    try:
        found = calibrate_hand_eye_pictures(folder)
    except RobolearnError as error:
        return " | ".join([*told, f"error: {error}"])
    told += [f"wrong: {found.name(i)}" for i in found.found.outliers]
    told += [f"exchanged: {found.name(i)} {found.name(j)}" for i, j in found.exchanged]
    return " | ".join(told)


@pytest.fixture(scope="module")
def done(good: Path) -> HandEyeCalibrated:
    return calibrate_hand_eye_pictures(good)


def test_a_good_capture_is_calibrated_without_a_word(good: Path, done: HandEyeCalibrated) -> None:
    assert [f.what for f in check_capture(read_capture(good)).findings] == []
    assert done.found.outliers == ()
    assert done.notes == ("lens given",)
    distance, angle = pose_error(done.found.T_parent_camera, T_TOOL_CAMERA)
    assert distance < 0.001
    assert np.degrees(angle) < 0.1
    assert np.isfinite(done.found.held_out).all()


def test_what_pictures_of_other_places_predict_is_told_in_pixels(
    good: Path, done: HandEyeCalibrated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Corners of drawn pictures are found to a few hundredths.
    assert 0.02 < done.held_out_px < 1.0
    # The arm says half a millimetre otherwise than it stood: some pixels at this distance.
    shaken = tmp_path / "shaken"
    shutil.copytree(good, shaken)
    rng = np.random.default_rng(0)
    _poses(shaken, lambda k, T: T @ pose(None, 0.0008 * rng.normal(size=3)))
    assert main(["calibrate", "handeye", str(shaken), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["held_out"]
    assert told["reprojection_px"] > 2 * done.held_out_px
    # By hand: so many millimetres at the board's distance.
    assert told["position_m"] > 2 * done.found.held_out_m


def _poses(folder: Path, edit: Callable[[int, Pose], Pose]) -> None:
    """Edit the arm's pose of every picture."""

    def rows(every: list[dict[str, str]]) -> None:
        for k, row in enumerate(every):
            T = edit(k, np.array(row["T_base_tool"].split(), float).reshape(4, 4))
            row["T_base_tool"] = " ".join(map(repr, T.ravel().tolist()))

    rewrite(folder, rows)


def _board(folder: Path) -> None:
    change(folder, lambda raw: raw["board"].update(square_m=0.024, marker_m=0.0176))

    def rows(every: list[dict[str, str]]) -> None:
        for row in every:
            row["depth"] = ""

    rewrite(folder, rows)


def _swapped(folder: Path) -> None:
    (folder / "robot.csv").unlink()

    def rows(every: list[dict[str, str]]) -> None:
        two, seven = every[2]["T_base_tool"], every[7]["T_base_tool"]
        every[2]["T_base_tool"], every[7]["T_base_tool"] = seven, two

    rewrite(folder, rows)


def _moved(folder: Path) -> None:
    """The camera was touched after the seventh picture: what it says of the flange is another."""
    nudge = pose(rot_x(0.1), (0.03, 0.01, 0.0))
    _poses(folder, lambda k, T: T @ nudge if k > 6 else T)
    (folder / "robot.csv").unlink()


def _blurred(folder: Path) -> None:
    for path in (folder / "handeye").glob("??????.png"):
        cv2.imwrite(str(path), cv2.GaussianBlur(cv2.imread(str(path)), (0, 0), 3.0))


def _missing(folder: Path) -> None:
    for k in (0, 2, 3, 5, 8, 9, 11):
        (folder / "handeye" / f"{k:06d}.png").unlink()


def _later(folder: Path, seconds: float) -> None:
    def rows(every: list[dict[str, str]]) -> None:
        for row in every:
            row["t_s"] = repr(float(row["t_s"]) + seconds)

    rewrite(folder, rows)


def _looked_up(folder: Path) -> None:
    """The camera's clock goes ahead, and the arm's poses were looked up at its times."""
    _later(folder, 0.7)
    record = read_record(folder)
    assert record is not None
    times = np.array([f.t_s for f in read_capture(folder).frames])
    found = UR5E.fk_rows(record.at(times))
    _poses(folder, lambda k, T: found[k])


def _units(folder: Path) -> None:
    change(folder, lambda raw: raw["cameras"]["wrist"]["depth"].update(scale_m=0.0001))


def _mirrored(folder: Path) -> None:
    mirror = np.diag([1.0, -1.0, 1.0, 1.0])
    _poses(folder, lambda k, T: mirror @ T)


def _files(folder: Path, pattern: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    for path in (folder / "handeye").glob(pattern):
        image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert image is not None
        cv2.imwrite(str(path), np.ascontiguousarray(edit(image)))


def _mirror_images(folder: Path) -> None:
    _files(folder, "*.png", lambda image: image[:, ::-1])


def _upside_down(folder: Path) -> None:
    """Somebody turned the pictures, and not their depth."""
    _files(folder, "??????.png", lambda image: image[::-1, ::-1])


def _frozen_depth(folder: Path) -> None:
    _files(folder, "*.depth.png", lambda depth: np.full_like(depth, int(np.median(depth))))


def _lens(folder: Path) -> None:
    """Intrinsics of pictures of half the size."""
    half = {"focal_px": [190.0, 190.0], "centre_px": [99.5, 74.5]}
    change(folder, lambda raw: raw["cameras"]["wrist"]["lens"].update(half))


def _copied(folder: Path) -> None:
    """Three pictures, four times each."""
    for k in range(3, 12):
        for kind in ("png", "depth.png"):
            name = folder / "handeye" / f"{k % 3:06d}.{kind}"
            shutil.copy(name, folder / "handeye" / f"{k:06d}.{kind}")

    def rows(every: list[dict[str, str]]) -> None:
        for k, row in enumerate(every):
            row["T_base_tool"], row["t_s"] = (every[k % 3][n] for n in ("T_base_tool", "t_s"))

    rewrite(folder, rows)


def _two_units(folder: Path) -> None:
    """Times of the pictures in nanoseconds and in milliseconds, one after the other."""

    def rows(every: list[dict[str, str]]) -> None:
        for k, row in enumerate(every):
            row["t_s"] = repr(float(row["t_s"]) * (1e9 if k % 2 else 1e3))

    rewrite(folder, rows)


def _milliseconds(folder: Path) -> None:
    """All times of pictures and arm."""

    def rows(every: list[dict[str, str]]) -> None:
        for row in every:
            row["t_s"] = repr(1e3 * float(row["t_s"]))

    rewrite(folder, rows)
    path = folder / "robot.csv"
    head, *lines = path.read_text().splitlines()
    cells = [line.partition(",") for line in lines]
    rest = [f"{1e3 * float(t):.0f},{joints}" for t, _, joints in cells]
    path.write_text("\n".join([head, *rest]) + "\n")


def _degrees(folder: Path) -> None:
    """The joints of robot.csv."""
    path = folder / "robot.csv"
    head, *lines = path.read_text().splitlines()
    table = np.array([[float(v) for v in line.split(",")] for line in lines])
    table[:, 1:] = np.degrees(table[:, 1:])
    rows = [",".join(repr(float(v)) for v in row) for row in table]
    path.write_text("\n".join([head, *rows]) + "\n")


POISONS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "wrong board size": (_board, ("The board is 1.2", "measure the side of its squares")),
    "swapped poses": (_swapped, ("exchanged: handeye/000002.png handeye/000007.png",)),
    "moved camera": (_moved, ("handeye/000006.png agree", "camera, board or the arm's base")),
    "blurred": (_blurred, ("blurred, also its sharpest edges", "only 0 of 12 pictures")),
    "half the images missing": (
        _missing,
        ("the file is missing", "only 5 of 12 pictures of set 'handeye'"),
    ),
    "time offset": (
        lambda folder: _later(folder, -0.7),
        ("clocks are out of step", "0.70 s after their t_s"),
    ),
    "time offset, poses by wrong times": (
        _looked_up,
        ("clocks are out of step", "s before"),
    ),
    "depth in other units": (_units, ("depth is in other units", "by about 0.1")),
    "mirror images": (_mirror_images, ("it is in their mirror images", "left and right exchanged")),
    "pictures upside down": (_upside_down, ("turned by 180 degrees in their pictures",)),
    "frozen depth": (_frozen_depth, ("depth does not follow the board's tilt",)),
    "lens of another size": (
        _lens,
        ("the lens of capture.yaml is another one", "focal_px 190 190", "the board in them says"),
    ),
    "copied pictures": (
        _copied,
        ("picture is that of handeye/000000.png, to the pixel", "only 3 of 12 pictures"),
    ),
    "times of two units": (_two_units, ("6 of them fit when their t_s are milliseconds",)),
    "times in milliseconds": (_milliseconds, ("lie 50 s apart: are these milliseconds?",)),
    "joints in degrees": (_degrees, ("joints of robot.csv are in degrees",)),
    "left-handed poses": (_mirrored, ("left-handed (determinant -1)", "only 0 of 12")),
}


@pytest.mark.parametrize("poison", POISONS)
def test_a_poisoned_capture_is_named(tmp_path: Path, good: Path, poison: str) -> None:
    spoil, sentences = POISONS[poison]
    folder = tmp_path / "c"
    shutil.copytree(good, folder)
    spoil(folder)
    said = _said(folder)
    for sentence in sentences:
        assert sentence in said
