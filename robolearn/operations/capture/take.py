"""Takes a capture of a cell: board, scan, background and motion, checked while somebody is there.

    plan      sets of capture.yaml, from the cell's cameras and what carries the board
    hand-eye  poses that grow from where the board was seen, to all sides, as far as it stays seen
    calibrate all cameras at once; the lens and the place of each are written into capture.yaml
    in hand   the gripper turns what it holds, and itself, before cameras beside the arm: all sides
    scan      a camera on the flange looks at the table from all around, then at what was not seen
    motion    the arm alone, set-points and joints are kept: 'identify --capture' reads them

Every picture is written when it is taken: a capture that was cut off goes on where it ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.commissioning.excite import excitation_cell, excite
from hardware.commissioning.no_task import NoScore, clear_table
from hardware.commissioning.reach import Reach
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv
from robolearn.calibration.boards import Board, BoardFinder
from robolearn.capture.config import CaptureConfig, CaptureSet
from robolearn.capture.write import CaptureWriter, has_motion, write_motion
from robolearn.errors import ConfigError, DataError, RobolearnError
from robolearn.geometry import Pose, pose
from robolearn.operations.capture.board_tour import BoardTour
from robolearn.operations.capture.cameras import RigCalibrated, calibrate_cameras, store_cameras
from robolearn.operations.capture.held import HeldTour
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.capture.plan import planned, still_cell
from robolearn.operations.capture.scan import TableScan
from robolearn.operations.capture.shooting import Shooting
from robolearn.operations.cell.lab import cell_lab
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.scenes.identify_arm import room_of
from robolearn.types import Condition
from sim.identification.arm_excitation import multisine

USUAL = CaptureOptions()


@dataclass(frozen=True, slots=True)
class CellCaptured:
    """A capture: its folder, pictures by set, what should be repeated or looked at, and what the
    pictures of the board say (None: too little for a calibration, and ``problem`` says why).
    """

    folder: Path
    pictures: dict[str, int]
    advice: tuple[str, ...]
    calibrated: RigCalibrated | None
    problem: str


def capture_cell(
    robot: Path,
    out: Path,
    operator: CellOperator,
    options: CaptureOptions = USUAL,
    *,
    start_lab: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> CellCaptured:
    """Capture the cell of a file of ``configs/hardware/`` into ``out``, or go on with what was cut
    off there. ``on_note``: told in a sentence what happens.

    Errors: :class:`ConfigError`, also when the operator does not agree; :class:`DataError` for a
    board that is hardly seen; those of the devices. What was taken stays.
    """
    tell: Callable[[str], None] = on_note or _silent
    cell = load_cell(robot)
    config = planned(cell, options)
    still = still_cell(cell)
    writer = CaptureWriter(out, config, resume=True)
    with ExitStack() as stack:
        stack.enter_context(_kept(writer, tell))
        if start_lab:
            tell("starting the virtual lab")
        lab = stack.enter_context(cell_lab(robot, cell, start=start_lab))
        operator.consent(
            f"the arm moves slowly to {options.poses} poses and more per camera, about a pose high"
            " over the table; nothing else may stand in its way"
        )
        place = clear_table(still, lab, operator.place)
        tell("connecting the arm and its cameras")
        with closing(_watched(still, place)) as env:
            reach = Reach.of(still)
            taker = Taker(
                cell, config, options, operator, tell, reach, Shooting(env, reach.arm, writer)
            )
            if lab is not None and (options.in_hand or options.board_on == "both"):
                taker.hands = partial(_lab_hands, lab, tuple(config.cameras))
            taker.boards()
            calibrated, problem = calibrated_rig(out, tell)
            taker.in_hand(calibrated)
            taker.scans(calibrated)
            taker.backgrounds()
            taker.shooting.store_noise()
            env.home()
        if options.excite_s and not has_motion(out):
            tell(f"moving the arm for {options.excite_s:.0f} s")
            # No camera is looked through: one that is late stops nothing.
            moved = excitation_cell(cell)
            with closing(_watched(moved, place)) as env:
                _excited(env, moved, out, options)
                env.home()
    counts = {entry.name: writer.count(entry.name) for entry in config.sets}
    return CellCaptured(out, counts, tuple(taker.advice), calibrated, problem)


@contextmanager
def _kept(writer: CaptureWriter, tell: Callable[[str], None]) -> Generator[None]:
    """Tells whoever loses a capture half-way that nothing of it is lost."""
    try:
        yield
    except BaseException:
        taken = sum(writer.count(entry.name) for entry in writer.config.sets)
        if taken:
            tell(f"{taken} picture(s) are kept in {writer.folder}: the same command goes on there")
        raise


def _silent(text: str) -> None:
    """Nobody is told."""
    del text


def _nobody(doing: str, thing: str) -> None:
    """What is moved by hand, a person was asked for, or has seen to."""
    del doing, thing


def _lab_hands(lab: LabProcess, cameras: Sequence[str], doing: str, thing: str) -> None:
    """The lab's person moves board and objects, before all of its cameras."""
    with lab.where.connect() as door:
        for camera in cameras:
            door.by_hand(doing, camera, thing)


