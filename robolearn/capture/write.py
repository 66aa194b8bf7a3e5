"""Writes a capture folder frame by frame; what was taken stays when the capture is cut off."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import yaml

from robolearn.capture.config import CaptureConfig
from robolearn.capture.folder import COLUMNS, DepthPicture, MaskPicture, read_capture
from robolearn.config import to_dict
from robolearn.errors import ConfigError
from robolearn.files import write_atomic
from robolearn.geometry import Pose
from robolearn.shapes import FloatRows, Floats, OwnFloats, OwnRows, Picture


class CaptureWriter:
    """Adds frames to the sets of a new capture folder.

    ``capture.yaml`` and ``frames.csv`` are replaced as a whole after every frame, so that the
    folder can be read at any time.
    """

    def __init__(
        self, folder: Path, config: CaptureConfig, *, resume: bool = False, grow: bool = False
    ) -> None:
        """``resume``: go on with what was cut off in the folder, if anything was; ConfigError for a
        folder of something else. ``grow``: sets, cameras and objects that it lacks are added to
        capture.yaml, which is then written anew.
        """
        begun = resume and (folder / "capture.yaml").is_file()
        if folder.exists() and any(folder.iterdir()) and not begun:
            raise ConfigError(f"'{folder}' is not empty; a capture starts in a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._config = folder, config
        self._rows: dict[str, list[list[str]]] = {entry.name: [] for entry in config.sets}
        self._record: list[str] = []
        if begun:
            if grow:
                self._grow()
            self._resume()
            return
        text = yaml.safe_dump(plain(config), sort_keys=False, width=100)
        write_atomic(folder / "capture.yaml", text)
        for entry in config.sets:
            (folder / entry.name).mkdir(parents=True, exist_ok=True)
            self._write_rows(entry.name)

    @property
    def folder(self) -> Path:
        """The capture."""
        return self._folder

    @property
    def config(self) -> CaptureConfig:
        """As it was begun; what was found and written meanwhile is in the folder."""
        return self._config

    def count(self, set_name: str) -> int:
        """How many pictures a set has."""
        return len(self._rows[set_name])

    def add_record(self, t_s: Floats, q: FloatRows) -> None:
        """Add to ``robot.csv``: where the joints ``[n, j]`` [rad] were at times ``[n]`` [s]."""
        rows = _joint_rows(t_s, q)
        self._record += rows[1:] if self._record else rows
        write_atomic(self._folder / "robot.csv", "\n".join(self._record) + "\n")

    def _grow(self) -> None:
        there, new = read_capture(self._folder).config, self._config
        board = there.board or new.board
        if new.board is not None and board is not None and board.board() != new.board.board():
            raise ConfigError(
                f"'{self._folder}' has another board ({board.board()}), got {new.board.board()}:"
                " one board for all stages, or a folder of its own"
            )
        for name in set(there.cameras) & set(new.cameras):
            if there.cameras[name].size != new.cameras[name].size:
                raise ConfigError(
                    f"'{self._folder}': camera '{name}' had pictures of {there.cameras[name].size}"
                    f" px, got {new.cameras[name].size}"
                )
        names, described = {s.name for s in there.sets}, {o.name for o in there.objects}
        more = tuple(s for s in new.sets if s.name not in names)
        self._config = dataclasses.replace(
            there,
            board=board,
            cameras={**new.cameras, **there.cameras},
            sets=(*there.sets, *more),
            objects=(*there.objects, *(o for o in new.objects if o.name not in described)),
        )
        self._rows = {entry.name: [] for entry in self._config.sets}
        if self._config == there:
            return
        # Folders first: what capture.yaml names is there whenever it is read.
        for entry in more:
            (self._folder / entry.name).mkdir(parents=True, exist_ok=True)
            self._write_rows(entry.name)
        text = yaml.safe_dump(plain(self._config), sort_keys=False, width=100)
        write_atomic(self._folder / "capture.yaml", text)

    def _resume(self) -> None:
        there = read_capture(self._folder)
        if _shape(there.config) != _shape(self._config):
            raise ConfigError(
                f"'{self._folder}' holds another capture (other cameras, board or sets): give a new"
                " folder, or the options that it was begun with"
            )
        self._config = there.config
        for entry in self._config.sets:
            path = self._folder / entry.name / "frames.csv"
            with path.open(encoding="utf-8", newline="") as stream:
                rows = [[row.get(c) or "" for c in COLUMNS] for row in csv.DictReader(stream)]
            self._rows[entry.name] = rows
        record = self._folder / "robot.csv"
        if record.is_file():
            self._record = record.read_text(encoding="utf-8").splitlines()

    def add(
        self,
        set_name: str,
        picture: Picture,
        depth_m: DepthPicture | None = None,
        *,
        mask: MaskPicture | None = None,
        t_s: float | None = None,
        T_base_tool: Pose | None = None,
        T_world_camera: Pose | None = None,
    ) -> str:
        """Keep an RGB picture, its depth [m] (0: nothing measured), which object every pixel shows,
        and what is known of it; returns the name of its file.
        """
        rows, folder = self._rows[set_name], self._folder / set_name
        name, depth_name, mask_name = f"{len(rows):06d}.png", "", ""
        _write_png(folder / name, np.ascontiguousarray(picture[..., ::-1]))
        entry = next(s for s in self._config.sets if s.name == set_name)
        depth = self._config.cameras[entry.camera].depth
        if depth_m is not None and depth is not None:
            depth_name = f"{len(rows):06d}.depth.png"
            counts = np.nan_to_num(depth_m / depth.scale_m, nan=0.0, posinf=0.0)
            _write_png(folder / depth_name, np.clip(np.rint(counts), 0, 65535).astype(np.uint16))
        if mask is not None:
            mask_name = f"{len(rows):06d}.mask.png"
            _write_png(folder / mask_name, mask)
        rows.append(
            [
                name,
                depth_name,
                mask_name,
                "" if t_s is None else repr(t_s),
                _numbers(T_base_tool),
                _numbers(T_world_camera),
            ]
        )
        self._write_rows(set_name)
        return name

    def _write_rows(self, set_name: str) -> None:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(self._rows[set_name])
        write_atomic(self._folder / set_name / "frames.csv", text.getvalue())


def write_motion(
    folder: Path, sent_t_s: Floats, sent: FloatRows, t_s: OwnFloats, q: OwnRows
) -> None:
    """Set-points as sent ``[n, j]`` [rad] at ``sent_t_s`` [s], and joints ``[m, j]`` at ``t_s``, as
    ``motion/sent.csv`` and ``motion/measured.csv`` of a capture.
    """
    for name, times, rows in (("sent", sent_t_s, sent), ("measured", t_s, q)):
        (folder / "motion").mkdir(exist_ok=True)
        text = "\n".join(_joint_rows(times, np.asarray(rows, dtype=np.float64))) + "\n"
        write_atomic(folder / "motion" / f"{name}.csv", text)


def has_motion(folder: Path) -> bool:
    """Whether a capture holds a whole motion."""
    return all((folder / "motion" / f"{name}.csv").is_file() for name in ("sent", "measured"))


def _joint_rows(t_s: Floats, q: FloatRows) -> list[str]:
    head = ",".join(["t_s", *(f"q{i + 1}" for i in range(q.shape[1]))])
    rows = zip(t_s, q, strict=True)
    return [head, *(",".join([f"{t:.4f}", *(f"{v:.6f}" for v in row)]) for t, row in rows)]


def _shape(config: CaptureConfig) -> tuple[Any, ...]:
    """What pictures depend on: lenses and places may be found and written meanwhile."""
    cameras = {name: (c.mount, c.size, c.depth is None) for name, c in config.cameras.items()}
    return cameras, config.sets, config.board and config.board.board()


def plain(config: CaptureConfig) -> dict[str, Any]:
    """The configuration as YAML values, without what is not known."""
    raw = to_dict(config)
    defaults = {f.name: f.default for f in dataclasses.fields(config)}
    return {k: _known(v) for k, v in raw.items() if v not in (None, [], {}, "", defaults[k])}


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {k: _known(v) for k, v in entries.items() if v not in (None, "", [])}
    if isinstance(value, list):
        return [_known(v) for v in cast("list[Any]", value)]
    return value


def _write_png(path: Path, image: Any) -> None:
    done, encoded = cv2.imencode(".png", image)
    if not done:
        raise ConfigError(f"cannot encode '{path}' as PNG")
    write_atomic(path, encoded.tobytes())


def _numbers(T: Pose | None) -> str:
    values: Sequence[float] = () if T is None else [float(v) for v in T.ravel()]
    return " ".join(repr(v) for v in values)
