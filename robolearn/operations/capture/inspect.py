"""Looks at a whole capture: what its checks find, and what its pictures of the board contradict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robolearn.capture.check import check_capture
from robolearn.capture.folder import Capture, read_capture
from robolearn.errors import RobolearnError
from robolearn.operations.capture.cameras import calibrate_cameras
from robolearn.operations.capture.hand_eye import calibrate_hand_eye_pictures


@dataclass(frozen=True, slots=True)
class Inspected:
    """How many of a capture's pictures can be used, what makes it useless, what is left out or
    doubtful, and what the board tells.
    """

    pictures: int
    usable: int
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    told: tuple[str, ...]


def inspect_capture(folder: Path) -> Inspected:
    """Every check, and where there are pictures of a board, every calibration. ConfigError and
    DataError for a folder that is none, or cannot be read.
    """
    capture = read_capture(folder)
    report = check_capture(capture)
    errors = list(report.errors)
    warnings = [f.what for f in report.findings if f.level == "warning"]
    told: list[str] = []
    shown = bool(capture.of("lens", "handeye"))
    if not errors and shown and capture.config.board is not None:
        _by_board(capture, errors, warnings, told)
    return Inspected(
        len(capture.frames), len(report.usable), tuple(errors), tuple(warnings), tuple(told)
    )


def _by_board(capture: Capture, errors: list[str], warnings: list[str], told: list[str]) -> None:
    """The cameras whose place the arm tells one by one, as that names causes; then together."""
    moving = {
        f.set.camera for f in capture.of("handeye") if f.T_base_tool is not None
    } - _lying_only(capture)
    for camera in sorted(moving):
        try:
            found = calibrate_hand_eye_pictures(capture.path, camera)
        except RobolearnError as error:
            errors.append(str(error))
            continue
        half, used = 1e3 * found.found.half_m.max(), found.poses - len(found.found.outliers)
        used -= len(found.found.copies)
        told.append(
            f"camera '{camera}': {used} of {found.poses}"
            f" hand-eye pictures agree, its place is known to +- {half:.2f} mm"
        )
        warnings += [
            f"{found.name(i)}: the arm's pose is wrong,"
            f" {found.found.distances[i]:.0f} standard deviations off"
            for i in found.found.outliers
        ]
        warnings += [
            f"{found.name(i)} and {found.name(j)} were exchanged" for i, j in found.exchanged
        ]
    if errors:
        return
    try:
        rig = calibrate_cameras(capture.path)
    except RobolearnError as error:
        errors.append(str(error))
        return
    known = {text.split(":", 1)[0] for text in warnings}
    warnings += [f"{n}: {why}" for n, why in rig.found.outliers.items() if n not in known]
    warnings += rig.found.notes
    told += [
        f"camera '{c.name}': {c.held_out_px:.2f} px where the other pictures predict one"
        f" ({c.pictures} pictures)"
        for c in rig.found.cameras
    ]


def _lying_only(capture: Capture) -> set[str]:
    """Cameras that stand still and see the board on the table only."""
    still = {n for n, c in capture.config.cameras.items() if c.mount == "table"}
    board = capture.config.board
    on_arm = {
        f.set.camera
        for f in capture.of("handeye")
        if (f.set.board_on or (board and board.where)) == "flange"
    }
    return still - on_arm