def calibrated_rig(out: Path, tell: Callable[[str], None]) -> tuple[RigCalibrated | None, str]:
    """What the board's pictures say, written into capture.yaml; else why they say nothing."""
    tell("calibrating")
    try:
        found = calibrate_cameras(out)
    except RobolearnError as error:
        return None, str(error)
    store_cameras(found)
    return found, ""


def _watched(cell: CellConfig, place: Callable[[Condition], str]) -> RealEnv:
    """The cell, connected and at home, its arm watched by the supervisor."""
    env = RealEnv(cell, place=place, scorer=NoScore())
    try:
        env.watch(Condition("capture", 0, {}))
        env.home()
    except BaseException:
        env.close()
        raise
    return env


def _excited(env: RealEnv, still: CellConfig, out: Path, options: CaptureOptions) -> None:
    motion = multisine(room_of(still), options.excite_s, seed=options.seed)
    rows = excite(env, motion.q, motion.rate_hz)
    write_motion(out, rows.sent_t_s, rows.sent, rows.measured_t_s, rows.measured)


def _places(calibrated: RigCalibrated | None) -> dict[str, Pose]:
    """Where cameras are: on the flange, or in the frame of the arm's base."""
    if calibrated is None or calibrated.found.frame != "base":
        return {}
    return {c.name: c.place.T for c in calibrated.found.cameras if c.place is not None}


