"""Finds the board in a capture's pictures, and from it lenses and the arm's pairs of poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from robolearn.calibration.boards import BoardFinder, View, intrinsics, seen_pose
from robolearn.calibration.hand_eye import PosePairs, Setup
from robolearn.calibration.rig import Mount
from robolearn.capture.config import CaptureLens, CaptureSet
from robolearn.capture.folder import Capture, Frame
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose


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
    """Pairs of a camera, and the pictures that they are of."""

    pairs: PosePairs
    frames: tuple[Frame, ...]


def hand_eye_pairs(
    capture: Capture, camera: str, lens: CaptureLens, seen: Sequence[BoardView]
) -> HandEyePairs | None:
    """What arm and camera say at the same moments; None: no picture tells both."""
    rows: list[tuple[Frame, Pose, Pose]] = []
    setups: set[Setup] = set()
    for b in seen:
        frame, setup = b.frame, setup_of(capture, b)
        if frame.set.camera != camera or frame.T_base_tool is None or setup is None:
            continue
        T = b.pose(lens)
        if T is not None:
            rows.append((frame, frame.T_base_tool, T))
            setups.add(setup)
    if not rows:
        return None
    frames, arm, board = zip(*rows, strict=True)
    names = tuple(f.name for f in frames)
    pairs = PosePairs(np.stack(arm), np.stack(board), setups.pop(), names)
    return HandEyePairs(pairs, tuple(frames))


def straightened(view: View, lens: CaptureLens) -> View:
    """A view as the lens without its distortion would show it."""
    if not any(lens.distortion):
        return view
    (fx, fy), (cx, cy) = lens.focal_px, lens.centre_px
    K = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
    flat = cv2.undistortPoints(view.pixels.reshape(-1, 1, 2), K, np.array(lens.distortion), P=K)
    return View(view.points, np.asarray(flat, dtype=np.float64).reshape(-1, 2))
