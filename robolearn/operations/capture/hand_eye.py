"""Calibrates where a camera is on the arm, or beside it, from the pictures of a capture folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from robolearn.calibration.hand_eye_causes import calibrate, doubts, exchanged, stamped_late
from robolearn.calibration.pose_pairs import ContradictionError, PosePairs
from robolearn.capture.board_depth import depth_problem
from robolearn.capture.board_views import (
    HandEyePairs,
    board_views,
    hand_eye_pairs,
    held_out_px,
    lens_of,
    lens_problem,
    unseen_problem,
)
from robolearn.capture.check import check_capture
from robolearn.capture.clocks import poses_at, read_record
from robolearn.capture.folder import Capture, read_capture
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.operations.cell.hand_eye import HandEyeCalibrated

_GOOD_M = 0.002


def calibrate_hand_eye_pictures(folder: Path, camera: str = "") -> HandEyeCalibrated:
    """Solve for a camera of a capture ("": the only one that has hand-eye pictures).

    Errors: ConfigError for a folder without what is needed; DataError for pictures that cannot be
    used, poses that are too few, too similar, or in contradiction, with the likeliest cause.
    """
    capture = read_capture(folder)
    report = check_capture(capture)
    if report.errors:
        raise DataError(f"{folder}: {'; '.join(report.errors)}")
    wanted = _camera(capture, camera)
    frames = [f for f in report.usable if f.set.camera == wanted and f.set.purpose != "background"]
    seen = board_views(capture, frames)
    if not seen:
        raise DataError(unseen_problem(capture, wanted, frames))
    wrong = lens_problem(wanted, capture.config.cameras[wanted], seen)
    if wrong:
        raise DataError(f"{folder}: {wrong}")
    lens, note = lens_of(capture, wanted, seen)
    level, depth = depth_problem(seen, {wanted: lens})
    if level == "error":
        raise DataError(f"{folder}: {depth}")
    found = hand_eye_pairs(capture, wanted, lens, seen)
    if found is None:
        raise DataError(_nothing(capture, wanted, len(seen), len(frames)))
    result = calibrated(capture, found)
    notes = [note, *(f.what for f in report.findings), *result.notes, depth]
    return replace(
        result,
        notes=tuple(text for text in notes if text),
        held_out_px=held_out_px(result.found, found, lens),
    )


def calibrated(capture: Capture, found: HandEyePairs) -> HandEyeCalibrated:
    """The camera's place from pairs; a contradiction names clocks that are out of step, too."""
    pairs = found.pairs
    at = _pairs_at(capture, found)
    try:
        result = calibrate(pairs)
    except ContradictionError as error:
        late_s = None if at is None else stamped_late(at)
        if late_s is None:
            raise
        raise ContradictionError(_late(late_s)) from error
    # Poses as good as this leave no room for another time.
    doubtful = result.rms_m > _GOOD_M or len(result.outliers) > 0
    late_s = stamped_late(at) if at is not None and doubtful else None
    if late_s is not None:
        raise ContradictionError(_late(late_s))
    swapped, doubt = exchanged(pairs, result), doubts(pairs, result)
    return HandEyeCalibrated(result, len(pairs), swapped, doubt, pairs.names)


def _pairs_at(capture: Capture, found: HandEyePairs) -> Callable[[float], PosePairs] | None:
    """The pairs as a function of how late the pictures' times are, where the arm's record tells."""
    poses = poses_at(capture, read_record(capture.path), found.frames)
    if poses is None:
        return None
    return lambda late_s: replace(found.pairs, T_base_tool=poses(late_s))


def _late(late_s: float) -> str:
    return (
        f"the clocks of camera and arm are out of step: the poses agree when the pictures were"
        f" taken {abs(late_s):.2f} s {'before' if late_s > 0 else 'after'} their t_s. Stamp both"
        " with one clock ('robolearn calibrate latency' measures a camera's delay), or subtract it"
    )


def _camera(capture: Capture, camera: str) -> str:
    cameras = capture.config.cameras
    if camera:
        if camera not in cameras:
            raise ConfigError(
                f"camera: no camera '{camera}'.{did_you_mean(camera, cameras)} There are:"
                f" {sorted(cameras)}"
            )
        return camera
    shown = sorted({f.set.camera for f in capture.of("handeye")})
    candidates = shown or sorted(cameras)
    if len(candidates) != 1:
        raise ConfigError(f"camera: which one of {candidates}? Give its name")
    return candidates[0]


def _nothing(capture: Capture, camera: str, seen: int, of: int) -> str:
    mount = capture.config.cameras[camera].mount
    board = capture.config.board
    where = "table" if board is None else board.where
    if (mount, where) not in (("flange", "table"), ("table", "flange")):
        return (
            f"camera '{camera}' is fixed to the {mount} and the board to the {where}: one of both"
            " must move with the arm (cameras.NAME.mount and board.where in capture.yaml; sets may"
            " say otherwise by board_on)"
        )
    return (
        f"camera '{camera}': the board is in {seen} of {of} pictures, but none of them has a"
        " T_base_tool in frames.csv: write the arm's pose of every picture"
    )
