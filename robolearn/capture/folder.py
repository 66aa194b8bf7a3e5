"""Reads a capture folder: its description at once, pictures when they are asked for."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float32, UInt16
from numpy.typing import NDArray

from robolearn.capture.config import CaptureCamera, CaptureConfig, CaptureSet, Matrix, Purpose
from robolearn.config import from_dict, load_yaml
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.geometry import Pose
from robolearn.shapes import Picture

SCHEMA = 1
COLUMNS = ("file", "depth", "mask", "t_s", "T_base_tool", "T_world_camera")
# Where depth ends, its numbers do, too: some cameras write this where they measured nothing.
_NOT_MEASURED = np.iinfo(np.uint16).max
# Not even nanoseconds since 1970.
_NO_TIME_S = 1e20
# What poses are written as elsewhere, and what to do.
_SHAPES = {
    6: "a position and a rotation vector: convert it to a matrix",
    7: "a position and a quaternion: convert it to a matrix",
    12: "three rows of four: add the last one, 0 0 0 1",
}
_AS_STORED = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
DepthPicture = Float32[NDArray[np.float32], "h w"]
# Of every pixel the number of the object that it shows (the first of capture.yaml is 1); 0: none.
MaskPicture = UInt16[NDArray[np.uint16], "h w"]


@dataclass(frozen=True, slots=True)
class Frame:
    """A row of ``frames.csv``; files are read when they are asked for.

    ``t_s``: when it was taken [s], ``T_base_tool`` and ``T_world_camera``: where the arm's tool, or
    the camera itself, was; None where nobody knows.
    """

    set: CaptureSet
    camera: CaptureCamera
    row: int
    file: Path
    depth_file: Path | None
    t_s: float | None
    T_base_tool: Pose | None
    T_world_camera: Pose | None
    mask_file: Path | None = None

    @property
    def name(self) -> str:
        """As people find it: folder and file."""
        return f"{self.set.name}/{self.file.name}"

    def picture(self) -> Picture:
        """The picture, RGB, as it is stored: how somebody held the camera (EXIF) turns no picture
        whose depth, lens and pose it does not turn. DataError when it is missing, or of another
        size than the camera's.
        """
        image = cv2.imread(str(self.file), _AS_STORED) if self.file.is_file() else None
        if image is None:
            raise DataError(
                f"'{self.file}' is missing or no picture; take it again, or drop its row"
            )
        self._require_size(image.shape[:2], self.file)
        return np.ascontiguousarray(image[..., ::-1], dtype=np.uint8)

    def depth_m(self) -> DepthPicture:
        """Depth along the optical axis [m]; 0 where nothing was measured: what says 0, or the
        largest number that there is.
        """
        if self.depth_file is None or self.camera.depth is None:
            raise DataError(f"{self.name} has no depth picture")
        there = self.depth_file.is_file()
        raw = cv2.imread(str(self.depth_file), cv2.IMREAD_UNCHANGED) if there else None
        if raw is None or raw.dtype != np.uint16 or raw.ndim != 2:
            got = "nothing that can be read" if raw is None else f"{raw.dtype} {raw.shape}"
            raise DataError(
                f"'{self.depth_file}' must be a picture of one channel with 16 bits (uint16), got"
                f" {got}"
            )
        self._require_size(raw.shape, self.depth_file)
        there_is = np.where(raw == _NOT_MEASURED, 0, raw)
        return np.asarray(there_is, dtype=np.float32) * np.float32(self.camera.depth.scale_m)

    def mask(self) -> MaskPicture:
        """Which object every pixel shows (of a set with ``purpose: object``: whether its own)."""
        there = self.mask_file is not None and self.mask_file.is_file()
        raw = cv2.imread(str(self.mask_file), cv2.IMREAD_UNCHANGED) if there else None
        if raw is None or raw.dtype.name not in ("uint8", "uint16") or raw.ndim != 2:
            got = "nothing that can be read" if raw is None else f"{raw.dtype} {raw.shape}"
            raise DataError(
                f"'{self.mask_file}' must be a picture of one channel whose numbers are those of"
                f" objects (0: none), got {got}"
            )
        self._require_size(raw.shape, self.mask_file or self.file)
        return raw.astype(np.uint16)

    def _require_size(self, shape: Sequence[int], path: Path) -> None:
        width, height = self.camera.size
        if (shape[1], shape[0]) != (width, height):
            why = (
                "size, lens and poses are those of the picture as it is stored, not as it is shown"
                " (EXIF)"
                if (shape[0], shape[1]) == (width, height)
                else "depth must be registered to the picture"
            )
            raise DataError(
                f"'{path}' has {shape[1]} x {shape[0]} pixels, camera '{self.set.camera}' of"
                f" capture.yaml {width} x {height}; {why}"
            )


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture folder and its rows."""

    path: Path
    config: CaptureConfig
    frames: tuple[Frame, ...]

    def of(self, *purposes: Purpose) -> tuple[Frame, ...]:
        """The frames of sets with one of these purposes."""
        return tuple(f for f in self.frames if f.set.purpose in purposes)


def read_capture(folder: Path) -> Capture:
    """Read ``capture.yaml`` and every ``frames.csv``; no picture is opened.

    ConfigError or DataError names the file, the key or the row, and what was expected.
    """
    if not folder.is_dir():
        raise ConfigError(f"'{folder}' is not a folder; expected a capture (capture.yaml, sets)")
    if not (folder / "capture.yaml").is_file():
        found = sorted(p.name for p in folder.iterdir())
        holds = f"it holds {found[:8]}" if found else "it is empty"
        raise ConfigError(
            f"'{folder}' has no capture.yaml, {holds}: a capture needs one, see"
            " docs/capture_format.md"
        )
    where = f"{folder}/capture.yaml"
    raw = load_yaml(folder / "capture.yaml")
    if raw.get("schema") != SCHEMA:
        raise ConfigError(f"{where}: expected 'schema: {SCHEMA}', got {raw.get('schema')!r}")
    config = from_dict(CaptureConfig, raw, where)
    _check_names(config, where)
    frames = [frame for entry in config.sets for frame in _rows(folder, entry, config)]
    return Capture(folder, config, tuple(frames))


