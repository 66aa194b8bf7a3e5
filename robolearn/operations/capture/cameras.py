"""Calibrates all cameras of a capture together, and writes what was found into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.cell.yaml_edit import set_value
from robolearn.calibration.rig import FoundCamera, Rig, RigCamera, RigView, calibrate_rig
from robolearn.calibration.rig_fit import LensNumbers
from robolearn.capture.board_depth import depth_problem
from robolearn.capture.board_views import (
    BoardView,
    board_views,
    carried_by,
    lens_problem,
    straight_numbers,
    straightened,
    unseen_problem,
)
from robolearn.capture.check import check_capture
from robolearn.capture.config import CaptureLens
from robolearn.capture.folder import Capture, Frame, matrix, read_capture
from robolearn.config import to_dict
from robolearn.errors import DataError
from robolearn.files import write_atomic
from robolearn.geometry import Pose, inverse, pose_error

# Pictures of one moment lie no farther apart [s].
_MOMENT_S = 0.02
# Places that capture.yaml gives may disagree with the pictures by so much.
_AWAY_M, _TURNED_DEG = 0.005, 1.0


@dataclass(frozen=True, slots=True)
class RigCalibrated:
    """All cameras of a capture; ``findings``: what its checks said."""

    capture: Capture
    found: Rig
    findings: tuple[str, ...]

    def place(self, camera: FoundCamera) -> Pose | None:
        """``T_mount_camera`` as capture.yaml has it: on the flange, or in the table's frame; None
        where it is not known.
        """
        if camera.place is None or camera.mount == "flange":
            return None if camera.place is None else camera.place.T
        T = self._T_table_frame
        return None if T is None else T @ camera.place.T

    @property
    def _T_table_frame(self) -> Pose | None:  # noqa: N802  (a transform)
        """The table's frame is where the arm's base says it is, else that of the board on it."""
        arm, board = self.capture.config.arm, self.found.T_frame_board
        given = None if arm is None else arm.T_table_base
        if self.found.frame == "base" and given is not None:
            return matrix(given)
        return None if board is None else _T_table_board(self.capture) @ inverse(board.T)

    @property
    def T_table_base(self) -> Pose | None:  # noqa: N802  (a transform)
        """Where the arm stands in the table's frame; None where no picture tells."""
        return self._T_table_frame if self.found.frame == "base" else None

    @property
    def T_table_board(self) -> Pose | None:  # noqa: N802  (a transform)
        """Where the board lies in the table's frame; None where no picture tells."""
        T, board = self._T_table_frame, self.found.T_frame_board
        return None if T is None or board is None else T @ board.T


def calibrate_cameras(folder: Path, *, find_lenses: bool = False) -> RigCalibrated:
    """Lenses and places of all cameras of a capture, of the boards and of the arm's base.

    ``find_lenses``: also of cameras whose lens capture.yaml gives. Errors: ConfigError for a folder
    without what is needed; DataError for pictures that tell too little or contradict each other.
    """
    capture = read_capture(folder)
    report = check_capture(capture)
    if report.errors:
        raise DataError(f"{folder}: {'; '.join(report.errors)}")
    frames = [f for f in report.usable if f.set.purpose not in ("background", "object", "motion")]
    seen = board_views(capture, frames)
    cameras = [
        RigCamera(
            name,
            c.mount,
            c.size,
            None if find_lenses or c.lens is None else straight_numbers(c.lens),
        )
        for name, c in capture.config.cameras.items()
        if any(b.frame.set.camera == name for b in seen)
    ]
    shown = {c.name for c in cameras}
    unseen = {
        name: unseen_problem(capture, name, mine)
        for name in capture.config.cameras
        if name not in shown and (mine := [f for f in frames if f.set.camera == name])
    }
    if not cameras:
        raise DataError(f"{folder}: {'; '.join(unseen.values()) or 'no picture of the board'}")
    wrong = [lens_problem(c.name, capture.config.cameras[c.name], seen) for c in cameras]
    if any(wrong) and not find_lenses:
        raise DataError(f"{folder}: {'; '.join(text for text in wrong if text)}")
    kept = {c.name for c in cameras if c.lens is not None}
    lenses = {n: c.lens for n, c in capture.config.cameras.items() if c.lens}
    notes = _depth_notes(folder, seen, lenses)
    moments = _moments(capture, seen)
    views = [_rig_view(capture, b, kept, moments.get(b.frame.name, "")) for b in seen]
    found = calibrate_rig(cameras, views)
    # Depth of a camera whose lens nobody knew before is judged by the lens that was found.
    new = {c.name: _as_lens(c.lens) for c in found.cameras if c.name not in lenses}
    notes += _depth_notes(folder, seen, new)
    findings = [*(f.what for f in report.findings), *notes]
    findings += [
        unseen.get(name, f"camera '{name}': the board is in none of its pictures")
        for name in capture.config.cameras
        if name not in shown
    ]
    done = RigCalibrated(capture, found, ())
    findings += _disagreement(done)
    return RigCalibrated(capture, found, tuple(findings))


