"""Scans that contradict themselves are refused with the cause, and not made a scene of."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.capture.check import check_capture
from robolearn.capture.folder import read_capture
from robolearn.errors import DataError, SceneError
from sim.reconstruction.pipeline import place_scan, reconstruct
from tests.robolearn.capture.armed import change

Edit = Callable[[np.ndarray], np.ndarray]


def _files(folder: Path, pattern: str, edit: Edit) -> None:
    for path in (folder / "scan").glob(pattern):
        image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert image is not None
        cv2.imwrite(str(path), np.ascontiguousarray(edit(image)))


def _depth(edit: Edit) -> Callable[[Path], None]:
    return lambda folder: _files(folder, "*.depth.png", edit)


def _along_the_ray(depth: np.ndarray) -> np.ndarray:
    height, width = depth.shape
    row, column = np.indices(depth.shape)
    x, y = ((a - (n - 1) / 2) / (0.95 * width) for a, n in ((column, width), (row, height)))
    return np.rint(depth * np.sqrt(1 + x**2 + y**2)).astype(np.uint16)


def _zoomed(folder: Path) -> None:
    """A lens five percent too long: no picture by itself is far enough off to be left out."""
    lens = read_capture(folder).config.cameras["eye"].lens
    assert lens is not None
    focal = [1.05 * f for f in lens.focal_px]
    change(folder, lambda raw: raw["cameras"]["eye"]["lens"].update(focal_px=focal))


def _places(folder: Path, factor: float) -> None:
    path = folder / "scan" / "frames.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        T = np.array(row["T_world_camera"].split(), float).reshape(4, 4)
        T[:3, 3] *= factor
        row["T_world_camera"] = " ".join(map(repr, T.ravel().tolist()))
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _late(folder: Path) -> None:
    """Every depth picture is that of the row before."""
    paths = sorted((folder / "scan").glob("*.depth.png"))
    kept = [path.read_bytes() for path in paths]
    for path, before in zip(paths[1:], kept, strict=False):
        path.write_bytes(before)


def _no_pictures(folder: Path) -> None:
    for path in sorted((folder / "scan").glob("*.depth.png"))[:8]:
        depth = np.where(np.arange(160) % 3, 0.4, np.nan) * np.ones((120, 1))
        done, encoded = cv2.imencode(".tiff", depth.astype(np.float32))
        assert done
        path.write_bytes(encoded.tobytes())


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "lens of a crop": (_zoomed, r"focal lengths are 0\.95\d times"),
    "depth along the ray": (_depth(_along_the_ray), "along the ray, not along the optical axis"),
    "upside down": (
        lambda folder: _files(folder, "*.png", lambda image: image[::-1, ::-1]),
        "turned by 180 degrees against their poses",
    ),
    "depth of the row before": (_late, "has the pose of the one after it"),
    "places on another scale": (lambda folder: _places(folder, 1.08), r"are 0\.92\d times as far"),
    "depth with an offset": (
        _depth(lambda depth: (depth + np.uint16(300)).astype(np.uint16)),
        "when it is (29|30|31) mm nearer",
    ),
    "depth mirrored alone": (_depth(lambda depth: depth[:, ::-1]), "left and right exchanged in"),
    "depth that is no number": (_no_pictures, r"only 4 of 12.*16 bits \(uint16\), got float32"),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_scan_that_contradicts_itself_is_named(
    tmp_path: Path, capture_folder: Path, spoilt: str
) -> None:
    spoil, cause = SPOILT[spoilt]
    folder = tmp_path / "c"
    shutil.copytree(capture_folder, folder)
    spoil(folder)
    with pytest.raises(DataError, match=f"(?s){cause}"):
        place_scan(read_capture(folder))


def test_mirror_images_are_named(tmp_path: Path, capture_folder: Path) -> None:
    """Picture and depth alike: the table is flat, and what stands on it agrees with nothing."""
    folder = tmp_path / "c"
    shutil.copytree(capture_folder, folder)
    _files(folder, "*.png", lambda image: image[:, ::-1])
    with pytest.raises(SceneError, match="but in mirror images of the pictures it does"):
        reconstruct(read_capture(folder))


def test_frozen_pictures_are_left_out(tmp_path: Path, capture_folder: Path) -> None:
    folder = tmp_path / "c"
    shutil.copytree(capture_folder, folder)
    for k in (3, 4, 5):
        shutil.copy(folder / "scan" / "000002.png", folder / "scan" / f"{k:06d}.png")
    report = check_capture(read_capture(folder))
    assert len(report.usable) == 9
    (finding,) = report.findings
    assert finding.frames == ("scan/000003.png", "scan/000004.png", "scan/000005.png")
    assert "that of scan/000002.png, to the pixel" in finding.what


def test_the_largest_number_is_no_depth(tmp_path: Path, capture_folder: Path) -> None:
    folder, rng = tmp_path / "c", np.random.default_rng(0)
    shutil.copytree(capture_folder, folder)
    _depth(lambda depth: np.where(rng.random(depth.shape) < 0.3, 65535, depth).astype(np.uint16))(
        folder
    )
    frame = read_capture(folder).frames[0]
    assert 0.2 < float((frame.depth_m() == 0).mean()) < 0.5
    assert float(frame.depth_m().max()) < 6.0
    assert len(place_scan(read_capture(folder)).frames) == 12
