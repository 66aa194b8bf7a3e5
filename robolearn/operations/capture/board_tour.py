"""Takes pictures of a board from poses that the arm chooses as it goes.

    at first   from where the board is seen to all sides, each pose far from those before
    then       once lens and place are about known: from where a picture tells most of them

Nothing of camera, lens and board's place need be known before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from hardware.commissioning.reach import Reach, around
from robolearn.arms.shapes import Joints
from robolearn.calibration.boards import LEAST_VIEWS, Board, BoardFinder, View
from robolearn.calibration.next_view import Outlook
from robolearn.calibration.rig import RigCamera, RigView
from robolearn.capture.board_views import straight_numbers, straightened
from robolearn.capture.config import CaptureCamera, CaptureSet
from robolearn.capture.folder import read_capture
from robolearn.geometry import Pose, pose_error
from robolearn.operations.capture.shooting import (
    Shooting,
    coverage_problem,
    farthest_to,
    require_enough,
)

# A step from a pose where the board was seen; so many are drawn, the newest to the arm is taken.
_TILT_DEG, _SHIFT_M, _DRAWN = 18.0, 0.07, 10
# Poses that are tried for one picture that is wanted.
_TRIED = 4
# How far poses count as one: turned by, and moved by.
_ANGLE_RAD, _AWAY_M = 0.35, 0.1
# Places are found anew when there are so many times as many pictures, or so many more where they
# told too little; the next pose is chosen from so many.
_ANEW, _AGAIN, _CHOICE = 1.75, 3, 80
# A pose that is as near to one where the board was not seen is not tried.
_BLIND = 0.5


@dataclass(slots=True)
class BoardTour:
    """One camera's pictures of a board; ``pivot_m`` before the flange lies what it turns about."""

    shooting: Shooting
    reach: Reach
    entry: CaptureSet
    board: Board
    pivot_m: float
    rng: np.random.Generator
    tell: Callable[[str], None]
    visited: list[Pose] = field(default_factory=list[Pose])
    seen: list[Pose] = field(default_factory=list[Pose])
    views: list[View] = field(default_factory=list[View])
    _outlook: Outlook | None = None
    # Places are found (anew) when there are so many pictures; so many were joined to them.
    _anew_at: int = LEAST_VIEWS
    _joined: int = 0

    def take(self, wanted: int) -> str:
        """Fill the set, or go on with it; returns what should be repeated ("": nothing). DataError
        when the board is hardly seen; what was taken stays.
        """
        camera = self.entry.camera
        size = self._camera.size
        finder = BoardFinder(self.board)
        for T, view in _so_far(self.shooting.writer.folder, self.entry.name, finder):
            self.seen.append(T)
            self.views.append(view)
        self.visited, tried = list(self.seen), 0
        while tried < _TRIED * wanted:
            bare = coverage_problem(self.views, size)
            if len(self.seen) >= wanted and not bare:
                break
            tried += 1
            q = self._telling() if len(self.seen) < wanted else None
            q = self._beside(tried, size) if q is None else q
            if q is None:
                self.shooting.env.home()
                continue
            taken = self.shooting.take_at(q, camera, finder)
            self.shooting.record()
            self.visited.append(taken.T_base_flange)
            if taken.problem or taken.view is None:
                self.tell(f"{camera}: {taken.problem}")
                continue
            self.seen.append(taken.T_base_flange)
            self.views.append(taken.view)
            self.shooting.keep(self.entry.name, taken)
            count = len(self.seen)
            more = "" if count <= wanted else f", and {count - wanted} for {bare}"
            self.tell(f"{camera}: the board, {min(count, wanted)} of {wanted}{more}")
        require_enough(camera, len(self.seen), wanted, tried)
        bare = coverage_problem(self.views, size)
        if not bare:
            return ""
        return (
            f"camera '{camera}': {bare}; its lens is less sure there: move the board, or raise"
            " 'poses'"
        )

    def _telling(self) -> Joints | None:
        """Joints of the reachable pose from which a picture tells most; None: too little is known,
        or none is reached.
        """
        outlook = self._known()
        if outlook is None:
            return None
        here = self.shooting.q
        blind = [T for T in self.visited if not any(T is other for other in self.seen)]
        for T in outlook.poses(_CHOICE, self.rng):
            if all(_distance(T, other) > _BLIND for other in blind):
                q = self.reach.joints(T, here)
                if q is not None:
                    return q
        return None

    def _known(self) -> Outlook | None:
        """What the pictures tell of lens and places; the places anew when there are many more."""
        count = len(self.views)
        if count >= self._anew_at:
            name, config = self.entry.camera, self._camera
            lens = None if config.lens is None else straight_numbers(config.lens)
            camera = RigCamera(name, config.mount, config.size, lens)
            every = [self._rig_view(i) for i in range(count)]
            self._outlook = Outlook.of(camera, every, self.board)
            told = self._outlook is not None
            self._anew_at = math.ceil(_ANEW * count) if told else count + _AGAIN
        elif self._outlook is not None:
            for i in range(self._joined, count):
                self._outlook = self._outlook.joined(self._rig_view(i))
        self._joined = count
        return self._outlook

    @property
    def _camera(self) -> CaptureCamera:
        return self.shooting.writer.config.cameras[self.entry.camera]

    def _rig_view(self, i: int) -> RigView:
        view, lens = self.views[i], self._camera.lens
        view = view if lens is None else straightened(view, lens)
        held = "flange" if self.entry.board_on == "flange" else "table"
        return RigView(str(i), self.entry.camera, view, held, self.seen[i])

    def _beside(self, turn: int, size: tuple[int, int]) -> Joints | None:
        """Joints of a reachable pose near one where the board was seen (None yet: near where the
        arm is; there at first), far from all visited; None: none is reached.
        """
        here = self.shooting.q
        if not self.visited:
            return here
        near = self.seen[farthest_to(self.views, size, turn)] if self.seen else self.visited[0]
        best: tuple[float, Joints] | None = None
        steps = around(near, self.pivot_m, self.rng, tilt_deg=_TILT_DEG, shift_m=_SHIFT_M)
        for T in islice(steps, _DRAWN):
            away = min(_distance(T, other) for other in self.visited)
            if best is not None and away <= best[0]:
                continue
            q = self.reach.joints(T, here)
            if q is not None:
                best = (away, q)
        return None if best is None else best[1]


def _so_far(folder: Path, name: str, finder: BoardFinder) -> Iterator[tuple[Pose, View]]:
    """Where the arm was in the pictures of a set that were taken before, and what they show."""
    for frame in read_capture(folder).frames:
        if frame.set.name != name or frame.T_base_tool is None:
            continue
        view = finder.find(frame.picture())
        if view is not None:
            yield frame.T_base_tool, view


def _distance(a: Pose, b: Pose) -> float:
    """How different two poses are: 1 when turned by 20 degrees, or moved by 0.1 m."""
    away, angle = pose_error(a, b)
    return away / _AWAY_M + angle / _ANGLE_RAD