def _depth_notes(
    folder: Path, seen: Sequence[BoardView], lenses: Mapping[str, CaptureLens]
) -> list[str]:
    """What depth of pictures of the board says against it; DataError for other units."""
    level, text = depth_problem(seen, lenses)
    if level == "error":
        raise DataError(f"{folder}: {text}")
    return [text] if text else []


def store_cameras(calibrated: RigCalibrated) -> Path:
    """Write what was found into capture.yaml, where comments stay; returns its path."""
    path = calibrated.capture.path / "capture.yaml"
    text = path.read_text(encoding="utf-8")
    for camera in calibrated.found.cameras:
        config = calibrated.capture.config.cameras[camera.name]
        if camera.lens_half.any():
            lens = to_dict(_as_lens(camera.lens))
            text = set_value(text, ("cameras", camera.name, "lens"), lens)
        T = calibrated.place(camera)
        if T is not None and config.mount != "hand":
            text = set_value(text, ("cameras", camera.name, "T_mount_camera"), _rows(T))
    config = calibrated.capture.config
    base, board = calibrated.T_table_base, calibrated.T_table_board
    if base is not None and config.arm is not None and config.arm.T_table_base is None:
        text = set_value(text, ("arm", "T_table_base"), _rows(base))
    if board is not None and config.board is not None and config.board.T_table_board is None:
        text = set_value(text, ("board", "T_table_board"), _rows(board))
    write_atomic(path, text)
    return path


def _as_lens(lens: LensNumbers) -> CaptureLens:
    """As capture.yaml has it."""
    values = [float(v) for v in lens]
    return CaptureLens(
        (round(values[0], 3), round(values[1], 3)),
        (round(values[2], 3), round(values[3], 3)),
        tuple(round(v, 6) for v in values[4:]),
    )


def _rows(T: Pose) -> list[list[float]]:
    """To a tenth of a micrometre; rounded rotations stay rotations to 1e-8."""
    return [[round(float(v), 9) for v in row] for row in T]


def _T_table_board(capture: Capture) -> Pose:  # noqa: N802  (a transform)
    board = capture.config.board
    given = None if board is None else board.T_table_board
    return np.eye(4) if given is None else matrix(given)


def _disagreement(done: RigCalibrated) -> list[str]:
    """Whether capture.yaml puts both base and board elsewhere than the pictures do."""
    config, found = done.capture.config, done.T_table_board
    if config.board is None or config.board.T_table_board is None or found is None:
        return []
    away, angle = pose_error(found, matrix(config.board.T_table_board))
    if away < _AWAY_M and np.degrees(angle) < _TURNED_DEG:
        return []
    text = (
        f"capture.yaml puts the board {1e3 * away:.0f} mm and {np.degrees(angle):.1f} degrees from"
        " where the arm's base (arm.T_table_base) and the pictures put it: measure one of both anew"
    )
    return [text]


def _rig_view(capture: Capture, seen: BoardView, kept: set[str], moment: str) -> RigView:
    frame = seen.frame
    view = seen.view
    if frame.set.camera in kept and frame.camera.lens is not None:
        view = straightened(view, frame.camera.lens)
    held = carried_by(capture, frame.set)
    return RigView(frame.name, frame.set.camera, view, held, frame.T_base_tool, moment)


def _moments(capture: Capture, seen: Sequence[BoardView]) -> dict[str, str]:
    """Pictures by cameras that stand still, of a board in somebody's hand, that were taken at once:
    the first one's name by each one's name.
    """
    held = [
        b.frame
        for b in seen
        if carried_by(capture, b.frame.set) == "hand"
        and b.frame.camera.mount == "table"
        and b.frame.t_s is not None
    ]
    held.sort(key=lambda f: f.t_s or 0.0)
    out: dict[str, str] = {}
    first: Frame | None = None
    cameras: set[str] = set()
    for frame in held:
        late = first is None or (frame.t_s or 0.0) - (first.t_s or 0.0) > _MOMENT_S
        if late or frame.set.camera in cameras:
            first = frame
            cameras = set()
        cameras.add(frame.set.camera)
        out[frame.name] = "" if first is None else first.name
    shared = Counter(out.values())
    return {name: moment for name, moment in out.items() if shared[moment] > 1}
