"""Finds a camera's lens and place from pictures of a board that is known (OpenCV's calibration).

Intrinsics from pictures of the board at different angles (Zhang 2000); the place from pictures of
boards, or of the tags of an object, that lie at known places of the table. What cannot be known
from the pictures is refused with what to do, not returned with a bad number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from robolearn.calibration.fiducials import Tag, corners, dictionary, require_tags
from robolearn.calibration.lens import LensConfig, camera_matrix, coefficients
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import (
    Pose,
    Rotation,
    VectorRows,
    XYRows,
    inverse,
    pose,
    quat_from_rotation,
    rot_z,
)
from robolearn.shapes import Floats, Picture

Grey = UInt8[NDArray[np.uint8], "h w"]

LEAST_VIEWS, LEAST_POINTS = 8, 6
# Parts of the views that judge a lens in turn.
_FOLDS = 5
# Between the two boards that are tilted most against each other; less and the focal length is only
# known together with the distance.
LEAST_TILT_DEG = 20.0
# Share of the picture's width and of its height that all corners together must cover.
LEAST_COVER = 0.5
WORST_RMS_PX, WORST_FOCAL_SHARE = 1.5, 0.02


@dataclass(frozen=True, slots=True)
class Board:
    """A printed board: chessboard, ChArUco (a chessboard with tags in its white squares), or tags.

    Its frame: x right, y up, z out of the board, the origin at its lower left corner (for ``tags``:
    the frame of their object).
    """

    # What is printed.
    kind: Literal["chessboard", "charuco", "tags"]
    # Squares in x and y, both colours counted.
    squares: tuple[int, int] = (0, 0)
    # Side of a square [m]; measure it on the print.
    square_m: float = 0.0
    # Side of a tag's black square on a ChArUco board [m].
    marker_m: float = 0.0
    # Of the tags.
    dictionary: str = "4x4_50"
    # The tags of a board of tags.
    tags: tuple[Tag, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "tags":
            require_tags(self.tags, self.dictionary)
        elif min(self.squares) < 3 or not self.square_m > 0:
            raise ConfigError(
                f"a {self.kind} has at least 3 x 3 squares of a size above 0 m, got"
                f" {self.squares}, {self.square_m}"
            )
        if self.kind == "charuco" and not 0 < self.marker_m < self.square_m:
            raise ConfigError(
                f"a ChArUco board's tags are smaller than its squares ({self.square_m} m), got"
                f" {self.marker_m} m"
            )


@dataclass(frozen=True, slots=True)
class View:
    """What was found in one picture: ``points [n, 3]`` of the board's frame [m] and where they are
    ``pixels [n, 2]``.
    """

    points: VectorRows
    pixels: XYRows


@dataclass(frozen=True, slots=True)
class Intrinsics:
    """A lens and how well it is known: RMS of what is left over [px], of every view ``[views]``,
    and standard errors of focal lengths and centre [px] and of the distortion.
    """

    focal_px: tuple[float, float]
    centre_px: tuple[float, float]
    distortion: tuple[float, ...]
    rms_px: float
    view_rms_px: tuple[float, ...]
    focal_error_px: tuple[float, float]
    centre_error_px: tuple[float, float] = (0.0, 0.0)
    distortion_error: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """The complete lens, RMS of what is left over [px] and on the table [m], number of points."""

    lens: LensConfig
    rms_px: float
    rms_m: float
    points: int


class BoardFinder:
    """Finds a board in pictures; no state but the detector's."""

    def __init__(self, board: Board) -> None:
        self.board = board
        settings = cv2.aruco.DetectorParameters()
        settings.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
        settings.cornerRefinementWinSize = 3
        if board.kind == "charuco":
            made = cv2.aruco.CharucoBoard(
                board.squares, board.square_m, board.marker_m, dictionary(board.dictionary)
            )
            self._charuco = cv2.aruco.CharucoDetector(made)
            self._corners = np.asarray(made.getChessboardCorners(), dtype=np.float64)
            objects = (np.asarray(o, dtype=np.float64) for o in made.getObjPoints())
            places = (self._upright(o.reshape(4, 3))[:, :2] for o in objects)
            ids = np.asarray(made.getIds(), dtype=np.int64).ravel()
            self._tags = {int(i): at for i, at in zip(ids, places, strict=True)}
        elif board.kind == "tags":
            self._tags = {t.id: corners(t) for t in board.tags}
        if board.kind != "chessboard":
            self._detector = cv2.aruco.ArucoDetector(dictionary(board.dictionary), settings)

    def find(self, image: Picture) -> View | None:
        """The board's corners in an RGB picture; None when too few are seen, or all on a line."""
        grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
        if self.board.kind == "charuco":
            found, seen, _, _ = self._charuco.detectBoard(grey)
            ids: Any = seen  # None without a corner, whatever the stubs say
            if ids is None or len(ids) < LEAST_POINTS:
                return None
            points = self._upright(self._corners[np.asarray(ids, dtype=np.int64).ravel()])
            if on_a_line(points):
                return None
            at = np.asarray(found, dtype=np.float64).reshape(-1, 2)
            return View(points, self._between_squares(grey, points, at))
        return self._tags_in(grey) if self.board.kind == "tags" else self._chessboard(grey)

    def find_covered(self, image: Picture) -> View | None:
        """Like ``find``, of a board on which something stands: where few corners of squares are
        left, those of single tags count (less exact; a chessboard has none).
        """
        view = self.find(image)
        if view is not None or self.board.kind != "charuco":
            return view
        return self._tags_in(np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8))

    def _between_squares(self, grey: Grey, points: VectorRows, at: XYRows) -> XYRows:
        """Corners where four squares meet, whole numbers at pixel centres.

        OpenCV's ChArUco detector adds half a pixel to both coordinates (opencv/opencv issue 25539,
        versions 4.6 to 4.12; 0.50 +- 0.04 px here); refining once more from where it says holds
        whether a version does so or not. The window stays clear of the tags.
        """
        board = self.board
        across: Floats = np.linalg.norm(at[1:] - at[:-1], axis=1)
        apart: Floats = np.linalg.norm(points[1:] - points[:-1], axis=1)
        px_per_m = float(np.median(across / apart))
        clear_px = 0.5 * (board.square_m - board.marker_m) * px_per_m
        half = int(np.clip(0.7 * clear_px, 2, 5))
        stop = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 40, 1e-3)
        start = at.astype(np.float32).reshape(-1, 1, 2)
        fine = cv2.cornerSubPix(grey, start, (half, half), (-1, -1), stop)
        return np.asarray(fine, dtype=np.float64).reshape(-1, 2)

    def _chessboard(self, grey: Grey) -> View | None:
        inner = (self.board.squares[0] - 1, self.board.squares[1] - 1)
        found, at = cv2.findChessboardCornersSB(grey, inner)
        if not found:
            return None
        columns, rows = np.meshgrid(np.arange(1, inner[0] + 1), np.arange(1, inner[1] + 1))
        flat = np.stack([columns, rows, 0 * rows], axis=-1).reshape(-1, 3) * self.board.square_m
        return View(self._upright(flat), np.asarray(at, dtype=np.float64).reshape(-1, 2))

    def _tags_in(self, grey: Grey) -> View | None:
        found, seen, _ = self._detector.detectMarkers(grey)
        ids: Any = seen  # None without a tag, whatever the stubs say
        pairs = [
            (self._tags[int(i)], np.asarray(at, dtype=np.float64).reshape(4, 2))
            for at, i in zip(found, [] if ids is None else ids.ravel(), strict=True)
            if int(i) in self._tags
        ]
        if 4 * len(pairs) < LEAST_POINTS:
            return None
        flat = np.concatenate([corner for corner, _ in pairs])
        points = np.column_stack([flat, np.zeros(len(flat))])
        return View(points, np.concatenate([at for _, at in pairs]))

    def _upright(self, points: VectorRows) -> VectorRows:
        """OpenCV's boards have y down from the upper left corner."""
        height = self.board.squares[1] * self.board.square_m
        return np.column_stack([points[:, 0], height - points[:, 1], np.zeros(len(points))])


