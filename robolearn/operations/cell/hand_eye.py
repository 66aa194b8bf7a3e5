"""Calibrates where a camera is on the arm, or beside it, from a file of pairs of poses."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from robolearn.calibration.hand_eye import HandEye
from robolearn.calibration.hand_eye_causes import calibrate, doubts, exchanged, pairs_of
from robolearn.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class HandEyeCalibrated:
    """The camera's place from so many ``poses``; ``exchanged``: outliers that fit each other's
    place in the list; ``notes``: what fits and is hardly meant; ``names``: the pictures of the
    poses, where there are some; ``held_out_px``: RMS distance of the board's corners in them from
    where pictures of other places predict them (NaN: there are none).
    """

    found: HandEye
    poses: int
    exchanged: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]
    names: tuple[str, ...] = ()
    held_out_px: float = math.nan

    def name(self, row: int) -> str:
        """What people call a pose."""
        return self.names[row] if self.names else f"pose {row}"


def calibrate_hand_eye(path: Path, setup: str) -> HandEyeCalibrated:
    """Solve for the camera. ``path``: a JSON list of ``{"T_base_tool": 4x4, "T_camera_board":
    4x4}`` [m]; ``setup``: ``eye-in-hand`` or ``eye-to-hand``.

    Errors: ConfigError for a file that is not there, DataError for poses that are no poses, too
    few, too similar or in contradiction to each other.
    """
    if not path.is_file():
        raise ConfigError(
            f"{path} is {'a folder' if path.is_dir() else 'not there'}: expected a JSON list of"
            ' {"T_base_tool": 4x4, "T_camera_board": 4x4}, one entry per pose'
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: {error}") from error
    pairs = pairs_of(document, setup, str(path))
    found = calibrate(pairs)
    return HandEyeCalibrated(found, len(pairs), exchanged(pairs, found), doubts(pairs, found))
