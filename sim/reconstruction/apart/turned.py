"""Fuses pictures of one object that moves before the camera, in the frame that moves with it.

On a turntable the board, or the tags, that the object stands on tell how it was turned: the table
is the board's plane, and whatever does not turn with it is carved away by the pictures that see
through where it seemed to be. In a gripper the arm's pose tells; what belongs to the hand is told
by pictures of the empty hand, or by masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import ndimage, spatial

from robolearn.calibration.boards import BoardFinder
from robolearn.calibration.hand_eye_causes import calibrate
from robolearn.capture.board_depth import depth_problem
from robolearn.capture.board_views import BoardView, board_views, hand_eye_pairs, lens_of
from robolearn.capture.config import CaptureLens, CaptureSet
from robolearn.capture.folder import Capture, Frame, matrix
from robolearn.errors import DataError, RobolearnError
from robolearn.geometry import Pose, Vector, inverse
from sim.reconstruction.frames import PosedFrame, points_of
from sim.reconstruction.objects import Scanned, find_clusters, scan_object, unseen
from sim.reconstruction.refine import register
from sim.reconstruction.shapes import OwnPoints, Voxels
from sim.reconstruction.volume import Volume, surface

_ndimage: Any = ndimage
_KDTree: Any = cast("Any", spatial).cKDTree

# Fewer pictures leave too much unseen; of so many one is kept back, to judge by.
LEAST_VIEWS, HELD_OUT_EVERY = 6, 6
# How high a thing on a turntable may be [m].
_HEIGHT_M = 0.35
# What a gripper holds is in this box of the tool's frame [m], ...
_HELD_LOW, _HELD_HIGH = (-0.18, -0.18, -0.03), (0.18, 0.18, 0.36)
# ... in voxels of a coarse volume, and of its own, as objects on a table are.
_COARSE_M, _FINE, _FINE_M = 0.004, 700_000, 0.0015
# Points of a picture that was kept back.
_JUDGING = 1500


@dataclass(frozen=True, slots=True)
class Turned:
    """An object seen from all sides: its closed surface in its own frame, which is the board's
    (``upright``: z up, standing at z = 0) or the tool's, the pictures in that frame, and how far
    points of pictures that were kept back lie from the surface [m] (median; NaN: none saw it).
    """

    scanned: Scanned
    frames: tuple[PosedFrame, ...]
    upright: bool
    off_m: float

    @property
    def note(self) -> str:
        """How it was found."""
        how = "on a turntable" if self.upright else "in the gripper"
        return (
            f"{self.scanned.name}: from {len(self.frames)} pictures of it {how};"
            f" {1e3 * self.off_m:.2f} mm from what pictures that were kept back saw of it (median)"
        )


def turned_objects(
    capture: Capture, usable: Sequence[Frame]
) -> tuple[dict[str, Turned], list[str]]:
    """Every object of sets with ``purpose: object`` that can be made, by name, and about the others
    why not: one that fails leaves the rest alone.
    """
    found: dict[str, Turned] = {}
    said: list[str] = []
    for entry in capture.config.sets:
        if entry.purpose != "object" or not entry.object:
            continue
        try:
            made = _turned(capture, entry, usable)
        except RobolearnError as error:
            said.append(f"{entry.object}: set '{entry.name}' is not used: {error}")
            continue
        known = found.get(entry.object)
        if known is None or made.scanned.unseen_share < known.scanned.unseen_share:
            found[entry.object] = made
        if known is not None:
            said.append(
                f"{entry.object} was seen from all sides more than once: the pictures that saw more"
                " of its surface are used"
            )
    return found, said


def _turned(capture: Capture, entry: CaptureSet, usable: Sequence[Frame]) -> Turned:
    frames = _posed(capture, entry, usable)
    noise = max(d.noise_m for f in frames if (d := f.frame.camera.depth) is not None)
    kept_back = frames[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    used = [f for f in frames if all(f is not other for other in kept_back)]
    if entry.object_on == "turntable":
        low, high = _above_board(capture, used)
        registered = register(frames, used, low, high, noise)
        names = {f.name for f in used}
        used = [f for f in registered.frames if f.name in names]
        kept_back = [f for f in registered.frames if f.name not in names]
        scanned = _standing(entry, used, low, high, noise)
    else:
        scanned = _held(capture, entry, used, usable, noise)
    return Turned(scanned, tuple(used), entry.object_on == "turntable", _off_m(scanned, kept_back))


def _posed(capture: Capture, entry: CaptureSet, usable: Sequence[Frame]) -> list[PosedFrame]:
    """The pictures of a set, with poses in the frame that moves with the object."""
    own = [f for f in usable if f.set.name == entry.name and f.depth_file is not None]
    if len(own) < LEAST_VIEWS:
        raise DataError(
            f"{len(own)} usable picture(s) with depth, at least {LEAST_VIEWS} are needed, 20 to 40"
            " from all around are good"
        )
    wanted = capture.config.cameras[entry.camera].lens is None
    of_board = [f for f in capture.of("lens", "handeye", "scan") if f.set.camera == entry.camera]
    seen = board_views(capture, [f for f in of_board if f.file.is_file()]) if wanted else ()
    lens, _ = lens_of(capture, entry.camera, seen)
    if entry.object_on == "turntable":
        placed = _by_board(capture, own, lens)
    else:
        placed = _by_arm(capture, entry, own, lens)
    if len(placed) < LEAST_VIEWS:
        raise DataError(
            f"only {len(placed)} of {len(own)} pictures tell how the object was turned, at least"
            f" {LEAST_VIEWS} are needed: T_world_camera in the object's own frame,"
            + (
                " or two tags of the board in view; a chessboard must be seen"
                " whole, so take a ChArUco board or tags under an object"
                if entry.object_on == "turntable"
                else " or T_base_tool of the hand that holds it"
            )
        )
    return placed


def _by_board(capture: Capture, own: Sequence[Frame], lens: CaptureLens) -> list[PosedFrame]:
    board = capture.config.board
    finder = None if board is None else BoardFinder(board.board())
    placed: list[PosedFrame] = []
    shown: list[BoardView] = []
    for f in own:
        if f.T_world_camera is not None:
            placed.append(PosedFrame(f, lens, f.T_world_camera))
            continue
        view = None if finder is None else finder.find_covered(f.picture())
        T_camera_board = None if view is None else BoardView(f, view).pose(lens)
        if view is not None and T_camera_board is not None:
            shown.append(BoardView(f, view))
            placed.append(PosedFrame(f, lens, inverse(T_camera_board)))
    level, why = depth_problem(shown, {own[0].set.camera: lens})
    if level == "error":
        raise DataError(why)
    return placed


def _by_arm(
    capture: Capture, entry: CaptureSet, own: Sequence[Frame], lens: CaptureLens
) -> list[PosedFrame]:
    T_base_camera = _beside_arm(capture, entry.camera, lens)
    placed: list[PosedFrame] = []
    for f in own:
        if f.T_world_camera is not None:
            placed.append(PosedFrame(f, lens, f.T_world_camera))
        elif T_base_camera is not None and f.T_base_tool is not None:
            placed.append(PosedFrame(f, lens, inverse(f.T_base_tool) @ T_base_camera))
    if not placed and T_base_camera is None:
        raise DataError(
            f"where camera '{entry.camera}' stands beside the arm is not known: give"
            " cameras.NAME.T_mount_camera and arm.T_table_base, or pictures of the board on the"
            " flange (purpose: handeye, board_on: flange; 'robolearn calibrate cameras')"
        )
    return placed


def _beside_arm(capture: Capture, camera: str, lens: CaptureLens) -> Pose | None:
    """Where a camera that stands still is in the arm's frame; None where nothing tells."""
    config, arm = capture.config.cameras[camera], capture.config.arm
    if config.mount != "table":
        raise DataError(
            f"camera '{camera}' is not fixed beside the arm (mount: {config.mount}), so the arm's"
            " pose does not tell how it sees what the gripper holds"
        )
    if config.T_mount_camera is not None and arm is not None and arm.T_table_base is not None:
        return inverse(matrix(arm.T_table_base)) @ matrix(config.T_mount_camera)
    if capture.config.board is None:
        return None
    pictures = [f for f in capture.of("handeye") if f.set.camera == camera and f.file.is_file()]
    pairs = hand_eye_pairs(capture, camera, lens, board_views(capture, pictures))
    if pairs is None or pairs.pairs.setup != "eye-to-hand":
        return None
    return calibrate(pairs.pairs).T_parent_camera


