"""Finds the board in a capture's pictures, and from it lenses and the arm's pairs of poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from robolearn.calibration.boards import BoardFinder, View, intrinsics, projected, seen_pose
from robolearn.calibration.hand_eye import HandEye
from robolearn.calibration.lens import camera_matrix
from robolearn.calibration.pose_pairs import PosePairs, Setup
from robolearn.calibration.rig import Mount
from robolearn.calibration.rig_fit import LensNumbers
from robolearn.calibration.unseen_board import why_unseen
from robolearn.capture.config import CaptureCamera, CaptureLens, CaptureSet
from robolearn.capture.folder import Capture, Frame
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, pose, rotation_from_rotvec
from robolearn.shapes import Floats

# A lens is another one beyond this share of its focal length, and so many standard errors of what
# the board says; or when its centre lies so far away, as a share of the picture.
_OFF_SHARE, _UNSURE, _BESIDE = 0.03, 5.0, 0.1


@dataclass(frozen=True, slots=True)
class BoardView:
    """The board in a picture."""

    frame: Frame
    view: View

    def pose(self, lens: CaptureLens) -> Pose | None:
        """``T_camera_board``; None when the corners are no board by this lens."""
        return seen_pose(self.view, lens.focal_px, lens.centre_px, lens.distortion)


def board_views(capture: Capture, frames: Sequence[Frame]) -> tuple[BoardView, ...]:
    """The pictures in which the board is found. ConfigError without a board in capture.yaml."""
    board = capture.config.board
    if board is None:
        raise ConfigError(
            f"{capture.path}/capture.yaml describes no board: give 'board' (kind, squares,"
            " square_m, of a charuco marker_m and dictionary), as measured on the print"
        )
    finder = BoardFinder(board.board())
    found = ((f, finder.find(f.picture())) for f in frames)
    return tuple(BoardView(frame, view) for frame, view in found if view is not None)


def unseen_problem(capture: Capture, camera: str, frames: Sequence[Frame]) -> str:
    """Why the board is in none of a camera's pictures, as a sentence."""
    board = capture.config.board
    why = "" if board is None else why_unseen(board.board(), [f.picture() for f in frames])
    return f"camera '{camera}': the board is in none of {len(frames)} picture(s): " + (
        why or "show all of it; do squares and dictionary of capture.yaml match the print?"
    )


def lens_problem(camera: str, config: CaptureCamera, seen: Sequence[BoardView]) -> str:
    """What speaks against the lens that capture.yaml gives, by the camera's pictures of the board;
    "" where nothing does, or they tell too little.
    """
    given = config.lens
    if given is None:
        return ""
    try:
        found = intrinsics([b.view for b in seen if b.frame.set.camera == camera], config.size)
    except DataError:
        return ""
    unsure = _UNSURE * np.array(found.focal_error_px)
    focal, told = np.array(found.focal_px), np.array(given.focal_px)
    beside = np.abs(np.array(found.centre_px) - given.centre_px) / np.array(config.size)
    far = (np.abs(told - focal) > np.maximum(_OFF_SHARE * focal, unsure)).any()
    if not far and beside.max() < _BESIDE:
        return ""
    return (
        f"camera '{camera}': the lens of capture.yaml is another one than that of its pictures:"
        f" focal_px {_pair(told)}, centre_px {_pair(given.centre_px)}; the board in them says"
        f" {_pair(focal)} and {_pair(found.centre_px)}. Intrinsics of another picture size are"
        " scaled with it, those of a crop moved; without 'lens' it is found from the board"
    )


def _pair(values: Sequence[float] | Floats) -> str:
    return f"{values[0]:.0f} {values[1]:.0f}"


def carried_by(capture: Capture, entry: CaptureSet) -> Mount:
    """What carries the board in the pictures of a set."""
    if entry.board_on:
        return entry.board_on
    if entry.purpose == "lens" or capture.config.board is None:
        return "hand"
    return capture.config.board.where


