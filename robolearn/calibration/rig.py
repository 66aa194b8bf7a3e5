"""Calibrates the cameras of a rig together: lenses, places, board and arm in one robust solution.

    lens of every camera   Zhang's method        each by itself           boards.intrinsics
    places                 hand-eye, then along  pictures that share a    hand_eye_causes.calibrate
                           boards that two see   board or a moment
    everything             reprojection error of all corners together     rig_fit

Pictures that do not fit the others are left out and named. Where an arm's poses are there its base
is the frame of all places; else that of the board on the table; else the first camera's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import cv2
import numpy as np
from scipy import stats  # pyright: ignore[reportMissingTypeStubs]

from robolearn.calibration.boards import View, intrinsics, on_a_line, seen_pose
from robolearn.calibration.hand_eye_causes import calibrate, exchanged
from robolearn.calibration.pose_pairs import ContradictionError, PosePairs, Setup
from robolearn.calibration.rig_fit import (
    LENS,
    Chain,
    LensNumbers,
    Spread,
    State,
    fitted,
    linear,
    spread,
)
from robolearn.errors import DataError
from robolearn.geometry import Pose, Vector, inverse
from robolearn.shapes import Floats

# SciPy comes without types.
_stats: Any = stats

# What carries a camera, and the board in a picture.
Mount = Literal["table", "flange", "hand"]
# Whose frame places are given in.
RigFrame = Literal["base", "board", "camera"]

TABLE, FLANGE = "board on the table", "board on the flange"
# A picture this many times worse than the one in the middle, and so many pixels, does not belong.
_WORSE, _LEAST_PX = 4.0, 1.0
# Share of the pictures that may not belong, and how often it is looked.
_MOST_WRONG, _ROUNDS = 1 / 3, 5
# Fewer pictures say nothing of how much pictures differ: then pixels' noise alone makes intervals.
_LEAST_CLUSTERS = 6


@dataclass(frozen=True, slots=True)
class RigCamera:
    """A camera. ``lens``: numbers that are kept (its pixels are straight then but for those); None:
    they are found.
    """

    name: str
    mount: Mount
    # Width and height [px].
    size: tuple[int, int]
    lens: LensNumbers | None = None


@dataclass(frozen=True, slots=True)
class RigView:
    """The board as one picture shows it. ``held``: what carries the board; pictures of one
    ``moment`` show a board in somebody's hand at one place ("": a moment of its own).
    """

    name: str
    camera: str
    view: View
    held: Mount
    T_base_tool: Pose | None = None
    moment: str = ""


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A pose and the half widths of its 95 % intervals: along the parent's axes [m], about them
    [rad].
    """

    T: Pose
    half_m: Vector
    half_rad: Vector