@dataclass(slots=True)
class Taker:
    """The stages, one camera after the other."""

    cell: CellConfig
    config: CaptureConfig
    options: CaptureOptions
    operator: CellOperator
    tell: Callable[[str], None]
    reach: Reach
    shooting: Shooting
    advice: list[str] = dataclasses.field(default_factory=list[str])
    # Moves what the operator is asked to, where that is a lab's person: what is done, to what.
    hands: Callable[[str, str], None] = _nobody

    def boards(self) -> None:
        """All pictures of the board: on the table first, then on the flange."""
        board = self.config.board
        if board is None:
            raise ConfigError("a capture needs a board")
        finder = BoardFinder(board.board())
        for held, where in (
            ("table", "lay the board onto the table, flat, in the middle of what cameras see"),
            ("flange", "fix the board to the flange, facing the camera beside the arm"),
        ):
            sets = [s for s in self.config.sets if s.board_on == held and self._open(s)]
            if not sets:
                continue
            if self.operator.place is not None:
                self.operator.place(where)
            self.hands(f"board_on_{held}", "")
            for entry in sets:
                self.shooting.env.home()
                if self._wanted(entry) == 1:
                    self._single(entry, finder)
                else:
                    self._hand_eye(entry, board.board())

    def _wanted(self, entry: CaptureSet) -> int:
        """How many pictures a set is to have."""
        if entry.purpose in ("scan", "object"):
            return self.options.scan if entry.purpose == "scan" else self.options.views
        still = self.config.cameras[entry.camera].mount == "table" and entry.board_on != "flange"
        return 1 if still else self.options.poses

    def _open(self, entry: CaptureSet) -> bool:
        return self.shooting.writer.count(entry.name) < self._wanted(entry)

    def _single(self, entry: CaptureSet, finder: BoardFinder | None) -> None:
        """A picture of a camera that stands still."""
        taken = self.shooting.take(entry.camera, finder)
        self.shooting.record()
        if taken.problem:
            self.advice.append(f"camera '{entry.camera}', set '{entry.name}': {taken.problem}")
            if finder is not None:
                return
        self.shooting.keep(entry.name, taken)

    def _hand_eye(self, entry: CaptureSet, board: Board) -> None:
        """Pictures of the board from poses that the arm chooses."""
        pivot_m = self.options.ahead_m if entry.board_on == "table" else 0.0
        rng = np.random.default_rng([self.options.seed, len(entry.camera)])
        tour = BoardTour(self.shooting, self.reach, entry, board, pivot_m, rng, self.tell)
        advice = tour.take(self._wanted(entry))
        self.advice += [advice] if advice else []

    def in_hand(self, calibrated: RigCalibrated | None) -> None:
        """What the gripper holds, one thing after the other, after the empty hand, before cameras
        whose place is known.
        """
        places = _places(calibrated)
        for what in ("", *self.options.in_hand):
            sets = [
                s
                for s in self.config.sets
                if (s.purpose, s.object) == ("object", what) and self._open(s)
            ]
            if sets and self.operator.place is not None:
                self.operator.place(
                    f"close the gripper on '{what}', so that it cannot slip"
                    if what
                    else "take the board off the flange, and close the empty gripper as far as it"
                    " will be closed on the objects"
                )
            if sets:
                self.hands("in_hand", what)
            for entry in sets:
                place = places.get(entry.camera)
                if place is None:
                    self.advice.append(
                        f"camera '{entry.camera}': no pictures of {what or 'the empty hand'}, as"
                        " where it stands beside the arm is not known"
                    )
                    continue
                self.shooting.env.home()
                tour = HeldTour(self.shooting, self.reach, place, self.tell)
                advice = tour.take(entry, self._wanted(entry))
                self.advice += [advice] if advice else []

    def scans(self, calibrated: RigCalibrated | None) -> None:
        """The table by cameras on the flange whose place is known."""
        places = _places(calibrated)
        for entry in self.config.sets:
            if entry.purpose != "scan" or not self._open(entry):
                continue
            place = places.get(entry.camera)
            if calibrated is None or place is None:
                self.advice.append(
                    f"camera '{entry.camera}': no scan, as its place on the flange is not known"
                )
                continue
            if self.operator.place is not None:
                self.operator.place("put the objects onto the table, take the board away if it may")
            self.hands("board_on_table", "")
            board = calibrated.found.T_frame_board
            self.shooting.env.home()
            scan = TableScan(
                self.shooting,
                self.reach,
                entry,
                place,
                self._middle(None if board is None else board.T),
                np.random.default_rng([self.options.seed, 1]),
                self.tell,
            )
            advice = scan.take(self._wanted(entry))
            self.advice += [advice] if advice else []

    def _middle(self, T_base_board: Pose | None) -> Pose:
        """A frame on the table, z up, in the middle of what is looked at: ``T_base_middle``."""
        table, limits = self.cell.T_base_table, self.cell.limits
        if self.cell.table is not None and table is not None:
            low, high = np.array(limits.workspace_low), np.array(limits.workspace_high)
            return table @ pose(None, (*(0.5 * (low + high)), 0.0))
        if T_base_board is None or self.config.board is None:
            raise DataError("nothing tells where the table is: show the board on it")
        columns, rows = self.config.board.squares
        half = 0.5 * self.config.board.square_m
        return T_base_board @ pose(None, (columns * half, rows * half, 0.0))

    def backgrounds(self) -> None:
        """The empty table by cameras that stand still."""
        sets = [s for s in self.config.sets if s.purpose == "background" and self._open(s)]
        if not sets:
            return
        if self.operator.place is not None:
            self.operator.place(
                "clear the table, as it shall stay: its photograph is the background"
            )
        self.hands("cleared", "")
        self.shooting.env.home()
        for entry in sets:
            self._single(entry, None)