def _above_board(capture: Capture, frames: Sequence[PosedFrame]) -> tuple[Vector, Vector]:
    """The box over the board's sides (of poses that were given: over the origin's surroundings)."""
    eyes = np.stack([f.T_table_camera[:3, 3] for f in frames])
    if float(np.median(eyes[:, 2])) <= 0:
        raise DataError("the pictures were taken from below the plane that the object stands on")
    top = max(0.05, min(_HEIGHT_M, 0.9 * float(eyes[:, 2].min())))
    low, high = _board_sides(capture, frames)
    return np.array([*low, 0.0]), np.array([*high, top])


def _standing(
    entry: CaptureSet, frames: Sequence[PosedFrame], low: Vector, high: Vector, noise_m: float
) -> Scanned:
    """What stands on the plane z = 0."""
    clusters = find_clusters(frames, low, high, noise_m)
    marked = [c for c in clusters if c.number] or clusters
    whole = [c for c in marked if not c.cut] or marked
    if not whole:
        raise DataError(
            "nothing stands on the board: the object must stand inside of its rim, and turn with it"
        )
    return scan_object(entry.object, whole[0], frames, noise_m)


def _board_sides(
    capture: Capture, frames: Sequence[PosedFrame]
) -> tuple[tuple[float, float], tuple[float, float]]:
    board = capture.config.board
    if board is None or any(f.frame.T_world_camera is not None for f in frames):
        return (-0.2, -0.2), (0.2, 0.2)
    if board.kind != "tags":
        columns, rows = board.squares
        return (0.0, 0.0), (columns * board.square_m, rows * board.square_m)
    at = np.array([t.at_m for t in board.tags])
    half = max(t.size_m for t in board.tags)
    (x0, y0), (x1, y1) = at.min(axis=0) - half, at.max(axis=0) + half
    return (float(x0), float(y0)), (float(x1), float(y1))