@dataclass(frozen=True, slots=True)
class FoundCamera:
    """A camera's lens, half widths of its 95 % intervals (zeros: it was kept), and its place: on
    the flange, else in the rig's frame (None: no picture tells).

    ``rms_px``: what its ``pictures`` leave over; ``held_out_px``: the same of each as the others
    predict it.
    """

    name: str
    mount: Mount
    lens: LensNumbers
    lens_half: LensNumbers
    place: FoundPlace | None
    pictures: int
    rms_px: float
    held_out_px: float


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything that was found. ``T_frame_board`` on the table, ``T_tool_board`` on the flange;
    ``outliers``: pictures that were not believed, and why; ``notes``: what a person should know.
    """

    frame: RigFrame
    cameras: tuple[FoundCamera, ...]
    T_frame_board: FoundPlace | None
    T_tool_board: FoundPlace | None
    outliers: Mapping[str, str]
    notes: tuple[str, ...]


def calibrate_rig(cameras: Sequence[RigCamera], views: Sequence[RigView]) -> Rig:
    """Find all lenses and places. DataError names the camera, what is missing or wrong with its
    pictures, and what to do.
    """
    outliers: dict[str, str] = {}
    notes: list[str] = []
    lenses = {c.name: _lens(c, views) for c in cameras}
    seen = {v.name: _board_pose(v, lenses[v.camera]) for v in views}
    for name in [n for n, T in seen.items() if T is None]:
        outliers[name] = "its corners are no board as this lens would show it"
    views = [v for v in views if seen[v.name] is not None]
    poses = {name: T for name, T in seen.items() if T is not None}
    start = _Start(cameras, views, poses)
    views = start.hand_eye(outliers)
    frame = start.spread_out()
    views, placed = _connected(start, views, notes)
    fixed = {f"lens {c.name}" for c in cameras if c.lens is not None} | {start.anchor}
    places = {**start.places, **{_place(v): start.board_of(v) for v in views if v.held == "hand"}}
    places["nowhere"] = np.eye(4)
    state = State(lenses, places, frozenset(fixed | {"nowhere"}))
    kept, state = _believed(views, placed, state, outliers)
    own = frozenset(_place(v) for v in kept if v.held == "hand")
    chains = [_chain(v, placed) for v in kept]
    told = spread(chains, state, own)
    found = tuple(_camera(c, kept, state, told, placed) for c in cameras)
    boards = [_found(name, state, told) for name in (TABLE, FLANGE)]
    return Rig(frame, found, boards[0], boards[1], outliers, tuple(notes))


def _lens(camera: RigCamera, views: Sequence[RigView]) -> LensNumbers:
    if camera.lens is not None:
        return camera.lens
    mine = [v.view for v in views if v.camera == camera.name and not on_a_line(v.view.points)]
    flat: Floats = np.array([_off_plane_px(v) for v in mine])
    gate = max(_LEAST_PX, _WORSE * float(np.median(flat))) if len(flat) else 0.0
    try:
        # A start: pictures that are no plane's are judged later, by all others.
        found = intrinsics([v for v, f in zip(mine, flat, strict=True) if f <= gate], camera.size)
    except DataError as error:
        raise DataError(f"camera '{camera.name}': {error}") from error
    return np.array([*found.focal_px, *found.centre_px, *found.distortion])


def _off_plane_px(view: View) -> float:
    """How far corners are from the picture of any plane [px], whatever the focal length."""
    H, _ = cv2.findHomography(view.points[:, :2], view.pixels)
    ahead = np.column_stack([view.points[:, :2], np.ones(len(view.points))]) @ np.asarray(H).T
    left = ahead[:, :2] / ahead[:, 2:] - view.pixels
    return float(np.sqrt((left * left).sum(axis=1).mean()))


def _board_pose(view: RigView, lens: LensNumbers) -> Pose | None:
    """``T_camera_board``."""
    values = [float(v) for v in lens]
    return seen_pose(
        view.view, (values[0], values[1]), (values[2], values[3]), tuple(values[4:LENS])
    )


class _Start:
    """Places that are about right, spread from what is known along boards that cameras share."""

    def __init__(
        self, cameras: Sequence[RigCamera], views: Sequence[RigView], seen: Mapping[str, Pose]
    ) -> None:
        self.cameras = {c.name: c for c in cameras}
        self._views, self._seen = list(views), seen
        self.places: dict[str, Pose] = {}
        # A place that is kept: the frame of the others.
        self.anchor = ""

    def hand_eye(self, outliers: dict[str, str]) -> list[RigView]:
        """Cameras whose pictures tell their place by the arm's poses; returns all pictures, those
        with a wrong pose of the arm as ones of a board in somebody's hand: their corners are good.
        """
        wrong: set[str] = set()
        for camera in self.cameras.values():
            for setup in ("eye-in-hand", "eye-to-hand"):
                wrong |= self._hand_eye_of(camera, setup, outliers)
        self._views = [
            replace(v, held="hand", moment="", T_base_tool=None) if v.name in wrong else v
            for v in self._views
        ]
        return self._views

    def _hand_eye_of(self, camera: RigCamera, setup: Setup, outliers: dict[str, str]) -> set[str]:
        mount, held = ("flange", "table") if setup == "eye-in-hand" else ("table", "flange")
        mine = [
            v
            for v in self._views
            if v.camera == camera.name and v.held == held and v.T_base_tool is not None
        ]
        if camera.mount != mount or not mine:
            return set()
        arms = [v.T_base_tool for v in mine if v.T_base_tool is not None]
        names = tuple(v.name for v in mine)
        pairs = PosePairs(np.stack(arms), np.stack([self._seen[n] for n in names]), setup, names)
        try:
            found = calibrate(pairs)
        except ContradictionError as error:
            raise ContradictionError(f"camera '{camera.name}': {error}") from error
        except DataError as error:
            raise DataError(f"camera '{camera.name}': {error}") from error
        swapped = {i: j for pair in exchanged(pairs, found) for i, j in (pair, pair[::-1])}
        for i in found.outliers:
            other = f"; it fits the place of {names[swapped[i]]}: exchanged" if i in swapped else ""
            outliers[names[i]] = (
                f"the arm's pose is wrong, {found.distances[i]:.0f} standard deviations off{other}"
            )
        self.places[camera.name] = found.T_parent_camera
        board = TABLE if setup == "eye-in-hand" else FLANGE
        self.places.setdefault(board, found.T_parent_board)
        return {names[i] for i in found.outliers}

    def spread_out(self) -> RigFrame:
        """Everything that hangs together with what is known; the frame that it is in."""
        frame: RigFrame = "base"
        if not self.places:
            still = [v for v in self._views if v.held == "table"]
            frame = "board" if still else "camera"
            self.anchor = TABLE if still else self._first_shared()
            if self.anchor:
                self.places[self.anchor] = np.eye(4)
        while self._spread_once():
            pass
        return frame

    def _first_shared(self) -> str:
        """The first camera that saw a moment that another one saw, too."""
        for v in self._views:
            if any(o.moment == v.moment and o.camera != v.camera for o in self._views if v.moment):
                return v.camera
        return ""

    def _spread_once(self) -> bool:
        """Whether another place became known."""
        guesses: dict[str, list[Pose]] = {}
        for v in self._views:
            board = _place(v)
            if v.held == "hand" and not v.moment:
                continue
            A, G = _arm_poses(v, self.cameras[v.camera])
            if A is None or G is None:
                continue
            if v.camera in self.places and board not in self.places:
                T_board = inverse(G) @ A @ self.places[v.camera] @ self._seen[v.name]
                guesses.setdefault(board, []).append(T_board)
            elif board in self.places and v.camera not in self.places:
                T_camera = inverse(A) @ G @ self.places[board] @ inverse(self._seen[v.name])
                guesses.setdefault(v.camera, []).append(T_camera)
        for name, poses in guesses.items():
            self.places[name] = _middle(poses)
        return bool(guesses)

    def board_of(self, view: RigView) -> Pose:
        """Where a board in somebody's hand was: of a moment in the frame, else in the camera's."""
        alone = self._seen[view.name]
        return self.places.get(_place(view), alone) if view.moment else alone


def _middle(poses: Sequence[Pose]) -> Pose:
    """The pose that is nearest to the others."""
    at = np.stack([T[:3, 3] for T in poses])
    far = np.linalg.norm(at[:, None] - at[None], axis=2)
    return poses[int(np.argmin(np.median(far, axis=1)))]


def _place(view: RigView) -> str:
    """The name of the board's place."""
    if view.held == "table":
        return TABLE
    if view.held == "flange":
        return FLANGE
    return f"moment {view.moment}" if view.moment else f"held {view.name}"


