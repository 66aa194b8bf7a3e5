"""Finds where every picture of a capture was taken: lens, hand-eye and board, or as it says itself.

A straight (undistorted) pinhole camera and ``T_world_camera`` per picture. The world stands still;
which one it is (the table's, the arm's base, somebody's AR kit) is said, and the table's plane
makes the table's frame of it (``sim/reconstruction/table/plane.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np

from robolearn.calibration.boards import BoardFinder
from robolearn.calibration.hand_eye_causes import calibrate
from robolearn.capture.board_depth import depth_problem
from robolearn.capture.board_views import (
    BoardView,
    board_views,
    hand_eye_pairs,
    lens_of,
    lens_problem,
)
from robolearn.capture.config import CaptureLens, Mount
from robolearn.capture.folder import Capture, Frame, matrix
from robolearn.errors import DataError
from robolearn.geometry import CameraMatrix, Pose, inverse, pose
from robolearn.shapes import Picture
from sim.reconstruction.shapes import Depth, Mask, Numbers, Points

# Placed pictures that are asked where the board lies.
_BOARD_VIEWS = 12
# Whose frame the poses are given in.
WorldFrame = Literal["table", "base", "unknown"]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A number that nobody measured."""

    what: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class PosedFrame:
    """A picture, its straight camera ``K`` and where that was ``T_table_camera`` [m]."""

    frame: Frame
    lens: CaptureLens
    T_table_camera: Pose

    @property
    def name(self) -> str:
        """Folder and file."""
        return self.frame.name

    @property
    def K(self) -> CameraMatrix:  # noqa: N802  (the field's name)
        """Of the straight picture [px]; the size is the camera's."""
        (fx, fy), (cx, cy) = self.lens.focal_px, self.lens.centre_px
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @property
    def has_depth(self) -> bool:
        """Whether it can be fused."""
        return self.frame.depth_file is not None and self.frame.camera.depth is not None

    def picture(self) -> Picture:
        """The picture without distortion, RGB."""
        image = self.frame.picture()
        if not any(self.lens.distortion):
            return image
        straight = cv2.undistort(image, self.K, np.array(self.lens.distortion))
        return np.asarray(straight, dtype=np.uint8)

    def depth_m(self) -> Depth:
        """Depth [m] without distortion: the nearest pixel's, as edges must not be blended."""
        return self._straight(self.frame.depth_m())

    def numbers(self) -> Numbers:
        """Which object of capture.yaml every pixel shows by the mask, without distortion."""
        return self._straight(self.frame.mask().astype(np.float32)).astype(np.int64)

    def mask(self) -> Mask | None:
        """Which pixels show an object; None without a mask."""
        return None if self.frame.mask_file is None else self.numbers() > 0

    def _straight(self, values: Depth) -> Depth:
        if not any(self.lens.distortion):
            return values
        size = self.frame.camera.size
        maps = cv2.initUndistortRectifyMap(
            self.K, np.array(self.lens.distortion), np.eye(3), self.K, size, cv2.CV_32FC1
        )
        straight = cv2.remap(values, maps[0], maps[1], cv2.INTER_NEAREST)
        return np.asarray(straight, dtype=np.float32)

    def moved(self, T: Pose) -> PosedFrame:
        """The same picture with its world in another frame."""
        return replace(self, T_table_camera=T @ self.T_table_camera)


@dataclass(frozen=True, slots=True)
class Posed:
    """Frames with poses in ``world``; pictures without one by the reason; what had to be found."""

    frames: tuple[PosedFrame, ...]
    world: WorldFrame
    unposed: dict[str, str]
    notes: tuple[str, ...]


def posed_frames(capture: Capture, frames: Sequence[Frame]) -> Posed:
    """Poses of ``frames`` in one world: by the first way that all cameras' frames have.

    DataError when no picture can be placed, or frames are in different worlds.
    """
    notes: list[str] = []
    seen = _seen(capture, frames)
    lenses = _lenses(capture, frames, seen, notes)
    for camera in lenses:
        wrong = lens_problem(camera, capture.config.cameras[camera], seen)
        if wrong:
            raise DataError(f"{capture.path}: {wrong}")
    level, depth = depth_problem(seen, lenses)
    if level == "error":
        raise DataError(f"{capture.path}: {depth}")
    notes += [depth] if depth else []
    finder = None
    if capture.config.board is not None:
        finder = BoardFinder(capture.config.board.board())
    places = {c: _place(capture, c, lenses[c], seen, notes) for c in lenses}
    out: list[PosedFrame] = []
    unposed: dict[str, str] = {}
    worlds: set[WorldFrame] = set()
    for frame in frames:
        lens = lenses[frame.set.camera]
        found = _pose(capture, frame, lens, places[frame.set.camera], finder)
        if isinstance(found, str):
            unposed[frame.name] = found
            continue
        worlds.add(found[1])
        out.append(PosedFrame(frame, lens, found[0]))
    if not out:
        reason = next(iter(unposed.values()), "there are none")
        raise DataError(
            f"no picture of the scan can be placed: {reason}. Every picture needs T_world_camera,"
            " T_base_tool with the camera's place on the flange, or a board on the table in view"
        )
    if len(worlds) > 1:
        raise DataError(
            f"pictures are placed in different frames {sorted(worlds)}: give all of them"
            " T_world_camera, or arm.T_table_base so that the arm's and the table's frame are one"
        )
    return Posed(tuple(out), worlds.pop(), unposed, tuple(notes))


