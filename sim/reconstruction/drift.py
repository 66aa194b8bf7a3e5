"""Says what moved since a scene was made, from today's photographs, a later capture, or a touch.

    photograph of a camera    the camera over the table (``camera_shift.py``)
    capture in the same frame the table's height and tilt; its board in the plane
    touch of a known point    the table under the arm

A part moved when its 95 % interval lies above the tolerance, and did not when it lies below;
otherwise it is not told. One photograph tells a camera from a table only by the room beside the
table, or by another camera.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.capture.folder import Capture
from robolearn.errors import DataError, SceneError
from robolearn.geometry import (
    Pose,
    Vector,
    inverse,
    pose,
    rotation_from_rotvec,
    rotvec_from_rotation,
)
from robolearn.shapes import OwnFloats, Picture
from sim.reconstruction.camera_shift import Shift, eye_of, shift_of
from sim.reconstruction.frames import PosedFrame, board_places
from sim.reconstruction.pipeline import PlacedScan, place_scan
from sim.reconstruction.shapes import MoveCovariance
from sim.reconstruction.table.plane import heights
from sim.scene.config import Scene
from sim.scene.drift_record import DriftPart, Verdict

# Half of a 95 % interval, in standard deviations.
_WITHIN = 1.96
# The standard error of a median is that of a mean by so much.
_OF_MEDIAN = 1.2533
# Frames of poses that differ by more are no drift of a table [mm], [degrees].
_OTHER_MM, _OTHER_DEG = 150.0, 8.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a part may be off before it counts as moved: [mm], [degrees]."""

    mm: float = 3.0
    deg: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.mm < math.inf and 0 < self.deg < math.inf):
            raise SceneError(f"tolerances are above 0, got {self.mm} mm and {self.deg} degrees")


@dataclass(frozen=True, slots=True)
class Size:
    """How far something moved [mm] and turned [degrees], each with half of its 95 % interval; None
    where that is not measured.
    """

    moved: float
    moved_within: float
    turned: float | None
    turned_within: float | None

    def verdict(self, tolerance: Tolerance) -> Verdict:
        """Moved, unmoved, or between."""
        parts = [(self.moved, self.moved_within, tolerance.mm)]
        if self.turned is not None and self.turned_within is not None:
            parts.append((self.turned, self.turned_within, tolerance.deg))
        if any(value - within > most for value, within, most in parts):
            return "moved"
        return "unmoved" if all(v + w <= most for v, w, most in parts) else "not told"

    @property
    def text(self) -> str:
        """As people read it."""
        moved = f"{self.moved:.1f} +- {self.moved_within:.1f} mm"
        if self.turned is None or self.turned_within is None:
            return moved
        return f"{moved}, {self.turned:.2f} +- {self.turned_within:.2f} degrees"

    def part(self, verdict: Verdict, said: str, source: str, at: str) -> DriftPart:
        """As it is recorded."""
        numbers = (self.moved, self.moved_within, self.turned, self.turned_within)
        a, b, c, d = (None if v is None else round(v, 3) for v in numbers)
        return DriftPart(verdict, a, b, c, d, said, source, at)


def by_photographs(
    scene: Scene, photos: Mapping[str, Picture], tolerance: Tolerance, at: str
) -> dict[str, DriftPart]:
    """Cameras and the table, from one photograph per camera of the scene, taken ``at`` (a time)."""
    parts: dict[str, DriftPart] = {}
    shifts: list[Shift] = []
    for camera, photo in photos.items():
        eye = eye_of(scene, camera)
        try:
            shifts.append(shift_of(eye, photo))
        except DataError as error:
            part = DriftPart("not told", None, None, None, None, str(error), "photograph", at)
            parts[f"camera {camera}"] = part
    sizes = {s.camera: camera_size(s) for s in shifts}
    verdicts: dict[str, Verdict] = {c: size.verdict(tolerance) for c, size in sizes.items()}
    tables = [s for s in shifts if verdicts[s.camera] == "moved" and _table_moved(s, shifts)]
    still = [c for c, verdict in verdicts.items() if verdict == "unmoved"]
    if still:
        tables = []
    for s in shifts:
        name, size = f"camera {s.camera}", sizes[s.camera]
        verdict: Verdict = verdicts[s.camera]
        source = f"photograph of {s.camera}, by {s.by}"
        if s in tables:
            size = table_size(s)
            said = f"the table moved by {size.text}; {_why_table(s)}"
            parts["table"] = size.part("moved", f"{said}. {_AGAIN}", source, at)
            nothing = Size(0.0, size.moved_within, 0.0, size.turned_within)
            parts[name] = nothing.part("unmoved", "the room stands where it stood", source, at)
        elif verdict != "moved":
            said = f"{s.camera} stands where it stood, to {size.text}"
            if verdict == "not told":
                said = f"{s.camera} is off by {size.text}, which tells nothing; {_BETTER}"
            parts[name] = size.part(verdict, said, source, at)
        elif s.room_still is False or still:
            said = f"{s.camera} moved by {size.text}. {_CALIBRATE}"
            parts[name] = size.part(verdict, said, source, at)
        else:
            said = (
                f"{s.camera} or the table moved, by {size.text} as the camera sees it; one picture"
                " without the room beside the table cannot tell which: give another camera's, too,"
                f" or touch the table (--touched). {_CALIBRATE}"
            )
            parts[name] = size.part(verdict, said, source, at)
    if still:
        best = min(still, key=lambda c: sizes[c].moved_within)
        said = f"the table lies where it lay, as {best} sees it"
        parts["table"] = sizes[best].part("unmoved", said, f"photograph of {best}", at)
    return parts