def _arm_poses(view: RigView, camera: RigCamera) -> tuple[Pose | None, Pose | None]:
    """``A`` of the camera and ``G`` of the board; None where the arm's pose is missing."""
    here = np.eye(4)
    A = view.T_base_tool if camera.mount == "flange" else here
    G = view.T_base_tool if view.held == "flange" else here
    return A, G


def _connected(
    start: _Start, views: Sequence[RigView], notes: list[str]
) -> tuple[list[RigView], dict[str, RigCamera]]:
    """Pictures with what they hang together with: those that do not tell a place show the lens
    alone. Cameras that have a place, by name.
    """
    placed = {n: c for n, c in start.cameras.items() if n in start.places and c.mount != "hand"}
    for name, camera in start.cameras.items():
        if name not in placed and camera.mount != "hand":
            notes.append(
                f"camera '{name}': no picture tells where it is: show it the board that another"
                f" camera sees at the same time, or {_missing(camera)}"
            )
    out: list[RigView] = []
    for v in views:
        camera = start.cameras[v.camera]
        A, G = _arm_poses(v, camera)
        lone = v.held == "hand" and _place(v) not in start.places
        if v.camera not in placed or A is None or G is None or lone:
            v = replace(v, held="hand", moment="", T_base_tool=None)  # noqa: PLW2901
        out.append(v)
    return out, placed