def _held(
    capture: Capture,
    entry: CaptureSet,
    frames: Sequence[PosedFrame],
    usable: Sequence[Frame],
    noise_m: float,
) -> Scanned:
    """What moves with the tool, without the hand."""
    bare = [
        f
        for s in capture.config.sets
        if (s.purpose, s.object, s.object_on) == ("object", "", "flange")
        for f in _posed(capture, s, usable)
    ]
    masked = any(f.frame.mask_file is not None for f in frames)
    if not bare and not masked:
        raise DataError(
            "nothing tells the gripper from what it holds: take pictures of the empty hand, closed"
            " as far, at the same poses (a set with purpose: object, object_on: flange and no"
            " object), or give masks"
        )
    low, high = np.array(_HELD_LOW), np.array(_HELD_HIGH)
    volume = _fused(frames, low, high, _COARSE_M, noise_m)
    solid = volume.solid() & ~_hand(volume, frames, bare, noise_m)
    own = _largest_seen(solid, volume)
    if own is None:
        raise DataError(
            "nothing is in the gripper that is not its own: is it closed as far in the pictures of"
            " the empty hand?"
        )
    margin = 0.012
    at = low + _COARSE_M * np.argwhere(own)
    low, high = at.min(axis=0) - margin, at.max(axis=0) + margin
    voxel = max(_FINE_M, float((high - low).prod() / _FINE) ** (1 / 3))
    volume = _fused(frames, low, high, voxel, noise_m)
    field = volume.field()
    fine = _largest_seen((field < 0) & ~_hand(volume, frames, bare, noise_m), volume)
    if fine is None:
        raise DataError("what the gripper holds is too small for the depth's noise")
    field = np.where(_ndimage.binary_dilation(fine), field, np.maximum(field, 0.5))
    # The rim of the hand is cut, not seen: free from the next voxel on.
    field = np.where(fine, np.minimum(field, -1e-3), np.maximum(field, 1e-3))
    vertices, faces = surface(field.astype(np.float32), low, voxel)
    guessed = unseen(volume, vertices, low, voxel)
    return Scanned(entry.object, vertices, faces, guessed, float(guessed.mean()), voxel)