def on_a_line(points: VectorRows) -> bool:
    """Whether corners ``[n, 3]`` of a board are on one line: no pose of it can be told then."""
    across = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return bool(across[1] < 1e-6 * max(float(across[0]), 1e-12))


def intrinsics(views: Sequence[View], size: tuple[int, int]) -> Intrinsics:
    """The lens of a camera whose pictures are ``size`` (width, height) [px].

    Raises DataError for too few views, views that are too alike, corners in too small a part of the
    picture, or what fits badly.
    """
    if len(views) < LEAST_VIEWS:
        raise DataError(
            f"the board was found in {len(views)} picture(s), at least {LEAST_VIEWS} are needed:"
            " show all of it, flat, sharp, evenly lit; check squares and dictionary"
        )
    everything = np.concatenate([v.pixels for v in views])
    cover = np.ptp(everything, axis=0) / np.array(size)
    if cover.min() < LEAST_COVER:
        raise DataError(
            f"the board covered {cover[0]:.0%} of the width and {cover[1]:.0%} of the height of the"
            f" picture, at least {LEAST_COVER:.0%} are needed: show it in the corners, too"
        )
    rms, K, distortion, turns, errors, per_view = _zhang(views, size)
    tilt = _largest_tilt([np.asarray(cv2.Rodrigues(t)[0], dtype=np.float64) for t in turns])
    if tilt < LEAST_TILT_DEG:
        raise DataError(
            f"the views are too alike: the board was tilted by at most {tilt:.0f} degrees between"
            f" them, {LEAST_TILT_DEG:g} are needed: tilt it to all sides"
        )
    fx, fy, cx, cy = (float(v) for v in (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))
    spread = (float(errors[0, 0]), float(errors[1, 0]))
    if max(spread[0] / fx, spread[1] / fy) > WORST_FOCAL_SHARE or rms > WORST_RMS_PX:
        raise DataError(
            f"the lens is not well known: {rms:.2f} px are left over (at most {WORST_RMS_PX:g}),"
            f" the focal length is uncertain by {spread[0]:.1f} px of {fx:.0f}; take more pictures,"
            " from more sides, check that the board is flat and its squares as measured"
        )
    k1, k2, p1, p2 = (float(v) for v in np.asarray(distortion).ravel()[:4])
    beside = (float(errors[2, 0]), float(errors[3, 0]))
    bent = tuple(float(v) for v in errors[4:8, 0])
    return Intrinsics(
        (fx, fy),
        (cx, cy),
        (k1, k2, p1, p2),
        float(rms),
        tuple(float(v) for v in np.asarray(per_view).ravel()),
        spread,
        beside,
        bent,
    )