def matrix(values: Matrix) -> Pose:
    """A pose ``[4, 4]`` of the configuration."""
    return np.array(values, dtype=np.float64)


def _check_names(config: CaptureConfig, where: str) -> None:
    if not config.sets:
        raise ConfigError(f"{where}: 'sets' is empty; name at least one folder of pictures")
    for kind, names in (
        ("set", [s.name for s in config.sets]),
        ("object", [o.name for o in config.objects]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ConfigError(f"{where}: {kind} '{twice[0]}' stands twice; names must differ")
    for entry in config.sets:
        if entry.camera not in config.cameras:
            raise ConfigError(
                f"{where}: set '{entry.name}': no camera '{entry.camera}'."
                f"{did_you_mean(entry.camera, config.cameras)} There are:"
                f" {sorted(config.cameras)}"
            )
        if entry.purpose == "object" and not entry.object and entry.object_on == "turntable":
            raise ConfigError(
                f"{where}: set '{entry.name}': which object do its pictures show? Give 'object'"
                " (only the empty gripper, 'object_on: flange', has none)"
            )
        described = [o.name for o in config.objects]
        if entry.object and entry.purpose == "object" and entry.object not in described:
            raise ConfigError(
                f"{where}: set '{entry.name}': no object '{entry.object}'."
                f"{did_you_mean(entry.object, described)} There are: {described}"
            )
        if Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
            raise ConfigError(f"{where}: set '{entry.name}' must be a folder of the capture")


def _rows(folder: Path, entry: CaptureSet, config: CaptureConfig) -> list[Frame]:
    path = folder / entry.name / "frames.csv"
    if not path.is_file():
        raise ConfigError(
            f"'{path}' is missing: set '{entry.name}' of capture.yaml needs one row per picture"
            f" with the columns {', '.join(COLUMNS)}"
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"'{path}' cannot be read as CSV: {error}") from error
    unknown = [c for c in columns if c not in COLUMNS]
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if "file" not in columns or unknown or twice:
        near = did_you_mean(unknown[0], COLUMNS) if unknown else ""
        if len(columns) == 1 and any(mark in columns[0] for mark in ";\t"):
            near = " Cells are separated by commas."
        raise DataError(
            f"'{path}': expected the columns {', '.join(COLUMNS)} (all but 'file' optional), got"
            f" {columns}.{near}"
        )
    for k, row in enumerate(rows):
        if None in row:
            raise DataError(
                f"'{path}', line {k + 2}: more cells than the first line's {len(columns)}; a pose"
                " is one cell, 16 numbers separated by spaces"
            )
    camera = config.cameras[entry.camera]
    frames = [
        _frame(folder / entry.name, path, k, row, entry, camera) for k, row in enumerate(rows)
    ]
    counts = Counter(frame.file for frame in frames)
    again = [frame for frame in frames if counts[frame.file] > 1]
    if again:
        raise DataError(
            f"'{path}': '{again[0].file.name}' stands in lines"
            f" {' and '.join(str(f.row + 2) for f in again if f.file == again[0].file)}; a picture"
            " has one row"
        )
    return frames


def _frame(
    folder: Path,
    path: Path,
    number: int,
    row: Mapping[str, str | None],
    entry: CaptureSet,
    camera: CaptureCamera,
) -> Frame:
    at = f"'{path}', line {number + 2}"
    cells = {name: (row.get(name) or "").strip() for name in COLUMNS}
    if not cells["file"]:
        raise DataError(f"{at}: 'file' is empty; it names the picture")
    for name in ("file", "depth", "mask"):
        if Path(cells[name]).is_absolute() or ".." in Path(cells[name]).parts:
            raise DataError(f"{at}: '{cells[name]}' must lie in the set's folder")
    try:
        t_s = float(cells["t_s"]) if cells["t_s"] else None
    except ValueError as error:
        raise DataError(f"{at}: t_s must be a number of seconds, got '{cells['t_s']}'") from error
    if t_s is not None and not abs(t_s) < _NO_TIME_S:
        raise DataError(f"{at}: t_s must be a number of seconds, got '{cells['t_s']}'")
    return Frame(
        set=entry,
        camera=camera,
        row=number,
        file=folder / cells["file"],
        depth_file=folder / cells["depth"] if cells["depth"] else None,
        t_s=t_s,
        T_base_tool=_pose(cells["T_base_tool"], f"{at}: T_base_tool"),
        T_world_camera=_pose(cells["T_world_camera"], f"{at}: T_world_camera"),
        mask_file=folder / cells["mask"] if cells["mask"] else None,
    )


def _pose(text: str, at: str) -> Pose | None:
    if not text:
        return None
    try:
        values = [float(v) for v in text.replace(",", " ").replace(";", " ").split()]
    except ValueError as error:
        raise DataError(f"{at}: expected 16 numbers, got '{text[:60]}'") from error
    if len(values) != 16:
        known = f" ({_SHAPES[len(values)]})" if len(values) in _SHAPES else ""
        raise DataError(f"{at}: expected 16 numbers, row by row of a 4x4, got {len(values)}{known}")
    return np.array(values).reshape(4, 4)