_AGAIN = (
    "Capture it again, or put it back; results in this scene are of a table that stood elsewhere"
)
_CALIBRATE = "Calibrate it again (robolearn calibrate camera), or put it back"
_BETTER = "take a sharper picture of the cleared table under the same light"


def by_capture(
    scene: Scene, capture: Capture, tolerance: Tolerance, at: str
) -> dict[str, DriftPart]:
    """The table's height and tilt, and with its board the rest, from a later capture whose poses
    are in the same frame. Without a board a table that is as high as before is not told to be where
    it was.
    """
    details = scene.config.provenance.reconstructed
    if "T_table_world" not in details:
        raise SceneError(
            f"'{scene.name}' was not reconstructed: nobody knows in which frame its table was seen;"
            " give a photograph of one of its cameras"
        )
    scan = place_scan(capture)
    T = np.array(details["T_table_world"], dtype=np.float64) @ inverse(scan.table.T_table_world)
    area = details["workspace"]
    middle = np.array([*(np.add(area["low"], area["high"])[:2] / 2), 0.0])
    tilt = float(np.degrees(np.arccos(np.clip(T[2, 2], -1.0, 1.0))))
    up = 1e3 * float(T[2, :3] @ middle + T[2, 3])
    each, leaning = heights(scan.frames, scan.noise_m)
    count = math.sqrt(len(scan.frames))
    size = Size(
        abs(up),
        _WITHIN * 1e3 * float(np.std(each)) / count,
        tilt,
        _WITHIN * float(np.std(leaning)) / count,
    )
    source = f"capture {capture.config.name}"
    if size.moved > _OTHER_MM or tilt > _OTHER_DEG:
        said = (
            f"the capture's table is {size.moved:.0f} mm and {tilt:.1f} degrees off: its poses are"
            " in another frame than those the scene was made from (a phone begins a new one every"
            " time); place the pictures by the arm, or by the board where it lay"
        )
        return {"table": size.part("not told", said, source, at)}
    along = _along_itself(scene, capture, scan, T, middle)
    if isinstance(along, str):
        verdict = size.verdict(tolerance)
        said = f"the table's height and tilt are off by {size.text}; along itself it was not looked"
        said = f"{said} at: {along}"
        # A table that lies aside is as high as before.
        verdict = "not told" if verdict == "unmoved" else verdict
    else:
        size = _together(size, along)
        verdict = size.verdict(tolerance)
        said = f"the table, and the board on it, are off by {size.text}"
    if verdict == "moved":
        said = f"{said}. {_AGAIN}"
    return {"table": size.part(verdict, said, source, at)}


def _along_itself(
    scene: Scene, capture: Capture, scan: PlacedScan, T_before_now: Pose, middle: Vector
) -> Size | str:
    """How far the board, and the table with it, was shifted and turned in the table's plane, at its
    ``middle``; or why that is not known. ``T_before_now``: of the tables' frames, by the world.
    """
    board = scene.config.provenance.reconstructed.get("board")
    if board is None:
        return "the scene knows of no board that lay on it; give a photograph or touch a point"
    if any(_placed_by_board(f) for f in scan.frames):
        return "the board itself placed the pictures; give a photograph or touch a point"
    seen = board_places(capture, scan.frames)
    if len(seen) < 2:
        return "fewer than two pictures of the scan see the board; lay it where it lay"
    back = inverse(np.array(board["T_table_board"], dtype=np.float64))
    moves = np.array([T_before_now @ T @ back for T in seen])
    shifts = 1e3 * (moves[:, :2, :3] @ middle + moves[:, :2, 3] - middle[:2])
    yaws = np.degrees(np.arctan2(moves[:, 1, 0], moves[:, 0, 0]))
    # Of a median, and the scene's own place of the board was no better known.
    within = _WITHIN * _OF_MEDIAN * math.sqrt(2.0 / len(seen))
    return Size(
        float(np.linalg.norm(np.median(shifts, axis=0))),
        within * float(np.linalg.norm(np.std(shifts, axis=0, ddof=1))),
        abs(float(np.median(yaws))),
        within * float(np.std(yaws, ddof=1)),
    )