def held_out_px(views: Sequence[View], size: tuple[int, int]) -> float:
    """How far corners are from where a lens that their pictures did not tell sees them: RMS [px].
    Every fifth view is left out in turn; where the board is in it every second corner says, and the
    others judge, and the other way round.
    """
    squares: list[Floats] = []
    for k in range(_FOLDS):
        _, K, distortion, _, _, _ = _zhang(
            [v for i, v in enumerate(views) if i % _FOLDS != k], size
        )
        lens = np.array([K[0, 0], K[1, 1], K[0, 2], K[1, 2], *np.ravel(distortion)[:4]])
        focal, centre, bent = tuple(lens[:2]), tuple(lens[2:4]), tuple(lens[4:])
        for view in views[k::_FOLDS]:
            squares += _judged(view, focal, centre, bent)
    return _rms(squares)


def place_held_out_px(points: VectorRows, pixels: XYRows, lens: LensConfig) -> float:
    """How far corners are from where a place that the others say sees them: RMS [px]; NaN where
    half of them are too few to say one.
    """
    view = View(points, pixels)
    squares = _judged(view, lens.focal_px, lens.centre_px, lens.distortion)
    return _rms(squares)


def _judged(
    view: View,
    focal_px: tuple[float, float],
    centre_px: tuple[float, float],
    distortion: tuple[float, ...],
) -> list[Floats]:
    """Squared distances [px^2] of either half of the corners by the pose that the other one says;
    nothing of a half that says none.
    """
    out: list[Floats] = []
    for first in range(2):
        told, judging = (slice(start, None, 2) for start in (first, 1 - first))
        half = View(view.points[told].copy(), view.pixels[told].copy())
        T = seen_pose(half, focal_px, centre_px, distortion)
        if T is not None:
            at = projected(view.points[judging], T, focal_px, centre_px, distortion)
            out.append(((at - view.pixels[judging]) ** 2).sum(axis=1))
    return out


def _rms(squares: Sequence[Floats]) -> float:
    """NaN of nothing."""
    return float(np.sqrt(np.concatenate(squares).mean())) if squares else float("nan")


def projected(
    points: VectorRows,
    T_camera_points: Pose,
    focal_px: tuple[float, float],
    centre_px: tuple[float, float],
    distortion: tuple[float, ...],
) -> XYRows:
    """Where a camera sees ``points [n, 3]`` ``[n, 2]`` [px]."""
    points = np.ascontiguousarray(points)
    K = camera_matrix(focal_px, centre_px)
    turn, _ = cv2.Rodrigues(T_camera_points[:3, :3])
    known = coefficients(distortion)
    at, _ = cv2.projectPoints(points, turn, T_camera_points[:3, 3].copy(), K, known)
    return np.asarray(at, dtype=np.float64).reshape(-1, 2)


