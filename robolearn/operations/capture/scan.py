"""Scans a table with a camera on the flange; every picture is judged at once.

at first   the middle of the table, from all around
then       what depth shows to stand there, from where most of it is seen that was not yet
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from hardware.commissioning.reach import Reach, looking_at, looking_from
from robolearn.arms.collision import Capsule
from robolearn.arms.shapes import Joints
from robolearn.capture.config import CaptureSet
from robolearn.capture.folder import Frame, read_capture
from robolearn.errors import DataError
from robolearn.geometry import Pose, inverse
from robolearn.operations.capture.shooting import Shooting, Taken
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.table.unseen import Looked, Standing, eyes

# Poses that are tried for one picture that is wanted.
_TRIED = 10
# Pictures that are of no use, one after the other, end a scan.
_SPOILT = 5
# So far around the middle things are looked for [m]; so many pictures come first.
_REACH_M, _AT_FIRST = 0.35, 5
# Of so many poses the one that shows most is taken that the arm reaches, of the best ones.
_DRAWN, _BEST = 150, 40
# What shows fewer places (of 6 mm each) is not worth a picture, nearer things are not measured [m].
_WORTH, _NEAREST_M = 12, 0.3


@dataclass(slots=True)
class TableScan:
    """Fills a set with pictures of a table. ``T_base_table``: z up, its origin in the middle of
    what is looked at.
    """

    shooting: Shooting
    reach: Reach
    entry: CaptureSet
    T_flange_camera: Pose
    T_base_table: Pose
    rng: np.random.Generator
    tell: Callable[[str], None]
    _looked: Looked = field(default_factory=lambda: Looked(_REACH_M))
    # The newest picture whose depth was seen.
    _newest: PosedFrame | None = None
    _around: dict[tuple[int, int], Iterator[Pose]] = field(
        default_factory=dict[tuple[int, int], Iterator[Pose]]
    )

    def take(self, wanted: int) -> str:
        """Take ``wanted`` pictures, or go on with them; returns what should be repeated ("":
        nothing). Pictures of no use are told and not kept. DataError when too many follow each
        other, or depth is in other units; what was taken stays.
        """
        camera, writer, name = self.entry.camera, self.shooting.writer, self.entry.name
        for frame in self._frames():
            self._add(frame)
        tried = spoilt = 0
        while writer.count(name) < wanted and tried < _TRIED * wanted:
            tried += 1
            q = self._next(writer.count(name), tried)
            if q is None:
                continue
            taken = self.shooting.take_at(q, camera, None)
            self.shooting.record()
            if taken.problem:
                spoilt += 1
                self.tell(f"{camera}: {taken.problem}")
                _require_some(camera, spoilt, taken.problem)
                continue
            spoilt = 0
            self._keep(taken)
            self.tell(f"{camera}: scan {writer.count(name)} of {wanted}")
        return self._advice(writer.count(name), wanted)

    def _keep(self, taken: Taken) -> None:
        self.shooting.keep(self.entry.name, taken)
        if taken.depth_m is None:
            return
        T_base_camera = taken.T_base_flange @ self.T_flange_camera
        judge, target = self.shooting.judge(self.entry.camera), self.T_base_table[:3, 3]
        judge.looked_at(taken.depth_m, T_base_camera, target)
        self._add(self._frames()[-1])

    def _frames(self) -> list[Frame]:
        """Pictures of the set so far."""
        capture = read_capture(self.shooting.writer.folder)
        return [f for f in capture.frames if f.set.name == self.entry.name]

    def _add(self, frame: Frame) -> None:
        """See what a picture sees, where its camera measures depth and its lens is known."""
        posed = self._posed(frame)
        if posed is not None:
            self._newest = posed
            self._looked.add(posed.depth_m(), posed.K, posed.T_table_camera)

    def _posed(self, frame: Frame) -> PosedFrame | None:
        lens, T = frame.camera.lens, frame.T_base_tool
        if lens is None or T is None or frame.depth_file is None:
            return None
        return PosedFrame(frame, lens, inverse(self.T_base_table) @ T @ self.T_flange_camera)

    def _next(self, count: int, tried: int) -> Joints | None:
        """Where to go for the next picture; None: that pose is not reached."""
        things = self._looked.standing() if count >= _AT_FIRST else []
        reach = self.reach.beside([self._capsule(k, thing) for k, thing in enumerate(things)])
        q = self._telling(reach) if things else None
        if q is not None:
            return q
        # All of them, and the table, in turn.
        k = tried % (len(things) + 1)
        target = np.zeros(3) if k == 0 else things[k - 1].middle
        cell = np.rint(target[:2] / 0.02).astype(int)
        key = (int(cell[0]), int(cell[1]))
        at = (self.T_base_table @ np.array([*target, 1.0]))[:3]
        around = self._around.setdefault(key, looking_at(at, self.rng))
        return reach.joints(next(around) @ inverse(self.T_flange_camera), self.shooting.q)

    def _telling(self, reach: Reach) -> Joints | None:
        """From where a picture shows most of what was not seen; None: nothing, or not reached."""
        posed, rims = self._newest, self._looked.rims()
        if posed is None or not len(rims.at):
            return None
        size, T = posed.frame.camera.size, self.T_base_table
        drawn: list[tuple[int, Pose]] = []
        for eye, target in islice(eyes(rims, self.rng, _NEAREST_M), _DRAWN):
            looks = looking_from(eye, target, self.rng.uniform(-np.pi, np.pi))
            drawn.append((rims.shown(posed.K, size, looks), looks))
        drawn.sort(key=lambda one: -one[0])
        for shown, looks in drawn[:_BEST]:
            if shown < _WORTH:
                return None
            q = reach.joints(T @ looks @ inverse(self.T_flange_camera), self.shooting.q)
            if q is not None:
                return q
        return None

    def _capsule(self, number: int, thing: Standing) -> Capsule:
        """What the arm keeps clear of."""
        x, y, _ = thing.middle
        ends = self.T_base_table @ np.array([[x, y, 0.0, 1.0], [x, y, thing.high[2], 1.0]]).T
        a, b = (tuple(float(v) for v in end[:3]) for end in ends.T)
        radius = max(thing.radius_m, 0.01)
        return Capsule(0, (a[0], a[1], a[2]), (b[0], b[1], b[2]), radius, f"thing {number + 1}")

    def _advice(self, taken: int, wanted: int) -> str:
        if taken >= wanted:
            return ""
        return (
            f"camera '{self.entry.camera}': {taken} of {wanted} pictures of the scan: the arm"
            " reaches no more poses around the table without coming near to something; go on by"
            " hand, or move the table nearer"
        )


def _require_some(camera: str, spoilt: int, problem: str) -> None:
    if spoilt >= _SPOILT:
        raise DataError(
            f"camera '{camera}': {spoilt} pictures of the scan, one after the other, are of no use:"
            f" {problem}"
        )