def _placed_by_board(f: PosedFrame) -> bool:
    frame = f.frame
    given = frame.T_world_camera is not None or frame.camera.mount == "table"
    return not given and (frame.camera.mount != "flange" or frame.T_base_tool is None)


def _together(a: Size, b: Size) -> Size:
    """Of parts that are at right angles to each other."""
    turned = math.hypot(a.turned or 0.0, b.turned or 0.0)
    turned_within = math.hypot(a.turned_within or 0.0, b.turned_within or 0.0)
    return Size(
        math.hypot(a.moved, b.moved),
        math.hypot(a.moved_within, b.moved_within),
        turned,
        turned_within,
    )


def by_touch(
    touched: Vector, expected: Vector, accuracy_mm: float, tolerance: Tolerance, at: str
) -> dict[str, DriftPart]:
    """The table under the arm, from where the tool touched a point [m] that the scene has at
    ``expected`` [m], both in the table's frame.
    """
    off = 1e3 * (touched - expected)
    size = Size(float(np.linalg.norm(off)), accuracy_mm, None, None)
    verdict = size.verdict(tolerance)
    x, y, z = (float(v) for v in off)
    said = f"the touched point is off by {x:+.1f}, {y:+.1f}, {z:+.1f} mm (x, y, z)"
    if verdict == "moved":
        said = f"{said}: the table moved, or the arm's base did. {_AGAIN}"
    return {"table": size.part(verdict, said, "touch", at)}


def camera_size(s: Shift) -> Size:
    """How far a camera moved, if the table did not."""
    turn, shift = _move(s)
    return _size(shift, lambda p: p[3:], turn, lambda p: p[:3], s)


def table_size(s: Shift) -> Size:
    """How far the table moved, at what was seen of it, if the camera did not."""

    def moved(p: OwnFloats) -> OwnFloats:
        T = s.T_before @ inverse(_moved(s, p))
        return T[:3, :3] @ s.middle + T[:3, 3] - s.middle

    p = np.concatenate(_move(s))
    turn = rotvec_from_rotation((s.T_before @ inverse(s.T_now))[:3, :3])
    return _size(moved(p), moved, turn, lambda q: q[:3], s)


def _table_moved(s: Shift, others: Sequence[Shift]) -> bool:
    """Whether the room stands still for this camera, or another one saw the same move."""
    if s.room_still is not None:
        return s.room_still
    own = table_size(s)
    D = s.T_before @ inverse(s.T_now)
    for other in others:
        if other is s:
            continue
        E = other.T_before @ inverse(other.T_now)
        apart = 1e3 * float(np.linalg.norm((D - E)[:3, :3] @ s.middle + (D - E)[:3, 3]))
        if apart < 2.0 + own.moved_within + table_size(other).moved_within:
            return True
    return False


def _why_table(s: Shift) -> str:
    if s.room_still:
        return f"what lies beside it stands still in the picture of {s.camera}"
    return "several cameras see the same move"


def _move(s: Shift) -> tuple[Vector, Vector]:
    turn = rotvec_from_rotation(s.T_before[:3, :3].T @ s.T_now[:3, :3])
    return turn, s.T_now[:3, 3] - s.T_before[:3, 3]


def _moved(s: Shift, p: OwnFloats) -> Pose:
    return pose(s.T_before[:3, :3] @ rotation_from_rotvec(p[:3]), s.T_before[:3, 3] + p[3:])


def _size(
    shift: Vector,
    shift_of_move: Callable[[OwnFloats], OwnFloats],
    turn: Vector,
    turn_of_move: Callable[[OwnFloats], OwnFloats],
    s: Shift,
) -> Size:
    p = np.concatenate(_move(s))
    return Size(
        1e3 * float(np.linalg.norm(shift)),
        1e3 * _spread(shift_of_move, p, s.covariance),
        float(np.degrees(np.linalg.norm(turn))),
        float(np.degrees(_spread(turn_of_move, p, s.covariance))),
    )


def _spread(f: Callable[[OwnFloats], OwnFloats], p: OwnFloats, covariance: MoveCovariance) -> float:
    """Half of the 95 % interval of ``f`` along its least certain direction."""
    J = np.column_stack([(f(p + h) - f(p - h)) / 2e-5 for h in 1e-5 * np.eye(6)])
    return _WITHIN * float(np.sqrt(np.linalg.eigvalsh(J @ covariance @ J.T)[-1]))