def lens_of(
    capture: Capture, camera: str, seen: Sequence[BoardView] | None = None
) -> tuple[CaptureLens, str]:
    """A camera's lens, given or found from pictures of the board, and how it is known. ``seen``:
    where the board was found already.
    """
    config = capture.config.cameras[camera]
    if config.lens is not None:
        return config.lens, "lens given"
    if capture.config.board is None:
        raise ConfigError(
            f"camera '{camera}' has no lens in capture.yaml, and there is no board to find it from:"
            " give lens.focal_px and lens.centre_px, or take pictures of a board (purpose: lens)"
        )
    if seen is None:
        seen = board_views(capture, capture.of("lens", "handeye", "scan"))
    mine = [b.view for b in seen if b.frame.set.camera == camera]
    try:
        result = intrinsics(mine, config.size)
    except DataError as error:
        raise DataError(f"camera '{camera}': {error}") from error
    lens = CaptureLens(result.focal_px, result.centre_px, result.distortion)
    return lens, (
        f"lens of '{camera}' found from {len(mine)} pictures of the board, {result.rms_px:.2f} px"
        f" left over, focal length +- {max(result.focal_error_px):.1f} px"
    )


def setup_of(capture: Capture, view: BoardView) -> Setup | None:
    """Which of camera and board moves with the arm; None: both or none."""
    mount, held = view.frame.camera.mount, carried_by(capture, view.frame.set)
    if (mount, held) == ("flange", "table"):
        return "eye-in-hand"
    return "eye-to-hand" if (mount, held) == ("table", "flange") else None


@dataclass(frozen=True, slots=True)
class HandEyePairs:
    """Pairs of a camera, the pictures that they are of and the board in them."""

    pairs: PosePairs
    frames: tuple[Frame, ...]
    views: tuple[View, ...]


def hand_eye_pairs(
    capture: Capture, camera: str, lens: CaptureLens, seen: Sequence[BoardView]
) -> HandEyePairs | None:
    """What arm and camera say at the same moments; None: no picture tells both."""
    rows: list[tuple[BoardView, Pose, Pose]] = []
    setups: set[Setup] = set()
    for b in seen:
        frame, setup = b.frame, setup_of(capture, b)
        if frame.set.camera != camera or frame.T_base_tool is None or setup is None:
            continue
        T = b.pose(lens)
        if T is not None:
            rows.append((b, frame.T_base_tool, T))
            setups.add(setup)
    if not rows:
        return None
    shown, arm, board = zip(*rows, strict=True)
    names = tuple(b.frame.name for b in shown)
    pairs = PosePairs(np.stack(arm), np.stack(board), setups.pop(), names)
    return HandEyePairs(pairs, tuple(b.frame for b in shown), tuple(b.view for b in shown))


def held_out_px(found: HandEye, of: HandEyePairs, lens: CaptureLens) -> float:
    """How far corners of the board are from where the poses of other places, and the arm's, say
    that they are seen: RMS over all corners of pictures that were believed [px].
    """
    squares: list[Floats] = []
    for left, T, view in zip(found.held_out, of.pairs.T_camera_board, of.views, strict=True):
        if not np.isfinite(left).all():
            continue
        predicted = pose(rotation_from_rotvec(left[3:]) @ T[:3, :3], T[:3, 3] + left[:3])
        at = projected(view.points, predicted, lens.focal_px, lens.centre_px, lens.distortion)
        squares.append(((at - view.pixels) ** 2).sum(axis=1))
    return float(np.sqrt(np.concatenate(squares).mean()))


def straightened(view: View, lens: CaptureLens) -> View:
    """A view as the lens without its distortion would show it."""
    if not any(lens.distortion):
        return view
    K = camera_matrix(lens.focal_px, lens.centre_px)
    flat = cv2.undistortPoints(view.pixels.reshape(-1, 1, 2), K, np.array(lens.distortion), P=K)
    return View(view.points, np.asarray(flat, dtype=np.float64).reshape(-1, 2))


def straight_numbers(lens: CaptureLens) -> LensNumbers:
    """The lens of views that were ``straightened``: without its distortion."""
    return np.array([*lens.focal_px, *lens.centre_px, 0.0, 0.0, 0.0, 0.0])