def known_lenses(capture: Capture, frames: Sequence[Frame]) -> dict[str, CaptureLens]:
    """The lenses of cameras that took ``frames``, given or found from the board."""
    return _lenses(capture, frames, _seen(capture, frames), [])


def _lenses(
    capture: Capture, frames: Sequence[Frame], seen: Sequence[BoardView], notes: list[str]
) -> dict[str, CaptureLens]:
    lenses: dict[str, CaptureLens] = {}
    for camera in sorted({f.set.camera for f in frames}):
        lenses[camera], note = lens_of(capture, camera, seen)
        notes.append(note)
    return lenses


def _pose(
    capture: Capture,
    frame: Frame,
    lens: CaptureLens,
    T_mount_camera: Pose | None,
    finder: BoardFinder | None,
) -> tuple[Pose, WorldFrame] | str:
    """Where a picture was taken and in which world, or why nobody knows."""
    arm = capture.config.arm
    if frame.T_world_camera is not None:
        return frame.T_world_camera, "unknown"
    mount: Mount = frame.camera.mount
    if mount == "table" and T_mount_camera is not None:
        return T_mount_camera, "table"
    if mount == "flange" and T_mount_camera is not None and frame.T_base_tool is not None:
        T_base_camera = frame.T_base_tool @ T_mount_camera
        if arm is None or arm.T_table_base is None:
            return T_base_camera, "base"
        return matrix(arm.T_table_base) @ T_base_camera, "table"
    board = capture.config.board
    if finder is None or board is None or board.where != "table":
        return f"{frame.name} has no pose, and no board lies on the table"
    view = finder.find(frame.picture())
    T_camera_board = None if view is None else BoardView(frame, view).pose(lens)
    if T_camera_board is None:
        return f"the board is not seen in {frame.name}"
    T = np.eye(4) if board.T_table_board is None else matrix(board.T_table_board)
    return T @ inverse(T_camera_board), "table"


def _seen(capture: Capture, frames: Sequence[Frame]) -> tuple[BoardView, ...]:
    """The board in pictures, where a lens or a place is to be found from it."""
    cameras = {f.set.camera: f.camera for f in frames}
    wanted = [
        name
        for name, c in cameras.items()
        if c.lens is None or (c.mount == "flange" and c.T_mount_camera is None)
    ]
    if capture.config.board is None or not wanted:
        return ()
    looked = [f for f in capture.of("lens", "handeye", "scan") if f.set.camera in wanted]
    return board_views(capture, [f for f in looked if f.file.is_file()])


def picture_digest(frame: Frame) -> str:
    """Of the picture's file: two captures of one cell share names, and no picture."""
    return hashlib.sha256(frame.file.read_bytes()).hexdigest()[:16]


def board_place(capture: Capture, frames: Sequence[PosedFrame]) -> Pose | None:
    """Where the board lies, ``T_table_board``, as placed pictures of the table see it: in the
    middle of what they say; None where there is none or fewer than two see it.
    """
    seen = board_places(capture, frames)
    if len(seen) < 2:
        return None
    u, _, vt = np.linalg.svd(np.mean([T[:3, :3] for T in seen], axis=0))
    return pose(u @ vt, np.median([T[:3, 3] for T in seen], axis=0))


def board_places(capture: Capture, frames: Sequence[PosedFrame]) -> list[Pose]:
    """``T_table_board`` as each of some placed pictures sees it; none where no board lies there."""
    board = capture.config.board
    if board is None or board.where != "table":
        return []
    finder, seen = BoardFinder(board.board()), list[Pose]()
    for f in frames[:: max(1, len(frames) // _BOARD_VIEWS)]:
        view = finder.find(f.frame.picture())
        T_camera_board = None if view is None else BoardView(f.frame, view).pose(f.lens)
        if T_camera_board is not None:
            seen.append(f.T_table_camera @ T_camera_board)
    return seen


def _place(
    capture: Capture,
    camera: str,
    lens: CaptureLens,
    seen: Sequence[BoardView],
    notes: list[str],
) -> Pose | None:
    """Where a camera sits on its mount: given, or found from pictures of the board."""
    config = capture.config.cameras[camera]
    if config.T_mount_camera is not None:
        return matrix(config.T_mount_camera)
    found = None if config.mount != "flange" else hand_eye_pairs(capture, camera, lens, seen)
    if found is None:
        return None
    pairs, place = found.pairs, calibrate(found.pairs)
    notes.append(
        f"place of '{camera}' on the flange found from {len(pairs)} pictures of the board"
        f" ({len(place.outliers)} not believed): +- {1e3 * place.half_m.max():.1f} mm,"
        f" +- {np.degrees(place.half_rad.max()):.2f} degrees"
    )
    return place.T_parent_camera


def points_of(depth: Depth, K: CameraMatrix, T: Pose, stride: int = 1) -> Points:
    """What a depth picture shows, as points ``[n, 3]`` [m]; every ``stride``-th row and column."""
    rows, columns = np.nonzero(depth[::stride, ::stride] > 0)
    far = depth[::stride, ::stride][rows, columns].astype(np.float64)
    x = (columns * stride - K[0, 2]) / K[0, 0] * far
    y = (rows * stride - K[1, 2]) / K[1, 1] * far
    return np.column_stack([x, y, far]) @ T[:3, :3].T + T[:3, 3]