def _zhang(views: Sequence[View], size: tuple[int, int]) -> tuple[Any, ...]:
    """OpenCV's: RMS [px], matrix, distortion, the boards' rotations, standard errors, RMS of every
    view [px].
    """
    rms, K, distortion, turns, _, errors, _, per_view = cv2.calibrateCameraExtended(
        [v.points.astype(np.float32) for v in views],
        [v.pixels.astype(np.float32) for v in views],
        size,
        np.eye(3),
        np.zeros(5),
        flags=cv2.CALIB_FIX_K3,
    )
    return rms, K, distortion, turns, errors, per_view


def on_table(
    view: View, at: tuple[float, float, float], height_m: float = 0.0
) -> tuple[VectorRows, XYRows]:
    """Points of a board that lies at ``at`` (x [m], y [m], yaw [rad]) in the table's frame,
    ``height_m`` over it: ``[n, 3]`` [m], and their pixels.
    """
    T = pose(rot_z(at[2]), (at[0], at[1], height_m))
    return view.points @ T[:3, :3].T + T[:3, 3], view.pixels


def place(
    points: VectorRows,
    pixels: XYRows,
    focal_px: tuple[float, float],
    centre_px: tuple[float, float],
    distortion: tuple[float, ...],
) -> Placed:
    """Where the camera is, from ``points [n, 3]`` of the table's frame [m] (all of one height, or
    not) and where it sees them ``[n, 2]`` [px].

    Raises DataError for too few points, points in too small a part of the picture, or a bad fit.
    """
    if len(points) < LEAST_POINTS:
        raise DataError(f"expected at least {LEAST_POINTS} corners on the table, got {len(points)}")
    if on_a_line(points):
        raise DataError("all corners are on one line, which tells no pose: show more of the board")
    K = camera_matrix(focal_px, centre_px)
    known = coefficients(distortion)
    # About their middle: a planar set of points is solved as such.
    middle = points.mean(axis=0)
    flat = float(np.ptp(points[:, 2])) < 1e-9
    method = cv2.SOLVEPNP_IPPE if flat else cv2.SOLVEPNP_SQPNP
    found, turn, move = cv2.solvePnP(points - middle, pixels, K, known, flags=method)
    if not found:
        raise DataError(
            "no place of the camera explains the corners: too few, or all but on one line; show"
            " more of the board"
        )
    turn, move = cv2.solvePnPRefineLM(points - middle, pixels, K, known, turn, move)
    R = np.asarray(cv2.Rodrigues(turn)[0], dtype=np.float64)
    T_camera_table = pose(R, np.asarray(move).ravel() - R @ middle)
    T = inverse(T_camera_table)
    x, y, z = T[:3, 3].tolist()
    qw, qx, qy, qz = quat_from_rotation(T[:3, :3]).tolist()
    lens = LensConfig(focal_px, centre_px, (x, y, z), (qw, qx, qy, qz), distortion)
    rms_px = float(np.sqrt(((lens.pixels(points) - pixels) ** 2).sum(axis=1).mean()))
    again = np.empty_like(pixels)
    for height in np.unique(points[:, 2]):
        there = points[:, 2] == height
        again[there] = lens.on_plane(pixels[there], float(height))
    rms_m = float(np.sqrt(((again - points[:, :2]) ** 2).sum(axis=1).mean()))
    if not rms_px < WORST_RMS_PX or not z > 0:
        raise DataError(
            f"no place of the camera explains the corners: {rms_px:.2f} px are left over (at most"
            f" {WORST_RMS_PX:g}); check where the board lies and its size, and the lens"
        )
    return Placed(lens, rms_px, rms_m, len(points))


def seen_pose(
    view: View,
    focal_px: tuple[float, float],
    centre_px: tuple[float, float],
    distortion: tuple[float, ...],
) -> Pose | None:
    """``T_camera_board [4, 4]`` of a board in a picture; None when its corners do not fit."""
    try:
        found = place(view.points, view.pixels, focal_px, centre_px, distortion)
    except DataError:
        return None
    return inverse(found.lens.T_frame_camera)


def different(view: View, taken: Sequence[View], width_px: int, share: float = 0.08) -> bool:
    """Whether a view's corners are elsewhere than in all views taken: by ``share`` of the width."""
    box = _box(view)
    return all(float(np.abs(box - _box(other)).max()) > share * width_px for other in taken)


def _box(view: View) -> Floats:
    return np.concatenate([view.pixels.min(axis=0), view.pixels.max(axis=0)])


def _largest_tilt(rotations: Sequence[Rotation]) -> float:
    """Largest angle between the normals of two boards [deg]."""
    normals = np.stack([R[:, 2] for R in rotations])
    return float(np.degrees(np.arccos(np.clip(normals @ normals.T, -1.0, 1.0).min())))