def _missing(camera: RigCamera) -> str:
    if camera.mount == "flange":
        return "look at the board on the table from 15 poses of the arm (purpose: handeye)"
    return "let the arm show it the board on its flange in 15 poses (purpose: handeye)"


def _chain(view: RigView, placed: Mapping[str, RigCamera]) -> Chain:
    camera, board = view.camera, _place(view)
    here = np.eye(4)
    if camera not in placed or (view.held == "hand" and not view.moment):
        # The board's place is its own: in the camera's frame.
        return Chain(view.view, view.camera, "nowhere", board, here, here)
    A, G = _arm_poses(view, placed[camera])
    return Chain(
        view.view,
        view.camera,
        camera,
        board,
        here if A is None else A,
        here if G is None else G,
    )


def _believed(
    views: Sequence[RigView],
    placed: Mapping[str, RigCamera],
    state: State,
    outliers: dict[str, str],
) -> tuple[list[RigView], State]:
    """Pictures that agree, and what they say."""
    kept = list(views)
    for _ in range(_ROUNDS):
        chains = [_chain(v, placed) for v in kept]
        state = fitted(chains, _used(state, chains))
        left = [linear(chain, state).left for chain in chains]
        size: Floats = np.array([np.sqrt((r * r).sum(axis=1).mean()) for r in left])
        alone = np.array([v.held == "hand" for v in kept])
        gate = np.full(len(kept), _LEAST_PX)
        for kind in (alone, ~alone):
            if kind.any():
                gate[kind] = max(_LEAST_PX, _WORSE * float(np.median(size[kind])))
        bad = [i for i in range(len(kept)) if size[i] > gate[i]]
        if not bad:
            break
        for i in bad:
            outliers[kept[i].name] = (
                f"its corners are {size[i]:.1f} px from where all others put them; blurred, moving,"
                " or of another moment than the arm's pose"
            )
        kept = [v for i, v in enumerate(kept) if i not in bad]
        if len(outliers) > _MOST_WRONG * (len(kept) + len(outliers)):
            raise ContradictionError(
                f"the pictures contradict each other: {len(outliers)} of"
                f" {len(kept) + len(outliers)} do not fit those that agree best"
                f" ({', '.join(sorted(outliers)[:4])}, ...), at most a third may be wrong. Look at"
                " sharpness, times and the arm's poses: robolearn capture --check"
            )
    return kept, _used(state, [_chain(v, placed) for v in kept])


def _used(state: State, chains: Sequence[Chain]) -> State:
    """Only what the pictures depend on."""
    places = {c.camera for c in chains} | {c.board for c in chains}
    lenses = {c.lens for c in chains}
    return replace(
        state,
        lenses={n: v for n, v in state.lenses.items() if n in lenses},
        places={n: T for n, T in state.places.items() if n in places},
    )


def _camera(
    camera: RigCamera,
    views: Sequence[RigView],
    state: State,
    told: Spread,
    placed: Mapping[str, RigCamera],
) -> FoundCamera:
    mine = [i for i, v in enumerate(views) if v.camera == camera.name]
    half = _half(f"lens {camera.name}", told, LENS)
    return FoundCamera(
        camera.name,
        camera.mount,
        state.lenses[camera.name],
        half,
        _found(camera.name, state, told) if camera.name in placed else None,
        len(mine),
        _mean(told.rms_px, mine),
        _mean(told.held_out_px, mine),
    )


def _mean(values: Floats, rows: Sequence[int]) -> float:
    return float(np.sqrt((values[list(rows)] ** 2).mean())) if rows else 0.0


def _found(name: str, state: State, told: Spread) -> FoundPlace | None:
    if name not in state.places:
        return None
    half = _half(name, told, 6)
    return FoundPlace(state.places[name], half[:3], half[3:])


def _half(name: str, told: Spread, size: int) -> Floats:
    """Half widths of 95 % intervals ``[size]``; zeros for what was kept."""
    if name not in told.columns:
        return np.zeros(size)
    at, count = told.columns[name], told.clusters[name]
    if count < _LEAST_CLUSTERS:
        return 2.0 * np.sqrt(np.diag(told.by_pixels)[at])
    sigma = np.sqrt(np.diag(told.covariance)[at])
    return float(_stats.t.ppf(0.975, count - 3)) * sigma
