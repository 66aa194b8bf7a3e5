"""Holds the real cell against its scene and records what moved since it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robolearn.capture.folder import read_capture
from robolearn.errors import ConfigError, SceneError
from robolearn.shapes import Picture
from sim.reconstruction.drift import Tolerance, by_capture, by_photographs, by_touch
from sim.scene.drift_record import DriftPart, DriftRecord, write_drift
from sim.scene.load import content_hash, load_scene

Place = tuple[float, float, float]


def scene_drift(
    scene: Path,
    *,
    photos: Mapping[str, Path] | None = None,
    capture: Path | None = None,
    touched: Place | None = None,
    expected: Place | None = None,
    touch_mm: float = 1.0,
    tolerance: Tolerance | None = None,
) -> tuple[DriftRecord, dict[str, DriftPart]]:
    """What is recorded of the scene now, ``drift.json`` of its package, and what was seen now.

    ``photos``: today's photograph by the name of a camera; ``capture``: a later capture of the
    table; ``touched``: where the arm touched a point [m] that the scene has at ``expected``
    (without: the board's origin), both in the table's frame, known to ``touch_mm``. At least one of
    them is needed.

    Errors: ConfigError, DataError, SceneError with what to do; nothing is recorded then.
    """
    if not scene.is_dir():
        raise SceneError(
            f"'{scene}' is no folder; drift is recorded in the scene package of your own cell"
        )
    limits, at = tolerance or Tolerance(), datetime.now(UTC).isoformat(timespec="seconds")
    if not (photos or capture or touched):
        raise ConfigError(
            "nothing to look at: give a photograph of one of the scene's cameras, a later capture,"
            " or a point that was touched"
        )
    loaded = load_scene(scene)
    looks: list[dict[str, DriftPart]] = []
    if photos:
        pictures = {camera: _picture(path) for camera, path in photos.items()}
        looks.append(by_photographs(loaded, pictures, limits, at))
    if capture is not None:
        looks.append(by_capture(loaded, read_capture(capture), limits, at))
    if touched is not None:
        there = expected or _board_origin(loaded.config.provenance.reconstructed)
        for name, value in (("touched", touched), ("expected", there), ("touch_mm", [touch_mm])):
            if not all(math.isfinite(v) for v in value):
                raise ConfigError(f"{name} must be finite numbers, got {list(value)}")
        for name, place in (("touched", touched), ("expected", there)):
            if max(map(abs, place)) > 20:
                raise ConfigError(f"{name} is in metres of the table's frame, got {list(place)}")
        if not touch_mm > 0:
            raise ConfigError(
                f"touch_mm is above 0 mm: nobody knows a point better, got {touch_mm}"
            )
        looks.append(by_touch(np.array(touched), np.array(there), touch_mm, limits, at))
    parts: dict[str, DriftPart] = {}
    for look in looks:
        _add(parts, look)
    return write_drift(scene, loaded.name, content_hash(scene), *looks), parts


def _add(parts: dict[str, DriftPart], more: Mapping[str, DriftPart]) -> None:
    """Two looks at one thing: one that says it moved counts."""
    for name, part in more.items():
        if name not in parts or parts[name].verdict != "moved":
            parts[name] = part


def _picture(path: Path) -> Picture:
    # As it is stored, like the one that it is held against: EXIF turns neither.
    way = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    found: Any = cv2.imread(str(path), way) if path.is_file() else None
    if found is None:
        raise ConfigError(f"'{path}' is not a picture that can be read (.png, .jpg)")
    return np.ascontiguousarray(found[..., ::-1])


def _board_origin(details: Mapping[str, Any]) -> Place:
    board = details.get("board")
    if board is None:
        raise ConfigError(
            "touched needs expected: the scene knows of no board on the table whose lower"
            " left corner could have been touched"
        )
    x, y, z = (float(row[3]) for row in board["T_table_board"][:3])
    return x, y, z