def _fused(
    frames: Sequence[PosedFrame], low: Vector, high: Vector, voxel: float, noise_m: float
) -> Volume:
    volume = Volume(low, high, voxel, max(4 * voxel, 3 * noise_m))
    for f in frames:
        volume.integrate(f.depth_m(), f.K, f.T_table_camera)
    return volume


def _hand(
    volume: Volume, frames: Sequence[PosedFrame], bare: Sequence[PosedFrame], noise_m: float
) -> Voxels:
    """Voxels of a volume that are the hand's: solid without the object, else by masks."""
    low = volume.low
    if bare:
        high = low + volume.voxel_m * (np.array(volume.shape) - 1.0)
        empty = _fused(bare, low, high, volume.voxel_m, noise_m)
        nx, ny, nz = volume.shape
        return empty.solid()[:nx, :ny, :nz]
    marked: tuple[list[OwnPoints], list[OwnPoints]] = ([], [])
    for f in frames:
        mask, depth = f.mask(), f.depth_m()
        if mask is None:
            continue
        for side, chosen in zip(marked, (mask, ~mask), strict=True):
            side.append(
                points_of(np.where(chosen, depth, 0.0).astype(np.float32), f.K, f.T_table_camera, 2)
            )
    own, foreign = (np.concatenate(some) for some in marked)
    hand = np.zeros(volume.shape, dtype=np.bool_)
    if not len(own) or not len(foreign):
        return hand
    rows = np.argwhere(volume.solid())
    at = low + volume.voxel_m * rows
    nearer = _KDTree(foreign).query(at)[0] < _KDTree(own).query(at)[0]
    hand[tuple(rows[nearer].T)] = True
    return hand


def _largest_seen(solid: Voxels, volume: Volume) -> Voxels | None:
    """The piece of which pictures saw most of the surface; thin rims are no pieces."""
    labels, count = _ndimage.label(_ndimage.binary_opening(solid))
    if not count:
        return None
    on_surface = volume.seen & (np.abs(volume.field()) < 0.99)
    counts = np.bincount(labels[on_surface], minlength=count + 1)
    counts[0] = 0
    if not counts.any():
        return None
    core = labels == int(np.argmax(counts))
    # What opening took off its corners.
    return np.asarray(_ndimage.binary_dilation(core, mask=solid), dtype=np.bool_)


def _off_m(scanned: Scanned, frames: Sequence[PosedFrame]) -> float:
    """How far what pictures saw of an object lies from its surface [m], the median."""
    low, high = scanned.vertices.min(axis=0), scanned.vertices.max(axis=0)
    tree, every = _KDTree(scanned.vertices), list[OwnPoints]()
    for f in frames:
        at = points_of(f.depth_m(), f.K, f.T_table_camera)
        # Not what it stands on.
        at = at[((at > low + np.array([0.0, 0.0, 0.004])) & (at < high + 0.004)).all(axis=1)]
        every.append(at[:: max(1, len(at) // _JUDGING)])
    points = np.concatenate(every) if every else np.zeros((0, 3))
    return float(np.median(tree.query(points)[0])) if len(points) else float("nan")
